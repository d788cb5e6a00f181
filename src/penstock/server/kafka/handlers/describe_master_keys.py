"""DescribeMasterKeys: which master keys nodes need. An API of Penstock, not of Kafka."""

from functools import partial

from penstock.broker.cluster.rpc import MasterKeysReply
from penstock.core.model import ApiError, NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_master_keys import (
    DescribeMasterKeysRequest,
    DescribeMasterKeysResponse,
    DescribeMasterKeysResponseKey,
    DescribeMasterKeysResponseNode,
)
from penstock.security import AclOperation
from penstock.server.kafka.acl_rows import NOT_DESCRIBED
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes

NODES_MAX = 1_000


@routes.handles(DescribeMasterKeysRequest)
def describe_master_keys(request: DescribeMasterKeysRequest, call: Request) -> None:
    if not call.authorize(AclOperation.DESCRIBE, CLUSTER):
        call.reply(
            DescribeMasterKeysResponse(
                throttle_time_ms=call.charge_time(),
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                error_message=NOT_DESCRIBED,
            )
        )
        return
    admin = call.backend.master_keys
    wanted = dict.fromkeys(map(NodeId, request.node_ids[:NODES_MAX])) or dict.fromkeys(admin.nodes())
    found: dict[NodeId, DescribeMasterKeysResponseNode] = {}

    def described(node: NodeId, outcome: MasterKeysReply | ApiError) -> None:
        found[node] = _row(node, outcome)
        if len(found) == len(wanted):
            nodes = tuple(found[each] for each in wanted)
            call.reply(DescribeMasterKeysResponse(throttle_time_ms=call.charge_time(), nodes=nodes))

    for node in wanted:
        admin.describe(node, partial(described, node))


def _row(node: NodeId, outcome: MasterKeysReply | ApiError) -> DescribeMasterKeysResponseNode:
    if isinstance(outcome, ApiError):
        code, message = error_fields(outcome)
        return DescribeMasterKeysResponseNode(node_id=node, error_code=code, error_message=message)
    return DescribeMasterKeysResponseNode(
        node_id=node,
        service=outcome.service,
        current=outcome.current,
        created_ms=outcome.created_ms,
        phase=outcome.phase,
        rotated_ms=outcome.rotated_ms,
        logs_total=outcome.logs_total,
        logs_left=outcome.logs_left,
        keys=tuple(
            DescribeMasterKeysResponseKey(name=name, uses=uses, examples=examples)
            for name, uses, examples in outcome.keys
        ),
        resealed_bytes=outcome.resealed_bytes,
        reseal_logs_total=outcome.reseal_logs_total,
        reseal_logs_left=outcome.reseal_logs_left,
        left_out=outcome.left_out,
        resealed_ms=outcome.resealed_ms,
        problem=outcome.problem,
    )
