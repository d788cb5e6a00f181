"""Nodes find each other again, tell channels apart, and notice who is gone."""

from collections.abc import Callable
from uuid import UUID

from penstock.broker.cluster.peers import Channel, Peer, PeerManager
from penstock.core.model import MILLISECOND, SECOND, NodeId
from penstock.runtime import Address, Callback, CloseReason, NodeIdentity, Runtime
from penstock.sim import World
from penstock.storage.disk import Disk

PORT = 7000
NODES = {name: NodeId(number) for number, name in enumerate(("a", "b", "c"), 1)}
EVERYWHERE = {node: Address(name, PORT) for name, node in NODES.items()}


class Speaking:
    """A node with nothing but a peer manager. It replies to what begins with a question mark."""

    def __init__(self, runtime: Runtime, name: str, kept: dict[NodeId, Address]) -> None:
        self.heard: list[str] = []
        self.notes: list[str] = []
        self.peers = PeerManager(runtime, NODES[name], Address(name, PORT))
        for channel in (Channel.RAFT, Channel.CONTROL, Channel.REPLICATION):
            self.peers.serve(channel, Ear(self, channel))
        self.peers.watch(self)
        self.peers.watch(Bulk(self), Channel.REPLICATION)
        self.peers.on_identity_mismatch(
            lambda node, _, who: self.notes.append(f"{who.node_id} instead of {node}")
        )
        self.peers.open()
        self.peers.keep("test", kept)

    def reached(self, node: NodeId, identity: NodeIdentity) -> None:
        assert identity.node_id == node
        self.notes.append(f"reached {node}")

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        self.notes.append(f"lost {node} {ending.name}")

    def drained(self, node: NodeId, channel: Channel) -> None:
        self.notes.append(f"room for {channel.name} to {node}")

    def stop(self, done: Callback) -> None:
        self.peers.close()
        done()


class Bulk:
    """Watches the line for records."""

    def __init__(self, node: Speaking) -> None:
        self._node = node

    def reached(self, node: NodeId, identity: NodeIdentity) -> None:
        self._node.notes.append(f"bulk {node}")

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        self._node.notes.append(f"bulk lost {node} {ending.name}")

    def drained(self, node: NodeId, channel: Channel) -> None:
        """The other watcher is notified as well."""


class Ear:
    """The handler of one channel."""

    def __init__(self, node: Speaking, channel: Channel) -> None:
        self._node = node
        self._channel = channel

    def received(self, peer: Peer, frame: memoryview) -> None:
        text = bytes(frame).decode()
        self._node.heard.append(f"{self._channel.name} {peer.node_id}: {text}")
        if text.startswith("?"):
            peer.send(b"because ", text[1:].encode())


class Stage:
    """Three machines; a node's program is made anew at each start."""

    def __init__(self, seed: int = 1, kept: dict[NodeId, Address] | None = None) -> None:
        self.world = World(seed)
        self.nodes: dict[str, Speaking] = {}
        for name in NODES:
            self.world.add(name, self._program(name, EVERYWHERE if kept is None else kept))

    def _program(self, name: str, kept: dict[NodeId, Address]) -> Callable[[Runtime, Disk], Speaking]:
        def program(runtime: Runtime, _: Disk) -> Speaking:
            self.nodes[name] = Speaking(runtime, name, kept)
            return self.nodes[name]

        return program

    def run(self, duration_ms: int) -> None:
        self.world.run(duration_ms * MILLISECOND)


def together(seed: int = 1) -> Stage:
    stage = Stage(seed)
    stage.world.start_all()
    stage.run(1_000)
    return stage


def test_nodes_that_start_together_all_reach_each_other() -> None:
    stage = together()

    reached = {
        name: sorted(note for note in node.notes if "reached" in note) for name, node in stage.nodes.items()
    }

    assert reached == {
        "a": ["reached 2", "reached 3"],
        "b": ["reached 1", "reached 3"],
        "c": ["reached 1", "reached 2"],
    }


def test_frames_go_to_the_handler_of_their_channel_and_answers_come_back_on_it() -> None:
    stage = together()
    a, b = stage.nodes["a"], stage.nodes["b"]

    assert a.peers.send(Channel.RAFT, NODES["b"], b"vo", b"te")
    assert a.peers.send(Channel.CONTROL, NODES["b"], b"?why")
    stage.run(100)

    assert sorted(b.heard) == ["CONTROL 1: ?why", "RAFT 1: vote"]
    assert a.heard == ["CONTROL 2: because why"]


def test_the_line_for_records_is_dialled_when_it_is_first_used_and_says_when_it_is_there() -> None:
    stage = together()
    a, b = stage.nodes["a"], stage.nodes["b"]
    a.notes.clear()

    taken = [a.peers.send(Channel.REPLICATION, NODES["b"], b"early")]
    stage.run(100)
    taken.append(a.peers.send(Channel.REPLICATION, NODES["b"], b"records"))
    stage.run(100)

    assert taken == [False, True]
    assert a.notes == ["bulk 2", "room for REPLICATION to 2"]
    assert b.heard == ["REPLICATION 1: records"]


def test_a_process_that_ended_is_dialled_again_at_once_and_refuses() -> None:
    stage = together()
    a = stage.nodes["a"]
    a.notes.clear()

    stage.world.nodes["b"].kill()
    stage.run(10)

    assert a.notes[:2] == ["lost 2 ENDED", "lost 2 REFUSED"]
    assert not a.peers.send(Channel.CONTROL, NODES["b"], b"hello")
    assert not a.peers.hears(NODES["b"])
    assert a.peers.hears(NODES["c"])


