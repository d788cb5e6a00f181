"""DeleteApiKey: letting a secret stand for nobody any more. An API of Penstock, not of Kafka."""

from penstock.core.metadata import Ok
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delete_api_key import DeleteApiKeyRequest, DeleteApiKeyResponse
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.acl_rows import NOT_ALTERED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes


@routes.handles(DeleteApiKeyRequest)
def delete_api_key(request: DeleteApiKeyRequest, call: Request) -> None:
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _answer(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALTERED)
        return

    def done(reply: Ok | ApiError) -> None:
        call.charge(QuotaType.MUTATIONS, 1)
        _answer(call, *error_fields(reply))

    call.backend.access.delete_api_key(request.id, done)


def _answer(call: Request, code: ErrorCode, message: str | None) -> None:
    call.reply(
        DeleteApiKeyResponse(throttle_time_ms=call.charge_time(), error_code=code, error_message=message)
    )
