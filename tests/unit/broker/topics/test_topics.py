"""Topics and producer ids on a whole node without listeners, in virtual time."""

from collections.abc import Callable
from uuid import UUID

import pytest

from penstock.broker.configs import ConfigChanges, ConfigValues
from penstock.broker.topics import NewPartitions, NewTopic
from penstock.core.metadata import (
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    CreatedPartitions,
    CreatedTopic,
    DeletedTopic,
    Ok,
)
from penstock.core.metadata.configs import ConfigSource
from penstock.core.model import MILLISECOND, SECOND, ApiError, ErrorKind, NodeId, ProducerId
from penstock.node import ListenerOptions, NodeOptions, NodeServices, NodeStorage
from penstock.runtime import Address, Callback, Runtime, Service
from penstock.server.kafka.backend import Backend
from penstock.sim import World
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk, FailureRule

STATIC = {"num.partitions": "4", "offsets.topic.num.partitions": "7"}


class Stage:
    """One node in a world of its own."""

    def __init__(self, static: dict[str, str] | None = None) -> None:
        self.world = World(5)
        self.options = NodeOptions(
            "data", NodeId(1), (ListenerOptions(Address("node", 9092)),), static=static or STATIC
        )
        self.backend: Backend
        self.node = self.world.add("node", self._program)
        self.start()

    def _program(self, runtime: Runtime, disk: Disk) -> Service:
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, UUID(int=4)))
        self.backstage = NodeServices(runtime, storage, self.options, ())
        self.backstage.start(self._ready)
        return self

    def _ready(self, backend: Backend) -> None:
        self.backend = backend

    def stop(self, done: Callback) -> None:
        self.backstage.close()
        done()

    def start(self) -> None:
        self.node.start()
        self.run()

    def run(self, duration_ns: int = 5 * SECOND) -> None:
        self.world.run(duration_ns)
        assert self.world.failures == []

    def ask(self, question: Callable[[Callable[[object], None]], None]) -> object:
        answers: list[object] = []
        question(answers.append)
        assert answers == [], "no answer comes inside the call"
        self.run()
        assert len(answers) == 1
        return answers[0]

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[CreatedTopic | ApiError]:
        answer = self.ask(lambda done: self.backend.topics.create(topics, done, validate_only=validate_only))
        assert isinstance(answer, list)
        return answer


@pytest.fixture
def stage() -> Stage:
    return Stage()


def kinds(answer: object) -> list[ErrorKind | None]:
    assert isinstance(answer, list)
    return [item.kind if isinstance(item, ApiError) else None for item in answer]


def test_a_created_topic_has_its_logs_when_the_answer_comes(stage: Stage) -> None:
    present: list[bool] = []

    def done(_: object) -> None:
        present.extend(stage.backend.partitions.find("orders", index) is not None for index in range(4))

    stage.backend.topics.create([NewTopic("orders")], done)
    stage.run()

    assert present == [True] * 4


def test_topics_of_one_request_are_answered_each_on_its_own_and_in_order(stage: Stage) -> None:
    answer = stage.create(NewTopic("good", 1), NewTopic("bad name!"), NewTopic("also-good", 2))

    assert kinds(answer) == [None, ErrorKind.INVALID_TOPIC_NAME, None]
    assert [topic.partitions for topic in answer if isinstance(topic, CreatedTopic)] == [1, 2]


def test_a_topic_that_is_named_twice_in_a_request_is_not_created(stage: Stage) -> None:
    answer = stage.create(NewTopic("orders"), NewTopic("others"), NewTopic("orders"))

    assert kinds(answer) == [ErrorKind.INVALID_REQUEST, None, ErrorKind.INVALID_REQUEST]
    assert stage.backend.controller.image.topic_names() == ["others"]


def test_an_empty_request_has_an_empty_answer(stage: Stage) -> None:
    assert stage.create() == []


def test_validation_creates_nothing(stage: Stage) -> None:
    answer = stage.create(NewTopic("orders", 3), validate_only=True)

    assert kinds(answer) == [None]
    assert stage.backend.controller.image.topic_names() == []


def test_a_decision_that_takes_too_long_times_out(stage: Stage) -> None:
    stage.node.pace.slowness = 10_000
    answers: list[object] = []

    stage.backend.topics.create([NewTopic("orders")], answers.append, timeout_ms=20)
    stage.run(30 * MILLISECOND)

    assert [kinds(answer) for answer in answers] == [[ErrorKind.TIMED_OUT]]


