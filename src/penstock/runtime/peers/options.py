"""The limits of peer links."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """What one peer may cost us, and how long we wait for it."""

    frame_bytes_max: int = 64 * 1024 * 1024
    send_buffer_bytes_max: int = 8 * 1024 * 1024
    links_max: int = 1024
    connect_timeout_ms: int = 2_000
    handshake_timeout_ms: int = 2_000
    idle_timeout_ms: int = 10_000
    authentication: bytes = b""
