"""Commands work on every node, and a reply is never ahead of what its node has seen."""

from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.broker.cluster.command_forwarding import COMMANDS_PER_TURN, CommandForwarder
from penstock.broker.cluster.peers import PeerManager
from penstock.broker.cluster.rpc import PeerRpc
from penstock.core.metadata import Command, CreatedTopic, CreateTopic, DeletedTopic, DeleteTopic, Ok, Reply
from penstock.core.model import ApiError, ErrorKind, NodeId, Offset, TopicId
from penstock.runtime import Address
from penstock.sim import NetworkFaults
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime
from tests.unit.broker.cluster.cluster_stage import cluster_of


def creation(number: int) -> CreateTopic:
    return CreateTopic(f"topic-{number}", TopicId(UUID(int=1000 + number)), partitions=2)


@pytest.mark.parametrize("name", ["n1", "n2", "n3"])
def test_a_command_is_decided_wherever_it_is_asked_for(name: str) -> None:
    stage = cluster_of(3)

    reply = stage.submit(name, creation(1))
    stage.until(lambda: all(stage.image(each).topic("topic-1") is not None for each in stage.options))

    assert isinstance(reply, CreatedTopic)


def test_the_node_that_asked_has_seen_what_it_is_told() -> None:
    stage = cluster_of(3)
    follower = stage.followers()[0]
    seen: list[bool] = []

    def told(reply: Reply) -> None:
        name = reply.name if isinstance(reply, CreatedTopic) else ""
        seen.append(stage.image(follower).topic(name) is not None)

    for number in range(50):
        stage.member(follower).controller.submit(creation(number), told)
    stage.until(lambda: len(seen) == 50)

    assert all(seen)


def test_commands_of_one_node_are_decided_in_their_order() -> None:
    stage = cluster_of(3)
    follower = stage.followers()[0]
    replies: list[Reply] = []
    controller = stage.member(follower).controller

    for number in range(10):
        controller.submit(creation(number), replies.append)
        controller.submit(DeleteTopic(f"topic-{number}"), replies.append)
    stage.until(lambda: len(replies) == 20)

    kinds = [type(reply) for reply in replies]
    assert kinds == [CreatedTopic, DeletedTopic] * 10


def test_a_refusal_comes_back_as_it_was_decided() -> None:
    stage = cluster_of(3)
    follower = stage.followers()[0]

    reply = stage.submit(follower, DeleteTopic("nothing"))

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.UNKNOWN_TOPIC


def test_a_command_waits_for_somebody_to_lead() -> None:
    stage = cluster_of(3)
    old = stage.leader()
    follower = stage.followers()[0]
    stage.world.nodes[old].cut_power()
    stage.run_ms(100)

    # The power went: nothing refuses, and patience ends only after a while.
    reply = stage.submit(follower, creation(1))

    assert isinstance(reply, CreatedTopic | ApiError)
    if isinstance(reply, ApiError):
        assert reply.kind is ErrorKind.NOT_CONTROLLER


def test_without_a_majority_a_command_is_refused_after_a_while() -> None:
    stage = cluster_of(3)
    leader, follower = stage.leader(), stage.followers()[0]
    third = next(name for name in stage.options if name not in (leader, follower))
    for name in (leader, third):
        stage.world.nodes[name].kill()

    reply = stage.submit(follower, creation(1))

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.NOT_CONTROLLER


def test_a_command_whose_leader_ends_is_refused_at_once() -> None:
    stage = cluster_of(3)
    leader, follower = stage.leader(), stage.followers()[0]
    replies: list[Reply] = []
    stage.member(follower).controller.submit(creation(1), replies.append)

    stage.world.nodes[leader].kill()
    stage.run_ms(50)

    assert len(replies) == 1
    if isinstance(replies[0], ApiError):
        assert replies[0].kind is ErrorKind.NOT_CONTROLLER


def test_a_command_whose_leader_stands_still_is_refused_as_soon_as_another_leads() -> None:
    stage = cluster_of(3)
    leader, follower = stage.leader(), stage.followers()[0]
    replies: list[Reply] = []
    stage.world.nodes[leader].pause()
    stage.member(follower).controller.submit(creation(1), replies.append)

    others = [name for name in stage.options if name != leader]
    stage.until(lambda: any(stage.member(name).controller.is_leading for name in others))
    stage.run_ms(200)

    # Long before the request times out.
    assert len(replies) == 1
    assert isinstance(replies[0], ApiError)
    assert replies[0].kind is ErrorKind.NOT_CONTROLLER


