"""Limits of the gRPC server."""

import msgspec


class GrpcOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A client that goes beyond one of these waits, or gets RESOURCE_EXHAUSTED or INVALID_ARGUMENT."""

    # One request.
    message_bytes_max: int = 10 << 20
    # Messages of a batch, receipts of an Ack.
    batch_max: int = 10_000
    receipts_max: int = 10_000
    # Connections, of which REST needs some as well; what one may take for its handshake, and for how long it
    # may be there without a call.
    connections_max: int = 5_000
    handshake_ms: int = 10_000
    idle_ms: int = 75_000
    # Calls at once, streams among them; those of one connection.
    calls_max: int = 2_000
    connection_calls_max: int = 1_000
    # What a PublishStream has under way, and all of them together.
    stream_bytes_max: int = 8 << 20
    stream_requests_max: int = 64
    publish_bytes_max: int = 32 << 20
    # What a Subscribe takes at once. Clients accept elements of 4 MiB unless they say otherwise.
    delivery_bytes_max: int = 1 << 20
    in_flight_default: int = 1_000
    in_flight_max: int = 10_000
    # How long calls that are under way may take when the server stops.
    close_seconds: float = 0.4
