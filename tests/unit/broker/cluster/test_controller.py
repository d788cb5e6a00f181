"""The controller replies to nothing before it is committed, and batches what comes together."""

from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from penstock.broker.cluster import Controller, NotQuorumLeader, QuorumEvents
from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    BootstrapCluster,
    CreatedTopic,
    CreateTopic,
    Fact,
    MetadataImage,
    Ok,
    RegisterBroker,
    RegisteredBroker,
    Reply,
    UnfenceBroker,
)
from penstock.core.metadata.access import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from penstock.core.metadata.commands import CreateAcls, DeleteAcls, DeletedAcls
from penstock.core.model import ApiError, ErrorKind, LeaderEpoch, NodeId, Offset, TopicId
from penstock.runtime import Callback, Runtime, Service
from penstock.sim import World
from penstock.storage.disk import Disk, DiskFull


class HeldQuorum:
    """A quorum that commits when the test says so."""

    def __init__(self) -> None:
        self.leader_epoch: LeaderEpoch | None = None
        self.end = Offset(0)
        self.committed = Offset(0)
        self.appends: list[Sequence[Fact]] = []
        self.full = False
        self.refused: ApiError | None = None
        self._told = 0
        self.unconfirmed: list[Callable[[bool], None]] = []
        self._events: QuorumEvents

    def start(self, events: QuorumEvents) -> None:
        self._events = events
        events.restored(MetadataImage())

    def lead(self, epoch: int) -> None:
        self.leader_epoch = LeaderEpoch(epoch)
        self._events.leadership_gained(self.leader_epoch)

    def lose(self) -> None:
        self.leader_epoch = None
        self._events.leadership_lost()

    def propose(self, facts: Sequence[Fact], expected_epoch: LeaderEpoch) -> Offset | ApiError:
        if expected_epoch != self.leader_epoch:
            raise NotQuorumLeader("no")
        if self.full:
            raise DiskFull("append", "meta/metadata", 28)
        if self.refused is not None:
            return self.refused
        self.appends.append(facts)
        self.end = Offset(self.end + len(facts))
        return self.end

    def commit(self, appends: int | None = None) -> None:
        """Commit so many appends, or all."""
        told = len(self.appends) if appends is None else self._told + appends
        facts = [fact for append in self.appends[self._told : told] for fact in append]
        self._told = told
        self.committed = Offset(self.committed + len(facts))
        self._events.facts_committed(facts)

    def confirm(self, done: Callable[[bool], None]) -> None:
        self.unconfirmed.append(done)

    def close(self) -> None:
        """Nothing to close."""


class Idle:
    def stop(self, done: Callback) -> None:
        done()


class Stage:
    """A controller on a held quorum, in virtual time."""

    def __init__(self) -> None:
        self.world = World(1)
        self.quorum = HeldQuorum()
        self.responses: list[Reply] = []
        self.world.add("node", self._program).start()
        self.turn()

    def _program(self, runtime: Runtime, _disk: Disk) -> Service:
        self.controller = Controller(runtime, self.quorum)
        self.controller.start()
        self.quorum.lead(1)
        return Idle()

    def turn(self) -> None:
        self.world.run(1)
        assert self.world.failures == []

    def submit(self, *commands: CreateTopic | BootstrapCluster | RegisterBroker | UnfenceBroker) -> None:
        for command in commands:
            self.controller.submit(command, self.responses.append)

    def with_a_broker(self) -> "Stage":
        self.submit(BootstrapCluster("cluster"), REGISTER)
        self.turn()
        self.quorum.commit()
        assert isinstance(self.responses[-1], RegisteredBroker)
        self.submit(UnfenceBroker(NodeId(1), self.responses[-1].epoch))
        self.turn()
        self.quorum.commit()
        self.responses.clear()
        return self


REGISTER = RegisterBroker("cluster", NodeId(1), UUID(int=9), features=SUPPORTED_FEATURES)