def test_a_topic_whose_logs_take_too_long_is_created_all_the_same(stage: Stage) -> None:
    stage.node.pace.work_min_ns = stage.node.pace.work_max_ns = 20 * SECOND
    answers: list[object] = []

    stage.backend.topics.create([NewTopic("orders")], answers.append, timeout_ms=500)
    stage.run(SECOND)

    assert [kinds(answer) for answer in answers] == [[None]]
    assert stage.backend.partitions.find("orders", 0) is None


def test_a_log_that_could_not_be_made_is_made_when_the_disk_has_recovered(stage: Stage) -> None:
    stage.node.fail_disk(FailureRule("make_directory", errno=28, path_ends="orders/1", times=2))
    stage.backend.topics.create([NewTopic("orders", 2)], lambda _: None)
    stage.run(500 * MILLISECOND)
    before = stage.backend.partitions.find("orders", 1)

    stage.run()

    assert before is None
    assert stage.backend.partitions.find("orders", 1) is not None


def test_a_deleted_topic_is_gone_by_name_and_by_id(stage: Stage) -> None:
    _, second = stage.create(NewTopic("first"), NewTopic("second"))
    assert isinstance(second, CreatedTopic)

    answer = stage.ask(lambda done: stage.backend.topics.delete(["first", second.id, "third"], done))

    assert isinstance(answer, list)
    assert [type(item) for item in answer] == [DeletedTopic, DeletedTopic, ApiError]
    assert len(stage.backend.partitions) == 0


def test_a_topic_grows_and_its_new_logs_are_there(stage: Stage) -> None:
    stage.create(NewTopic("orders", 1))

    answer = stage.ask(
        lambda done: stage.backend.topics.add_partitions(
            [NewPartitions("orders", 3), NewPartitions("orders-2", 3)], done
        )
    )

    assert isinstance(answer, list)
    assert [type(item) for item in answer] == [CreatedPartitions, ApiError]
    assert stage.backend.partitions.find("orders", 2) is not None


def test_those_who_ask_for_a_topic_while_it_is_made_share_the_answer(stage: Stage) -> None:
    answers: list[object] = []

    for _ in range(3):
        stage.backend.topics.auto_create("orders", answers.append)
    stage.run()
    stage.backend.topics.auto_create("orders", answers.append)
    stage.run()

    assert [type(answer) for answer in answers] == [CreatedTopic] * 4
    assert len({answer.id for answer in answers if isinstance(answer, CreatedTopic)}) == 1


def test_topics_that_a_client_asks_for_are_created_at_a_rate_and_internal_ones_at_once() -> None:
    stage = Stage({**STATIC, "auto.create.topics.burst": "10", "auto.create.topics.per.second": "2"})
    outcomes: list[CreatedTopic | ApiError] = []

    for number in range(50):
        stage.backend.topics.auto_create(f"topic-{number}", outcomes.append, client="10.6.6.6")
    internal = stage.ask(lambda done: stage.backend.topics.auto_create(OFFSETS_TOPIC, done))

    refused = [outcome.kind for outcome in outcomes if isinstance(outcome, ApiError)]
    assert refused == [ErrorKind.TOPIC_CREATION_LIMITED] * 45
    assert isinstance(internal, CreatedTopic)
    stage.world.run(60 * SECOND)
    later = stage.ask(lambda done: stage.backend.topics.auto_create("topic-49", done, client="10.6.6.6"))
    assert isinstance(later, CreatedTopic)


def test_topics_are_not_made_on_demand_where_the_settings_forbid_it() -> None:
    stage = Stage({**STATIC, "auto.create.topics.enable": "false"})

    refused = stage.ask(lambda done: stage.backend.topics.auto_create("orders", done))
    internal = stage.ask(lambda done: stage.backend.topics.auto_create(OFFSETS_TOPIC, done))

    assert isinstance(refused, ApiError)
    assert refused.kind is ErrorKind.UNKNOWN_TOPIC
    assert isinstance(internal, CreatedTopic)


