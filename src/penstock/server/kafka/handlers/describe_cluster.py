"""DescribeCluster: the brokers of a cluster."""

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)
from penstock.server.kafka.node_addresses import controller_id, named_brokers
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, NOT_ASKED, authorized_operations
from penstock.server.kafka.router import routes

BROKERS, CONTROLLERS = 1, 2


@routes.handles(DescribeClusterRequest)
def describe_cluster(request: DescribeClusterRequest, call: Request) -> None:
    if request.endpoint_type != BROKERS:
        _refuse(request.endpoint_type, call)
        return
    asked = request.include_cluster_authorized_operations
    call.reply(
        DescribeClusterResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE,
            endpoint_type=BROKERS,
            cluster_id=call.backend.node.cluster_id,
            controller_id=controller_id(call),
            brokers=tuple(
                DescribeClusterResponseBroker(
                    broker_id=broker.node_id,
                    host=broker.host,
                    port=broker.port,
                    rack=broker.rack,
                    is_fenced=broker.fenced,
                )
                for broker in named_brokers(call, fenced=request.include_fenced_brokers)
            ),
            cluster_authorized_operations=authorized_operations(call, CLUSTER) if asked else NOT_ASKED,
        )
    )


def _refuse(endpoint_type: int, call: Request) -> None:
    if endpoint_type == CONTROLLERS:
        code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, "clients cannot talk to the metadata quorum"
    else:
        code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there are no endpoints of type {endpoint_type}"
    call.reply(
        DescribeClusterResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code,
            error_message=message,
            endpoint_type=endpoint_type,
            cluster_id="",
            brokers=(),
        )
    )
