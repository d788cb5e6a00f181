"""A request gets one reply or a failure, whatever happens to frames."""

from penstock.broker.cluster.peers import Peer, PeerManager
from penstock.broker.cluster.rpc import PeerRpc, ReadIndexReply, RequestReadIndex, Respond, RpcReply
from penstock.core.model import MILLISECOND, NodeId, Offset
from penstock.runtime import Address, Callback, Runtime
from penstock.sim import NetworkFaults, World
from penstock.storage.disk import Disk

A, B = NodeId(1), NodeId(2)
ADDRESSES = {A: Address("a", 7000), B: Address("b", 7000)}


class Desk:
    """A node that replies with how many requests it has had; not at all while it is mute."""

    def __init__(self, runtime: Runtime, node: NodeId) -> None:
        self.peers = PeerManager(runtime, node, ADDRESSES[node])
        self.desk = PeerRpc(runtime, self.peers)
        self.desk.serve(RequestReadIndex, self._asked)
        self.questions = 0
        self.is_mute = False
        self.answers: list[RpcReply | None] = []
        self.peers.open()
        self.peers.keep("test", ADDRESSES)

    def _asked(self, _peer: Peer, _question: RequestReadIndex, respond: Respond) -> None:
        self.questions += 1
        if not self.is_mute:
            respond(ReadIndexReply(Offset(self.questions)))

    def ask(self, node: NodeId, timeout_ms: int = 500) -> bool:
        return self.desk.call(node, RequestReadIndex(), timeout_ms, self.answers.append)

    def stop(self, done: Callback) -> None:
        self.peers.close()
        done()


class Stage:
    """Two nodes that know each other."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.desks: dict[str, Desk] = {}
        for name, node in (("a", A), ("b", B)):
            self._add(name, node)
        self.world.start_all()
        self.run(1_000)

    def _add(self, name: str, node: NodeId) -> None:
        def program(runtime: Runtime, _: Disk) -> Desk:
            self.desks[name] = Desk(runtime, node)
            return self.desks[name]

        self.world.add(name, program)

    def run(self, duration_ms: int) -> None:
        self.world.run(duration_ms * MILLISECOND)


def test_a_question_is_answered() -> None:
    stage = Stage()
    a = stage.desks["a"]

    assert a.ask(B)
    stage.run(100)

    assert a.answers == [ReadIndexReply(Offset(1))]


def test_a_question_to_nobody_is_not_taken() -> None:
    stage = Stage()
    stage.world.nodes["b"].kill()
    stage.run(100)
    a = stage.desks["a"]

    assert not a.ask(B)
    stage.run(1_000)

    assert a.answers == []


def test_silence_is_told_when_time_is_up() -> None:
    stage = Stage()
    a, b = stage.desks["a"], stage.desks["b"]
    b.is_mute = True

    a.ask(B, timeout_ms=300)
    stage.run(290)
    early = list(a.answers)
    stage.run(20)

    assert (early, a.answers) == ([], [None])


def test_the_end_of_a_link_is_told_at_once() -> None:
    stage = Stage()
    a, b = stage.desks["a"], stage.desks["b"]
    b.is_mute = True

    a.ask(B, timeout_ms=60_000)
    stage.run(50)
    stage.world.nodes["b"].kill()
    stage.run(50)

    assert a.answers == [None]


def test_a_question_that_arrives_twice_is_answered_once() -> None:
    stage = Stage(seed=3)
    a, b = stage.desks["a"], stage.desks["b"]
    stage.world.network.network_faults = NetworkFaults(duplicate=1.0)

    for _ in range(50):
        a.ask(B)
    stage.run(1_000)

    assert b.questions == 50
    assert len(a.answers) == 50


def test_every_question_is_settled_exactly_once_on_a_bad_network() -> None:
    for seed in range(20):
        stage = Stage(seed)
        a = stage.desks["a"]
        stage.world.network.network_faults = NetworkFaults(loss=0.2, duplicate=0.3, reorder=0.4)

        asked = sum(a.ask(B) for _ in range(100))
        stage.run(2_000)

        assert len(a.answers) == asked
        assert None in a.answers


def test_a_response_to_another_incarnation_is_not_taken_for_ours() -> None:
    stage = Stage()
    b = stage.desks["b"]
    b.is_mute = True
    stage.desks["a"].ask(B, timeout_ms=5_000)
    stage.run(50)

    stage.world.nodes["a"].kill()
    stage.world.nodes["a"].start()
    stage.run(500)
    b.is_mute = False
    again = stage.desks["a"]
    again.ask(B)
    stage.run(100)

    assert b.questions == 2
    assert again.answers == [ReadIndexReply(Offset(2))]