def test_a_process_has_just_ended_for_two_seconds_or_until_it_is_back() -> None:
    stage = together()
    a = stage.nodes["a"]
    seen = [a.peers.just_ended()]

    stage.world.nodes["b"].kill()
    stage.run(10)
    seen.append(a.peers.just_ended())
    stage.run(2_000)
    seen.append(a.peers.just_ended())
    stage.world.nodes["b"].start()
    stage.run(100)
    stage.world.nodes["b"].kill()
    stage.run(10)
    seen.append(a.peers.just_ended())
    stage.world.nodes["b"].start()
    stage.run(100)
    seen.append(a.peers.just_ended())

    assert seen == [(), (NODES["b"],), (), (NODES["b"],), ()]


def test_a_process_that_is_linked_to_us_has_not_ended_though_its_port_refuses() -> None:
    stage = together()
    a, b = stage.nodes["a"], NODES["b"]

    a.peers.keep("test", {b: Address("b", PORT + 1)})
    stage.run(1_000)

    assert a.notes[-1] == "lost 2 REFUSED"
    assert a.peers.hears(b)
    assert a.peers.just_ended() == ()


def test_a_node_that_nobody_hears_of_has_not_ended_for_sure() -> None:
    stage = together()
    a = stage.nodes["a"]
    seen: dict[tuple[NodeId, ...], None] = {}

    stage.world.nodes["b"].cut_power()
    for _ in range(1_000):
        stage.run(10)
        seen[a.peers.just_ended()] = None

    assert any(note.startswith("lost 2") for note in a.notes)
    assert list(seen) == [()]


def test_a_node_that_comes_back_is_reached_by_everybody_soon() -> None:
    stage = together()
    stage.world.nodes["b"].kill()
    stage.run(60_000)
    a = stage.nodes["a"]
    a.notes.clear()

    stage.world.nodes["b"].start()
    # Less than the pause between two attempts by now: it is the other's call that says so.
    stage.run(20)

    assert "reached 2" in a.notes
    assert a.peers.send(Channel.CONTROL, NODES["b"], b"hello")


def test_an_attempt_that_hangs_is_given_up_when_the_other_side_calls() -> None:
    stage = Stage()
    stage.world.network.cut("a", "b")
    stage.world.start_all()
    stage.run(1_500)
    a = stage.nodes["a"]

    stage.world.network.heal("a", "b")
    stage.world.nodes["b"].kill()
    stage.world.nodes["b"].start()
    stage.run(300)

    assert "reached 2" in a.notes


def test_the_union_of_all_purposes_is_dialled() -> None:
    stage = Stage(kept={})
    stage.world.start_all()
    a = stage.nodes["a"]
    stage.run(100)

    a.peers.keep("raft", {NODES["b"]: EVERYWHERE[NODES["b"]]})
    a.peers.keep("records", EVERYWHERE)
    stage.run(100)
    a.peers.keep("records", {})
    stage.run(100)

    assert a.peers.send(Channel.CONTROL, NODES["b"], b"hello")
    assert not a.peers.send(Channel.CONTROL, NODES["c"], b"hello")


def test_a_node_that_moved_is_dialled_at_its_new_address() -> None:
    stage = Stage(kept={})
    stage.world.start_all()
    a = stage.nodes["a"]
    stage.run(100)
    a.peers.keep("raft", {NODES["b"]: Address("b", PORT + 1)})
    stage.run(1_000)

    a.peers.keep("raft", {NODES["b"]: Address("b", PORT)})
    stage.run(20)

    assert a.peers.send(Channel.CONTROL, NODES["b"], b"hello")


def test_another_node_at_the_address_is_turned_away() -> None:
    stage = Stage(kept={})
    stage.world.start_all()
    a = stage.nodes["a"]
    stage.run(100)

    a.peers.keep("raft", {NODES["b"]: Address("c", PORT)})
    stage.run(30)

    assert a.notes[:2] == ["3 instead of 2", "lost 2 OURS"]
    assert not a.peers.send(Channel.CONTROL, NODES["b"], b"hello")


def test_nodes_of_other_clusters_are_turned_away_once_we_have_joined() -> None:
    stage = Stage(kept={})
    stage.world.start_all()
    a, b, c = stage.nodes["a"], stage.nodes["b"], stage.nodes["c"]
    stage.run(100)
    c.peers.join_cluster(UUID(int=9))
    c.peers.keep("raft", {NODES["a"]: EVERYWHERE[NODES["a"]]})
    stage.run(100)
    known = a.peers.hears(NODES["c"])

    a.peers.join_cluster(UUID(int=8))
    b.peers.join_cluster(UUID(int=8))
    b.peers.keep("raft", {NODES["a"]: EVERYWHERE[NODES["a"]]})
    c.notes.clear()
    stage.run(1_000)

    assert known
    assert not a.peers.hears(NODES["c"])
    assert "lost 1 REJECTED" in c.notes
    assert a.peers.hears(NODES["b"])


def test_what_does_not_fit_is_turned_away_and_told_when_there_is_room() -> None:
    stage = together()
    a, b = stage.nodes["a"], stage.nodes["b"]
    a.notes.clear()

    taken = 0
    while a.peers.send(Channel.CONTROL, NODES["b"], bytes(100_000)):
        taken += 1
    stage.run(500)

    assert a.notes == ["room for CONTROL to 2"]
    assert len(b.heard) == taken


def test_a_closed_peer_manager_is_not_called_any_more() -> None:
    stage = together()
    a = stage.nodes["a"]
    a.notes.clear()

    a.peers.close()
    stage.world.nodes["b"].kill()
    stage.world.run(2 * SECOND)

    assert a.notes == []
    assert a.heard == []
    assert not stage.nodes["c"].peers.hears(NODES["a"])