def topic(name: str, number: int = 1, partitions: int = 1) -> CreateTopic:
    return CreateTopic(name, TopicId(UUID(int=number)), partitions, 1)


@pytest.fixture
def stage() -> Stage:
    return Stage().with_a_broker()


def test_a_reply_waits_until_what_it_decided_is_committed(stage: Stage) -> None:
    stage.submit(topic("orders"))
    stage.turn()

    assert stage.responses == []
    assert stage.controller.image.topic("orders") is None

    stage.quorum.commit()

    assert [type(reply) for reply in stage.responses] == [CreatedTopic]
    assert stage.controller.image.topic("orders") is not None


def test_a_refusal_waits_until_what_it_was_decided_on_is_committed(stage: Stage) -> None:
    stage.submit(topic("orders", 1))
    stage.turn()
    stage.submit(topic("orders", 2))
    stage.turn()

    assert stage.responses == []

    stage.quorum.commit()

    assert [getattr(reply, "kind", None) for reply in stage.responses] == [None, ErrorKind.TOPIC_EXISTS]


def test_a_refusal_on_committed_ground_comes_at_the_end_of_the_turn(stage: Stage) -> None:
    stage.submit(CreateTopic("bad name!", TopicId(UUID(int=1))))
    inside = list(stage.responses)
    stage.turn()

    assert inside == []
    assert [reply.kind for reply in stage.responses if isinstance(reply, ApiError)] == [
        ErrorKind.INVALID_TOPIC_NAME
    ]


def test_validation_alone_appends_nothing_and_waits_all_the_same(stage: Stage) -> None:
    stage.submit(topic("orders", 1))
    stage.submit(CreateTopic("others", TopicId(UUID(int=2)), 1, 1, validate_only=True))
    stage.turn()
    before = len(stage.responses)
    stage.quorum.commit()

    assert before == 0
    assert [type(reply) for reply in stage.responses] == [CreatedTopic, CreatedTopic]
    assert stage.controller.image.topic("others") is None


def test_commands_of_one_turn_share_one_append(stage: Stage) -> None:
    appends = len(stage.quorum.appends)

    stage.submit(*(topic(f"topic-{number}", number) for number in range(1, 6)))
    stage.turn()

    assert len(stage.quorum.appends) == appends + 1


def test_subscribers_are_notified_of_an_image_before_the_reply_that_depends_on_it(stage: Stage) -> None:
    heard: list[str] = []
    stage.controller.subscribe(lambda image: heard.append(f"image {len(image.topics)}"))
    stage.controller.submit(topic("orders"), lambda reply: heard.append(type(reply).__name__))
    stage.turn()

    stage.quorum.commit()

    assert heard == ["image 1", "CreatedTopic"]


def test_a_full_disk_refuses_the_turn_and_nothing_of_it_counts(stage: Stage) -> None:
    stage.quorum.full = True
    stage.submit(topic("orders", 1), topic("orders", 2))
    stage.turn()
    refusals = list(stage.responses)
    stage.quorum.full = False
    stage.submit(topic("orders", 3))
    stage.turn()
    stage.quorum.commit()

    assert [reply.kind for reply in refusals if isinstance(reply, ApiError)] == [ErrorKind.STORAGE_FAILED] * 2
    assert isinstance(stage.responses[-1], CreatedTopic)


def test_what_the_quorum_refuses_is_told_as_it_is_and_nothing_of_the_turn_counts(stage: Stage) -> None:
    stage.quorum.refused = ApiError(ErrorKind.QUORUM_BUSY, "leadership is being handed over")
    stage.submit(topic("orders", 1), topic("orders", 2))
    stage.turn()
    refusals = list(stage.responses)
    stage.quorum.refused = None
    stage.submit(topic("orders", 3))
    stage.turn()
    stage.quorum.commit()

    assert refusals == [ApiError(ErrorKind.QUORUM_BUSY, "leadership is being handed over")] * 2
    assert isinstance(stage.responses[-1], CreatedTopic)


