"""What travels between nodes, and who is told of it."""

import enum
from typing import Protocol
from uuid import UUID

from penstock.core.model import NodeId
from penstock.runtime import Buffer, CloseReason, NodeIdentity


class Channel(enum.IntEnum):
    """Who a frame is for: its first byte."""

    RAFT = 1
    CONTROL = 2
    REPLICATION = 3


class Line(enum.Enum):
    """One of the two links to a node."""

    CONTROL = "small frames that must not wait"
    BULK = "records"


LINE_OF = {Channel.RAFT: Line.CONTROL, Channel.CONTROL: Line.CONTROL, Channel.REPLICATION: Line.BULK}


class Peer(Protocol):
    """The node at the other end of a link, as its handshake named it."""

    @property
    def node_id(self) -> NodeId: ...

    @property
    def directory_id(self) -> UUID: ...

    def send(self, *parts: Buffer) -> bool:
        """Answer on the link and the channel that the frame came by; False: not taken."""


class ChannelHandler(Protocol):
    """Who gets the frames of a channel."""

    def received(self, peer: Peer, frame: memoryview) -> None:
        """A frame arrived, whoever dialled the link; its channel byte is taken off."""


class PeerWatcher(Protocol):
    """Who wants to know how the links that we dialled fare."""

    def reached(self, node: NodeId, identity: NodeIdentity, /) -> None:
        """A link is open: frames to the node are taken."""

    def lost(self, node: NodeId, ending: CloseReason, /) -> None:
        """A link is over, or an attempt to open one has failed; the next attempt follows by itself."""

    def drained(self, node: NodeId, channel: Channel, /) -> None:
        """What was turned away can be sent: there is room again, or the link has opened."""


class LaxWatcher:
    """A `PeerWatcher` to begin with: it does nothing about what its heirs do not care for."""

    def reached(self, _node: NodeId, _identity: NodeIdentity, /) -> None:
        """A link is open."""

    def lost(self, _node: NodeId, _ending: CloseReason, /) -> None:
        """A link is over."""

    def drained(self, _node: NodeId, _channel: Channel, /) -> None:
        """There is room again."""
