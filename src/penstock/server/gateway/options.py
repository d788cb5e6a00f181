"""What a gateway is told by its node, as JSON on its command line."""

import msgspec

from penstock.server.grpc.options import GrpcOptions


class RestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and defaults of the HTTP server."""

    default_topic: str = ""
    body_bytes_max: int = 10 << 20
    head_bytes_max: int = 32 << 10
    connections_max: int = 5_000
    requests_max: int = 2_000
    in_flight_bytes_max: int = 256 << 20
    body_timeout_ms: int = 30_000
    response_timeout_ms: int = 30_000
    # Of a poll that does not say how many.
    poll_records_max: int = 500


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses are (host, port); `http_descriptor` is a listening socket that the process inherits."""

    node_id: int = 0
    http_descriptor: int = -1
    # Closed by the kernel when the node ends.
    node_descriptor: int = -1
    # How long a gateway may be silent. It gives a sign of life on that socket several times as often.
    hung_timeout_ms: int = 15_000
    # How much of the processor it leaves to its node where both want it.
    nice: int = 0
    # How long a consumer whose connection was lost may take to come back.
    session_timeout_ms: int = 30_000
    bootstrap: tuple[str, int] = ("127.0.0.1", 9092)
    # Where the node itself serves health, readiness and metrics.
    pages: tuple[str, int] = ("127.0.0.1", 0)
    grpc: tuple[str, int] | None = None
    rest: RestOptions = RestOptions()
    grpc_limits: GrpcOptions = GrpcOptions()
    log_level: str = "info"
    log_format: str = "auto"