@pytest.mark.parametrize("seed", range(8))
def test_every_command_is_answered_once_and_what_was_acknowledged_stays(seed: int) -> None:
    stage = cluster_of(3, seed)
    luck, nodes = stage.world.random("commands"), stage.world.nodes
    stage.world.network.network_faults = NetworkFaults(loss=0.02, duplicate=0.1, reorder=0.2)
    asked: dict[int, tuple[str, int]] = {}
    replies: dict[int, list[Reply]] = {}

    for number in range(60):
        name = luck.choice(list(stage.options))
        asked[number], replies[number] = (name, nodes[name].incarnations), []
        stage.member(name).controller.submit(creation(number), replies[number].append)
        if number % 20 == 10:
            victim = nodes[luck.choice(list(stage.options))]
            victim.kill()
            stage.run_ms(luck.randint(1, 200))
            victim.start()
        stage.run_ms(luck.randint(1, 60))
    stage.world.network.network_faults = NetworkFaults()
    stage.run_ms(10_000)

    # Whoever asked a node that died then gets no reply.
    survived = [number for number, (name, life) in asked.items() if nodes[name].incarnations == life]
    assert [len(replies[number]) for number in survived] == [1] * len(survived)
    created = [n for n, told in replies.items() if any(isinstance(reply, CreatedTopic) for reply in told)]
    assert len(created) > 20
    for name in stage.options:
        assert [n for n in created if stage.image(name).topic(f"topic-{n}") is None] == []
    assert stage.world.failures == []


def test_a_fresh_read_sees_what_another_node_was_told() -> None:
    stage = cluster_of(3)
    asker, reader = stage.followers()
    stage.world.network.cut(stage.leader(), reader)
    assert isinstance(stage.submit(asker, creation(1)), CreatedTopic)
    stage.run_ms(100)
    behind = stage.image(reader).topic("topic-1")
    stage.world.network.heal(stage.leader(), reader)

    caught_up: list[bool] = []
    stage.member(reader).catch_up(lambda: caught_up.append(stage.image(reader).topic("topic-1") is not None))
    stage.until(lambda: bool(caught_up))

    assert behind is None
    assert caught_up == [True]


class Decider:
    """The controller of a node; it notes in which turn it decides what."""

    def __init__(self, timers: HandTimers) -> None:
        self.is_leading = False
        self.turns: dict[int, list[str]] = {}
        self.turn = 0
        self._timers = timers

    def decide(self, command: Command, done: Callable[[Reply, Offset], None]) -> None:
        assert isinstance(command, CreateTopic)
        self.turns.setdefault(self.turn, []).append(command.name)
        self._timers.soon(lambda: done(Ok(), Offset(0)))

    def reply_when_committed(self, end: Offset, reply: Reply, done: Callable[[Reply], None]) -> None:
        raise AssertionError("nothing is decided elsewhere")


def test_a_node_that_begins_to_lead_decides_what_waits_in_several_turns_and_in_order() -> None:
    timers = HandTimers()
    runtime = hand_runtime(timers, HandSyncs())
    rpc = PeerRpc(runtime, PeerManager(runtime, NodeId(1), Address("here", 1)))
    forwarder, decider = CommandForwarder(runtime, rpc, NodeId(1)), Decider(timers)
    forwarder.serve(decider)
    replies: list[Reply] = []
    commands = 3 * COMMANDS_PER_TURN + 1
    for number in range(commands):
        forwarder.submit(creation(number), replies.append)

    decider.is_leading = True
    forwarder.leader_changed(NodeId(1))
    forwarder.submit(creation(commands), replies.append)
    decider.turn += 1
    while timers.step():
        decider.turn += 1

    assert max(map(len, decider.turns.values())) == COMMANDS_PER_TURN
    decided = [name for names in decider.turns.values() for name in names]
    assert decided == [f"topic-{number}" for number in range(commands + 1)]
    assert len(replies) == commands + 1
