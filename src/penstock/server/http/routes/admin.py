"""Health, readiness, metrics and the cluster; batch commit. The node itself responds to most of these."""

from starlette.responses import Response

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.pages import NodePage
from penstock.server.http.body import read_body
from penstock.server.http.operations import NoQuery, OperationTable, RestAnswer, RestRequest
from penstock.server.http.problem import Problem, failed

OPERATIONS = OperationTable("admin", "The node and its cluster")
METRICS_TEXT = "text/plain; version=0.0.4"
# What the node takes at most.
BATCH_BYTES_MAX = 512 << 10
PageRequest = RestRequest[NoQuery, None]


@OPERATIONS.add("GET", "/health", "Whether the node lives")
@OPERATIONS.add("GET", "/v1/admin/health", "Whether the node lives")
async def health(backend: GatewayBackend, _: PageRequest) -> Response:
    return await _page(backend, "/health")


@OPERATIONS.add("GET", "/ready", "Whether clients should be sent to this node")
async def readiness(backend: GatewayBackend, _: PageRequest) -> Response:
    return await _page(backend, "/ready")


@OPERATIONS.add("GET", "/metrics", "Metrics for Prometheus", returns=METRICS_TEXT)
@OPERATIONS.add("GET", "/v1/admin/metrics", "Metrics for Prometheus", returns=METRICS_TEXT)
async def metrics(backend: GatewayBackend, _: PageRequest) -> Response:
    return await _page(backend, "/metrics")


class BrokerView(RestAnswer, frozen=True):
    """A broker and where it is reached; one that is fenced serves nobody until it is back."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


class ClusterView(RestAnswer, frozen=True):
    """The cluster as this node's broker sees it."""

    cluster_id: str
    controller: int | None
    node: int
    brokers: list[BrokerView]


@OPERATIONS.add("GET", "/v1/admin/cluster", "The brokers of the cluster", answer=ClusterView)
async def cluster(backend: GatewayBackend, _: PageRequest) -> ClusterView:
    asked = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    answer = await backend.cluster.ask(asked)
    if answer.error_code != ErrorCode.NONE:
        raise failed(answer.error_code, answer.error_message or "the cluster was not described")
    return ClusterView(
        cluster_id=answer.cluster_id,
        controller=answer.controller_id if answer.controller_id >= 0 else None,
        node=backend.options.node_id,
        brokers=[
            BrokerView(id=one.broker_id, host=one.host, port=one.port, rack=one.rack, is_fenced=one.is_fenced)
            for one in answer.brokers
        ],
    )


@OPERATIONS.add("PUT", "/v1/batches/{batch:path}", "Commit the transactions of a batch, all or none, once")
async def commit_batch(backend: GatewayBackend, request: PageRequest) -> Response:
    seconds = backend.limits.body_timeout_ms / 1_000
    body = await read_body(request.receive, BATCH_BYTES_MAX, seconds, request.memory)
    # As the client wrote it: the names in it may hold slashes.
    path = request.raw_path.decode("latin-1")
    try:
        return _response(await backend.pages.put(path.removeprefix("/api"), body))
    except OSError as error:
        raise _no_node(error) from error


async def _page(backend: GatewayBackend, path: str) -> Response:
    try:
        return _response(await backend.pages.get(path))
    except OSError as error:
        raise _no_node(error) from error


def _response(page: NodePage) -> Response:
    return Response(page.body, page.status, {"content-type": page.content_type})


def _no_node(error: OSError) -> Problem:
    return Problem(503, "Temporarily unavailable", f"the node does not respond: {error}")
