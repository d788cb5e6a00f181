"""Frames between nodes over TCP.

Raw non-blocking sockets on the loop rather than its stream or protocol classes: we
decide how much is read per turn, know when a socket is dry (timers wait for that), and
large frames go to the kernel without a copy. A peer that breaks the framing, floods,
sends nothing or never reads costs its own connection: reads are bounded per turn,
frames by a limit, unsent bytes by a buffer that turns frames away, silence by a timeout.
Before its hello is admitted, a stranger gets two kilobytes and two seconds.

Left out: TLS, authentication exchanges of more than one message (the hello has one
slot each way), and file ranges sent with sendfile; peers get bytes.
"""

from penstock.runtime.peers.hello import Admit, Hello, Refusal, same_cluster
from penstock.runtime.peers.options import PeerOptions
from penstock.runtime.peers.transport import SocketTransport
from penstock.runtime.peers.wiring import Wiring

__all__ = ["Admit", "Hello", "PeerOptions", "Refusal", "SocketTransport", "Wiring", "same_cluster"]
