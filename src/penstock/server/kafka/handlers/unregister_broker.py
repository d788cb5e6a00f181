"""UnregisterBroker: forgetting a broker that will not come back."""

from penstock.core.metadata import UnregisterBroker
from penstock.core.model import NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes


@routes.handles(UnregisterBrokerRequest)
def unregister_broker(request: UnregisterBrokerRequest, call: Request) -> None:
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _reply(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster")
        return
    command = UnregisterBroker(NodeId(request.broker_id))
    call.backend.controller.submit(command, lambda reply: _reply(call, *error_fields(reply)))


def _reply(call: Request, code: ErrorCode, message: str | None) -> None:
    call.reply(
        UnregisterBrokerResponse(throttle_time_ms=call.charge_time(), error_code=code, error_message=message)
    )
