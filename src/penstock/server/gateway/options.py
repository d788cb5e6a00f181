"""What a gateway is told by its node, as JSON on its command line; its one secret comes on standard input."""

import msgspec

from penstock.security.options import TlsOptions
from penstock.server.grpc.options import GrpcOptions


class RestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and defaults of the HTTP server."""

    default_topic: str = ""
    body_bytes_max: int = 10 << 20
    head_bytes_max: int = 32 << 10
    connections_max: int = 5_000
    # Of one address; of IPv6, of a /64.
    address_connections_max: int = 2_500
    requests_max: int = 2_000
    in_flight_bytes_max: int = 256 << 20
    body_timeout_ms: int = 30_000
    response_timeout_ms: int = 30_000
    # Callers that the gateway has connections for.
    callers_max: int = 500
    # Of a poll that does not say how many.
    poll_records_max: int = 500

    def address_share(self, places: int) -> int:
        """How many of some places one address may have: as large a part as of the connections."""
        share = places * self.address_connections_max // self.connections_max
        return max(1, min(places, share))


class GatewayTls(msgspec.Struct, frozen=True):
    """The files of `security.tls`, which a gateway uses as its node does."""

    certificate: str
    key: str
    authority: str
    client_auth: str
    version_min: str

    @classmethod
    def of(cls, options: TlsOptions) -> "GatewayTls":
        return cls(
            options.certificate,
            options.key,
            options.authority,
            options.client_auth,
            options.version_min,
        )

    @property
    def options(self) -> TlsOptions:
        return TlsOptions(self.certificate, self.key, self.authority, self.client_auth, self.version_min)


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
    # Whether callers must say who they are, and what TLS there is, for them and on the Kafka port.
    is_secured: bool = False
    has_kafka_tls: bool = False
    tls: GatewayTls | None = None
    log_level: str = "info"
    log_format: str = "auto"
