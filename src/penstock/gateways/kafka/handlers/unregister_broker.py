"""UnregisterBroker: forgetting a broker that will not come back."""

from penstock.core.metadata import UnregisterBroker
from penstock.core.model import NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.gateways.kafka.answers.operations import CLUSTER
from penstock.gateways.kafka.answers.rows import told
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.routes import routes
from penstock.security import AclOperation


@routes.handles(UnregisterBrokerRequest)
def unregister_broker(request: UnregisterBrokerRequest, call: Call) -> None:
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _reply(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster")
        return
    command = UnregisterBroker(NodeId(request.broker_id))
    call.backend.controller.submit(command, lambda reply: _reply(call, *told(reply)))


def _reply(call: Call, code: ErrorCode, message: str | None) -> None:
    call.reply(
        UnregisterBrokerResponse(throttle_time_ms=call.charge_time(), error_code=code, error_message=message)
    )
