"""CreateApiKey: letting a secret stand for a user. An API of Penstock, not of Kafka."""

from penstock.core.metadata import Ok
from penstock.core.metadata.access import AclOperation, ApiKey
from penstock.core.model import ApiError, Timestamp
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_api_key import CreateApiKeyRequest, CreateApiKeyResponse
from penstock.security import QuotaType
from penstock.server.kafka.acl_rows import NOT_ALTERED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes

SCOPE_MAX = 20


@routes.handles(CreateApiKeyRequest)
def create_api_key(request: CreateApiKeyRequest, call: Request) -> None:
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _answer(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, NOT_ALTERED)
        return
    try:
        scope = tuple(AclOperation(number) for number in request.scope[: SCOPE_MAX + 1])
    except ValueError as error:
        _answer(call, ErrorCode.INVALID_REQUEST, str(error))
        return
    if len(scope) > SCOPE_MAX or request.expires_ms < -1:
        _answer(call, ErrorCode.INVALID_REQUEST, "the scope is too long, or the expiry before 1970")
        return
    api_key = ApiKey(
        request.id,
        request.user,
        bytes(request.digest),
        Timestamp(call.connection.clock.wall()),
        Timestamp(request.expires_ms),
        tuple(sorted(dict.fromkeys(scope))),
        request.description,
    )

    def done(reply: Ok | ApiError) -> None:
        call.charge(QuotaType.MUTATIONS, 1)
        _answer(call, *error_fields(reply))

    call.backend.access.create_api_key(api_key, done)


def _answer(call: Request, code: ErrorCode, message: str | None) -> None:
    call.reply(
        CreateApiKeyResponse(throttle_time_ms=call.charge_time(), error_code=code, error_message=message)
    )