def test_the_offsets_topic_is_compacted_and_has_the_partitions_of_its_setting(stage: Stage) -> None:
    answer = stage.ask(lambda done: stage.backend.topics.auto_create(OFFSETS_TOPIC, done))

    assert isinstance(answer, CreatedTopic)
    assert answer.partitions == 7
    assert stage.backend.partitions.options(OFFSETS_TOPIC).compacted
    assert stage.backend.partitions.options(OFFSETS_TOPIC).segment_bytes == 100 << 20


def test_the_topic_of_queues_is_a_journal_that_nothing_is_deleted_from(stage: Stage) -> None:
    answer = stage.ask(lambda done: stage.backend.topics.auto_create(QUEUES_TOPIC, done))

    assert isinstance(answer, CreatedTopic)
    assert answer.partitions == 7
    options = stage.backend.partitions.options(QUEUES_TOPIC)
    assert (options.compacted, options.retention_ms, options.retention_bytes) == (False, -1, -1)


def test_a_changed_configuration_counts_when_the_answer_comes(stage: Stage) -> None:
    stage.create(NewTopic("orders", 1))
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")
    change = ConfigChange(ConfigOperation.SET, "max.message.bytes", "2048")

    answer = stage.ask(lambda done: stage.backend.configs.change([ConfigChanges(resource, (change,))], done))

    assert answer == [Ok()]
    assert stage.backend.partitions.options("orders").max_message_bytes == 2048


def test_replacing_a_configuration_returns_the_other_keys_to_their_defaults(stage: Stage) -> None:
    stage.create(NewTopic("orders", 1, configs=(("max.message.bytes", "2048"),)))
    resource = ConfigResource(ConfigResourceType.TOPIC, "orders")

    stage.ask(
        lambda done: stage.backend.configs.alter([ConfigValues(resource, (("retention.ms", "1000"),))], done)
    )

    options = stage.backend.partitions.options("orders")
    assert (options.retention_ms, options.max_message_bytes) == (1000, (1 << 20) + 12)


def test_a_brokers_settings_show_where_they_come_from(stage: Stage) -> None:
    described = stage.backend.configs.describe(
        ConfigResource(ConfigResourceType.BROKER, "1"), ("num.partitions",)
    )

    assert not isinstance(described, ApiError)
    assert [(config.value, config.source) for config in described] == [("4", ConfigSource.STATIC)]


@pytest.mark.parametrize(
    ("kind", "name", "error_kind"),
    [
        (ConfigResourceType.TOPIC, "nope", ErrorKind.UNKNOWN_TOPIC),
        (ConfigResourceType.BROKER, "2", ErrorKind.INVALID_REQUEST),
    ],
)
def test_what_is_not_here_cannot_be_described(
    stage: Stage, kind: ConfigResourceType, name: str, error_kind: ErrorKind
) -> None:
    refused = stage.backend.configs.describe(ConfigResource(kind, name))

    assert isinstance(refused, ApiError)
    assert refused.kind is error_kind


def test_producer_ids_follow_each_other_and_survive_the_end_of_a_block(stage: Stage) -> None:
    given: list[ProducerId | ApiError] = []

    for _ in range(2_500):
        stage.backend.producer_ids.next(given.append)
    stage.run()

    assert given == list(range(2_500))


def test_a_block_that_is_there_answers_at_once(stage: Stage) -> None:
    given: list[ProducerId | ApiError] = []
    stage.backend.producer_ids.next(given.append)
    stage.run()

    stage.backend.producer_ids.next(given.append)

    assert given == [0, 1]


def test_a_restarted_node_gives_out_other_producer_ids(stage: Stage) -> None:
    given: list[ProducerId | ApiError] = []
    stage.backend.producer_ids.next(given.append)
    stage.run()
    stage.node.cut_power()
    stage.start()

    stage.backend.producer_ids.next(given.append)
    stage.run()

    assert given == [0, 1_000]


def test_a_restart_gives_every_partition_a_new_leader_epoch_before_it_is_served(stage: Stage) -> None:
    stage.create(NewTopic("orders", 2))
    before = [partition.leader_epoch for partition in stage.backend.partitions.led()]
    stage.node.cut_power()

    stage.start()

    after = [partition.leader_epoch for partition in stage.backend.partitions.led()]
    image = stage.backend.controller.image
    assert all(new > old for new, old in zip(after, before, strict=True))
    assert [image.partition("orders", index).leader for index in range(2)] == [1, 1]  # type: ignore[union-attr]
