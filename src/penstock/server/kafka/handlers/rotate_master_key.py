"""RotateMasterKey: another master key for a node. An API of Penstock, not of Kafka."""

from penstock.broker.cluster.rpc import RotateMasterKeyReply
from penstock.core.model import ApiError, NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.rotate_master_key import RotateMasterKeyRequest, RotateMasterKeyResponse
from penstock.security import AclOperation
from penstock.server.kafka.acl_rows import NOT_ALTERED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes


@routes.handles(RotateMasterKeyRequest)
def rotate_master_key(request: RotateMasterKeyRequest, call: Request) -> None:
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        call.reply(
            RotateMasterKeyResponse(
                throttle_time_ms=call.charge_time(),
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                error_message=NOT_ALTERED,
            )
        )
        return

    def done(outcome: RotateMasterKeyReply | ApiError) -> None:
        code, message = error_fields(outcome)
        reply = RotateMasterKeyReply() if isinstance(outcome, ApiError) else outcome
        call.reply(
            RotateMasterKeyResponse(
                throttle_time_ms=call.charge_time(),
                error_code=code,
                error_message=message,
                key=reply.current,
                is_new=reply.is_new,
            )
        )

    call.backend.master_keys.rotate(NodeId(request.node_id), done, reseal=request.reseal)