def test_who_waits_when_leadership_is_lost_is_told_so(stage: Stage) -> None:
    stage.submit(topic("orders"))
    stage.turn()

    stage.quorum.lose()

    assert [reply.kind for reply in stage.responses if isinstance(reply, ApiError)] == [
        ErrorKind.NOT_CONTROLLER
    ]
    assert not stage.controller.is_leading


def test_a_node_that_does_not_lead_decides_nothing(stage: Stage) -> None:
    stage.quorum.lose()

    stage.submit(topic("orders"))
    stage.turn()

    assert [reply.kind for reply in stage.responses if isinstance(reply, ApiError)] == [
        ErrorKind.NOT_CONTROLLER
    ]


def test_a_new_leadership_decides_on_the_committed_image(stage: Stage) -> None:
    stage.submit(topic("lost"))
    stage.turn()
    stage.quorum.lose()
    stage.quorum.end = stage.quorum.committed
    stage.quorum.appends.pop()
    stage.quorum.lead(2)

    stage.submit(topic("lost", 2))
    stage.turn()
    stage.quorum.commit()

    assert isinstance(stage.responses[-1], CreatedTopic)
    assert stage.controller.image.topic_names() == ["lost"]


def test_forming_the_cluster_is_an_ordinary_command() -> None:
    stage = Stage()

    stage.submit(BootstrapCluster("cluster"))
    stage.turn()
    stage.quorum.commit()

    assert stage.responses == [Ok()]
    assert stage.controller.image.cluster_id == "cluster"


@pytest.mark.parametrize("is_leading", [True, False])
def test_that_there_is_no_such_rule_is_said_when_the_quorum_has_confirmed_the_leader(
    is_leading: bool,
) -> None:
    stage = Stage().with_a_broker()
    before = len(stage.responses)

    stage.controller.submit(DeleteAcls((AclFilter(principal="User:alice"),)), stage.responses.append)
    stage.turn()
    stage.quorum.commit()
    assert len(stage.responses) == before
    [confirmed] = stage.quorum.unconfirmed
    confirmed(is_leading)
    assert len(stage.responses) == before
    stage.turn()

    reply = stage.responses[before]
    if is_leading:
        assert reply == DeletedAcls(((),))
    else:
        assert isinstance(reply, ApiError)
        assert reply.kind is ErrorKind.NOT_CONTROLLER


def test_a_full_disk_refuses_what_was_decided_on_a_rule_of_the_same_turn(stage: Stage) -> None:
    stage.quorum.full = True
    rule = AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "orders",
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )

    for _ in range(2):
        # The second changes nothing, if the first counts.
        stage.controller.submit(CreateAcls((rule,)), stage.responses.append)
    stage.turn()
    for confirmed in stage.quorum.unconfirmed:
        confirmed(True)
    stage.turn()

    assert [reply.kind for reply in stage.responses if isinstance(reply, ApiError)] == [
        ErrorKind.STORAGE_FAILED
    ] * 2


def test_what_this_node_has_decided_is_applied_once(stage: Stage) -> None:
    stage.submit(topic("orders", 1))
    stage.turn()
    appended = stage.controller._appended
    stage.submit(topic("returns", 2))
    stage.turn()

    stage.quorum.commit(1)
    assert stage.controller.image is appended
    stage.quorum.commit()

    assert stage.controller.image is stage.controller._appended
    assert [each.name for each in stage.controller.image.each_topic()] == ["orders", "returns"]


def test_what_was_decided_before_this_node_led_again_is_applied_from_the_log(stage: Stage) -> None:
    stage.submit(topic("orders", 1))
    stage.turn()
    lost = stage.controller._appended
    stage.quorum.lose()

    stage.quorum.commit()

    assert stage.controller.image is not lost
    assert stage.controller.image == lost
