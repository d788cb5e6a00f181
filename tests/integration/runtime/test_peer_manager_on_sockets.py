"""The peer manager over real sockets: reached, asked, ended, refused."""

from typing import Any

from penstock.broker.cluster.peers import Channel, Peer, PeerManager
from penstock.core.model import NodeId
from penstock.runtime import Address, CloseReason, NodeIdentity

ANY_PORT = Address("127.0.0.1", 0)


class Node:
    """A peer manager and what it was called with."""

    def __init__(self, bench: Any, number: int) -> None:
        self.node_id = NodeId(number)
        self.heard: list[bytes] = []
        self.reachable: list[int] = []
        self.endings: list[CloseReason] = []
        self.peers = PeerManager(bench.node(number), self.node_id, ANY_PORT)
        self.peers.serve(Channel.CONTROL, self)
        self.peers.watch(self)
        self.peers.open()

    def received(self, peer: Peer, frame: memoryview) -> None:
        self.heard.append(bytes(frame))
        if bytes(frame) == b"ping":
            peer.send(b"pong")

    def reached(self, node: NodeId, identity: NodeIdentity) -> None:
        self.reachable.append(identity.node_id)

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        self.endings.append(ending)

    def drained(self, node: NodeId, channel: Channel) -> None:
        """Nothing waits here."""


def test_a_peer_is_reached_answers_ends_and_then_refuses(bench: Any) -> None:
    a, b = Node(bench, 1), Node(bench, 2)
    assert b.peers.address is not None
    a.peers.keep("test", {b.node_id: b.peers.address})
    bench.until(lambda: a.reachable == [2])

    a.peers.send(Channel.CONTROL, b.node_id, b"pi", b"ng")
    bench.until(lambda: a.heard == [b"pong"])
    b.peers.close()
    bench.until(lambda: len(a.endings) >= 2)

    assert b.heard == [b"ping"]
    assert a.endings[:2] == [CloseReason.ENDED, CloseReason.REFUSED]
    a.peers.close()
