"""Which link a Raft message takes."""

from typing import Any, cast
from uuid import UUID

from penstock.broker.cluster.peers import Channel, PeerManager
from penstock.broker.cluster.raft_codec import encode_message
from penstock.broker.cluster.raft_host import SENDERS_MAX, RaftTransport
from penstock.core.model import NodeId
from penstock.core.raft import Index, Member, Term
from penstock.core.raft.messages import RaftHeartbeat, RaftHeartbeatResponse
from penstock.runtime import NodeIdentity

CLUSTER = UUID(int=1)
HEARTBEAT = RaftHeartbeat(Term(5), Index(0), round=1)
RESPONSE = RaftHeartbeatResponse(Term(5), round=1, match=Index(0))


def member(number: int) -> Member:
    return Member(NodeId(number), UUID(int=100 + number))


class Hub:
    """The links that were dialled."""

    def __init__(self) -> None:
        self.dialled: dict[int, NodeIdentity] = {}
        self.sent: list[tuple[int, bytes]] = []

    def serve(self, channel: Channel, handler: object) -> None: ...

    def watch(self, watcher: object) -> None: ...

    def identity_of(self, node: NodeId) -> NodeIdentity | None:
        return self.dialled.get(node)

    def send(self, _channel: Channel, node: NodeId, frame: bytes) -> bool:
        self.sent.append((node, bytes(frame)))
        return True

    def dial(self, number: int) -> None:
        self.dialled[number] = NodeIdentity(CLUSTER, NodeId(number), member(number).directory_id)


class Inbound:
    """The other end of a link that somebody else dialled."""

    def __init__(self, number: int) -> None:
        self.node_id, self.directory_id = member(number)
        self.sent: list[bytes] = []

    def send(self, *parts: Any) -> bool:
        self.sent.append(b"".join(parts))
        return True


def transport(hub: Hub) -> RaftTransport:
    return RaftTransport(cast(PeerManager, hub), lambda sender, message: None, lambda node: None)


def hear(links: RaftTransport, peer: Inbound) -> None:
    links.received(peer, memoryview(encode_message(HEARTBEAT)))


def test_a_leader_that_our_log_does_not_know_gets_its_response_on_its_own_link() -> None:
    hub, leader = Hub(), Inbound(5)
    links = transport(hub)
    hear(links, leader)

    links.send(member(5), RESPONSE)

    assert leader.sent == [encode_message(RESPONSE)]
    assert hub.sent == []


def test_a_link_that_we_dialled_is_preferred() -> None:
    hub, leader = Hub(), Inbound(5)
    links = transport(hub)
    hear(links, leader)
    hub.dial(5)

    links.send(member(5), RESPONSE)

    assert leader.sent == []
    assert hub.sent == [(5, encode_message(RESPONSE))]


def test_nothing_goes_to_another_directory_of_the_same_node() -> None:
    hub, replaced = Hub(), Inbound(5)
    links = transport(hub)
    hear(links, replaced)

    links.send(Member(NodeId(5), UUID(int=7)), RESPONSE)

    assert replaced.sent == []


def test_whoever_says_to_be_many_nodes_is_not_remembered_as_all_of_them() -> None:
    hub = Hub()
    links = transport(hub)
    guests = [Inbound(number) for number in range(1, SENDERS_MAX + 3)]
    for guest in guests:
        hear(links, guest)

    for guest in guests:
        links.send(Member(guest.node_id, guest.directory_id), RESPONSE)

    assert [len(guest.sent) for guest in guests] == [0, 0] + [1] * SENDERS_MAX
