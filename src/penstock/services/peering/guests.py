"""Open links, and who is at the other end of each."""

from uuid import UUID

from penstock.core.model import NodeId
from penstock.runtime import Buffer, Link, NodeIdentity


class Speaker:
    """A `Peer`: one channel of an open link."""

    __slots__ = ("_first_byte", "_link", "directory_id", "node_id")

    def __init__(self, link: Link, identity: NodeIdentity, channel: int) -> None:
        self._link = link
        self._first_byte = bytes((channel,))
        self.node_id: NodeId = identity.node_id
        self.directory_id: UUID = identity.directory_id

    def send(self, *parts: Buffer) -> bool:
        return self._link.send(self._first_byte, *parts)


class Guest:
    """An open link and its channels. The same link always has the same `Peer` for a channel."""

    __slots__ = ("_link", "_speakers", "identity", "is_ours")

    def __init__(self, link: Link, identity: NodeIdentity, *, is_ours: bool) -> None:
        self._link = link
        self._speakers: dict[int, Speaker] = {}
        self.identity = identity
        self.is_ours = is_ours

    @property
    def node_id(self) -> NodeId:
        return self.identity.node_id

    def on(self, channel: int) -> Speaker:
        speaker = self._speakers.get(channel)
        if speaker is None:
            speaker = self._speakers[channel] = Speaker(self._link, self.identity, channel)
        return speaker
