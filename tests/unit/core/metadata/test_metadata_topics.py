"""Creating, growing and deleting topics."""

from uuid import UUID

import pytest

from penstock.core.metadata import (
    OFFSETS_TOPIC,
    ConfigResource,
    ConfigResourceType,
    ControllerConfig,
    CreatedPartitions,
    CreatedTopic,
    CreatePartitions,
    CreateTopic,
    DeletedTopic,
    DeleteTopic,
    FenceBroker,
    MetadataMachine,
    ReplicaAssignment,
    Reply,
)
from penstock.core.metadata.commands import Command
from penstock.core.model import ApiError, ErrorKind, Instant, NodeId, PartitionIndex, TopicId, TopicName
from tests.unit.core.metadata.clusters import cluster, partition_of, perform

NOW = Instant(0)


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number))


def hands(*rows: tuple[int, ...]) -> tuple[ReplicaAssignment, ...]:
    return tuple(ReplicaAssignment(PartitionIndex(n), tuple(map(NodeId, row))) for n, row in enumerate(rows))


def refusal(machine: MetadataMachine, command: Command) -> ErrorKind:
    decision = machine.decide(command, NOW)
    assert decision.facts == ()
    assert isinstance(decision.reply, ApiError), decision.reply
    return decision.reply.kind


def test_a_topic_without_numbers_gets_the_default_partitions_and_replicas() -> None:
    machine = cluster(brokers=1)

    reply = perform(machine, CreateTopic("orders", topic_id(1)))

    assert reply == CreatedTopic(TopicName("orders"), topic_id(1), 6, 1)
    topic = machine.image.topic("orders")
    assert topic is machine.image.topic_by_id(topic_id(1))
    assert topic is not None
    assert [p.index for p in topic.partitions] == list(range(6))
    assert {(p.leader, p.isr, p.leader_epoch) for p in topic.partitions} == {(1, (1,), 0)}


@pytest.mark.parametrize(("brokers", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_automatic_replication_is_three_or_as_many_brokers_as_there_are(brokers: int, expected: int) -> None:
    machine = cluster(brokers=brokers)

    reply = perform(machine, CreateTopic("orders", topic_id(1)))

    assert isinstance(reply, CreatedTopic)
    assert reply.replication_factor == expected


def test_settings_of_the_node_change_the_defaults() -> None:
    around = ControllerConfig({"num.partitions": "4", "default.replication.factor": "2"})
    machine = cluster(brokers=3, around=around)

    reply = perform(machine, CreateTopic("orders", topic_id(1)))

    assert isinstance(reply, CreatedTopic)
    assert (reply.partitions, reply.replication_factor) == (4, 2)


def test_leaders_are_dealt_out_in_turn_across_topics() -> None:
    machine = cluster(brokers=3)

    for number in range(6):
        perform(machine, CreateTopic(f"t{number}", topic_id(number + 1), partitions=1, replication_factor=2))

    placed = [partition_of(machine, f"t{number}") for number in range(6)]
    assert [p.leader for p in placed] == [1, 2, 3, 1, 2, 3]
    assert all(len(frozenset(p.replicas)) == 2 for p in placed)
    # The second round has other followers than the first.
    assert placed[0].replicas != placed[3].replicas


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "ä", "a/b", "a\n", "a:b", "topic,x"])
def test_names_that_kafka_refuses_are_refused(name: str) -> None:
    assert refusal(cluster(), CreateTopic(name, topic_id(1))) is ErrorKind.INVALID_TOPIC_NAME


@pytest.mark.parametrize("name", ["a" * 249, "...", "A-Z_0.9", "-", "_"])
def test_names_that_kafka_allows_are_allowed(name: str) -> None:
    assert isinstance(perform(cluster(), CreateTopic(name, topic_id(1))), CreatedTopic)


def test_a_name_that_differs_in_dots_and_underscores_only_is_refused_until_the_other_is_gone() -> None:
    machine = cluster()
    perform(machine, CreateTopic("a.b_c", topic_id(1)))

    assert refusal(machine, CreateTopic("a_b.c", topic_id(2))) is ErrorKind.INVALID_TOPIC_NAME
    assert refusal(machine, CreateTopic("a.b_c", topic_id(2))) is ErrorKind.TOPIC_EXISTS

    perform(machine, DeleteTopic("a.b_c"))
    assert isinstance(perform(machine, CreateTopic("a_b.c", topic_id(2))), CreatedTopic)


def test_the_name_of_kafkas_metadata_is_reserved() -> None:
    assert refusal(cluster(), CreateTopic("__cluster_metadata", topic_id(1))) is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (CreateTopic("t", topic_id(1), partitions=0), ErrorKind.INVALID_PARTITIONS),
        (CreateTopic("t", topic_id(1), partitions=-2), ErrorKind.INVALID_PARTITIONS),
        (CreateTopic("t", topic_id(1), partitions=2**31 - 1), ErrorKind.INVALID_PARTITIONS),
        (CreateTopic("t", topic_id(1), replication_factor=0), ErrorKind.INVALID_REPLICATION_FACTOR),
        (CreateTopic("t", topic_id(1), replication_factor=4), ErrorKind.INVALID_REPLICATION_FACTOR),
        (CreateTopic("t", topic_id(1), partitions=1, assignments=hands((1,))), ErrorKind.INVALID_REQUEST),
        (
            CreateTopic("t", topic_id(1), replication_factor=1, assignments=hands((1,))),
            ErrorKind.INVALID_REQUEST,
        ),
        (CreateTopic("t", topic_id(1), assignments=hands((1, 9))), ErrorKind.INVALID_ASSIGNMENT),
        (CreateTopic("t", topic_id(1), assignments=hands((1, 1))), ErrorKind.INVALID_ASSIGNMENT),
        (CreateTopic("t", topic_id(1), assignments=hands((1, 2), (3,))), ErrorKind.INVALID_ASSIGNMENT),
        (CreateTopic("t", topic_id(1), assignments=hands(())), ErrorKind.INVALID_ASSIGNMENT),
        (CreateTopic("t", topic_id(1), assignments=hands((1,), (2,))[1:]), ErrorKind.INVALID_ASSIGNMENT),
        (CreateTopic("t", topic_id(1), assignments=hands((1,)) * 2), ErrorKind.INVALID_ASSIGNMENT),
        (CreateTopic("t", topic_id(1), configs=(("no.such.key", "1"),)), ErrorKind.INVALID_CONFIG),
        (CreateTopic("t", topic_id(1), configs=(("retention.ms", "soon"),)), ErrorKind.INVALID_CONFIG),
        (CreateTopic("t", topic_id(1), configs=(("retention.ms", None),)), ErrorKind.INVALID_CONFIG),
    ],
)
def test_topics_that_cannot_be_are_refused(command: CreateTopic, kind: ErrorKind) -> None:
    assert refusal(cluster(brokers=3), command) is kind


def test_replicas_placed_by_hand_stay_where_they_were_put() -> None:
    machine = cluster(brokers=3)

    reply = perform(machine, CreateTopic("t", topic_id(1), assignments=hands((3, 1), (2, 3))))

    assert reply == CreatedTopic(TopicName("t"), topic_id(1), 2, 2)
    topic = machine.image.topic("t")
    assert topic is not None
    assert [(p.replicas, p.leader) for p in topic.partitions] == [((3, 1), 3), ((2, 3), 2)]


def test_without_a_live_broker_no_topic_can_be_created() -> None:
    machine = cluster(brokers=1)
    broker = machine.image.each_broker()[0]
    perform(machine, FenceBroker(broker.node_id, broker.epoch))

    assert refusal(machine, CreateTopic("t", topic_id(1))) is ErrorKind.INVALID_REPLICATION_FACTOR
    assert (
        refusal(machine, CreateTopic("t", topic_id(1), assignments=hands((1,))))
        is ErrorKind.INVALID_ASSIGNMENT
    )


def test_a_fenced_broker_gets_replicas_only_when_it_is_needed_and_is_not_in_sync() -> None:
    machine = cluster(brokers=3)
    broker = machine.image.each_broker()[0]
    perform(machine, FenceBroker(broker.node_id, broker.epoch))

    perform(machine, CreateTopic("two", topic_id(1), partitions=4, replication_factor=2))
    perform(machine, CreateTopic("three", topic_id(2), partitions=4, replication_factor=3))

    two, three = machine.image.topic("two"), machine.image.topic("three")
    assert two is not None
    assert three is not None
    assert all(1 not in p.replicas for p in two.partitions)
    assert all(p.replicas[2] == 1 and sorted(p.isr) == [2, 3] for p in three.partitions)


def test_validation_answers_like_creation_and_leaves_nothing_behind() -> None:
    machine = cluster()

    decision = machine.decide(CreateTopic("t", topic_id(1), partitions=2, validate_only=True), NOW)

    assert decision.facts == ()
    assert decision.reply == CreatedTopic(TopicName("t"), topic_id(1), 2, 1)


def test_limits_bound_what_one_command_and_all_of_them_can_make() -> None:
    around = ControllerConfig({"create.partitions.max": "5"}, partitions_max=8)
    machine = cluster(around=around)

    assert refusal(machine, CreateTopic("a", topic_id(1), partitions=6)) is ErrorKind.INVALID_PARTITIONS
    perform(machine, CreateTopic("a", topic_id(1), partitions=5))
    assert refusal(machine, CreateTopic("b", topic_id(2), partitions=4)) is ErrorKind.INVALID_PARTITIONS
    assert refusal(machine, CreatePartitions("a", 9)) is ErrorKind.INVALID_PARTITIONS
    assert isinstance(perform(machine, CreatePartitions("a", 8)), CreatedPartitions)


def test_topics_have_as_many_partitions_as_brokers_create_by_default_whatever_clients_may_ask_for() -> None:
    machine = cluster(around=ControllerConfig({"create.partitions.max": "2", "num.partitions": "3"}))

    reply = perform(machine, CreateTopic("a", topic_id(1)))

    assert isinstance(reply, CreatedTopic)
    assert reply.partitions == 3


def test_a_broker_gets_no_more_partitions_than_it_may_have() -> None:
    machine = cluster(around=ControllerConfig({"max.broker.partitions": "5"}))
    perform(machine, CreateTopic("a", topic_id(1), partitions=3))

    decision = machine.decide(CreateTopic("b", topic_id(2), partitions=3), NOW)

    expected = "broker 1 would have 6 replicas: max.broker.partitions is 5"
    assert decision.reply == ApiError(ErrorKind.INVALID_PARTITIONS, expected)
    assert refusal(machine, CreatePartitions("a", 6)) is ErrorKind.INVALID_PARTITIONS
    assert isinstance(perform(machine, CreatePartitions("a", 5)), CreatedPartitions)
    perform(machine, DeleteTopic("a"))
    assert isinstance(perform(machine, CreateTopic("b", topic_id(2), partitions=5)), CreatedTopic)


def test_internal_topics_are_created_however_many_partitions_there_are() -> None:
    static = {"max.broker.partitions": "2", "create.partitions.max": "1"}
    machine = cluster(around=ControllerConfig(static))

    reply = perform(machine, CreateTopic("__consumer_offsets", topic_id(1), partitions=3))

    assert isinstance(reply, CreatedTopic)


def test_partitions_that_are_created_together_make_the_image_that_they_make_one_by_one() -> None:
    machine = cluster()
    decisions = [machine.decide(CreateTopic("t", topic_id(1), partitions=200), NOW)]
    machine.replay(decisions[0].facts)
    decisions.append(machine.decide(CreatePartitions("t", 300), NOW))
    facts = [fact for decision in decisions for fact in decision.facts]
    # One that is there already changes nothing.
    facts.insert(100, facts[50])

    one_by_one, together = cluster(), cluster()
    for fact in facts:
        one_by_one.apply(fact)
    together.replay(facts)

    assert together.image == one_by_one.image
    assert together.image.partition_count == 300


def test_a_deleted_topic_takes_its_configuration_along() -> None:
    machine = cluster()
    perform(machine, CreateTopic("t", topic_id(1), configs=(("retention.ms", "1000"),)))
    assert machine.image.config(ConfigResourceType.TOPIC, "t") == {"retention.ms": "1000"}

    reply = perform(machine, DeleteTopic(topic_id=topic_id(1)))

    assert reply == DeletedTopic(TopicName("t"), topic_id(1))
    perform(machine, CreateTopic("t", topic_id(2)))
    assert machine.image.config(ConfigResourceType.TOPIC, "t") == {}
    assert machine.image.topic_id("t") == topic_id(2)
    assert ConfigResource(ConfigResourceType.TOPIC, "t") not in machine.image.configs


def test_topics_that_the_cluster_keeps_state_in_are_not_deleted() -> None:
    machine = cluster()
    perform(machine, CreateTopic("__delayed", topic_id(1)))

    assert refusal(machine, DeleteTopic("__delayed")) is ErrorKind.INVALID_TOPIC_NAME
    assert refusal(machine, DeleteTopic(topic_id=topic_id(1))) is ErrorKind.INVALID_TOPIC_NAME
    assert machine.image.topic("__delayed") is not None


def test_deleting_what_is_not_there_is_refused() -> None:
    machine = cluster()

    assert refusal(machine, DeleteTopic("t")) is ErrorKind.UNKNOWN_TOPIC
    assert refusal(machine, DeleteTopic(topic_id=topic_id(7))) is ErrorKind.UNKNOWN_TOPIC_ID
    assert refusal(machine, DeleteTopic()) is ErrorKind.INVALID_REQUEST
    assert refusal(machine, DeleteTopic("t", topic_id(7))) is ErrorKind.INVALID_REQUEST


def test_deletion_can_be_switched_off() -> None:
    machine = cluster(around=ControllerConfig({"delete.topic.enable": "false"}))
    perform(machine, CreateTopic("t", topic_id(1)))

    assert refusal(machine, DeleteTopic("t")) is ErrorKind.TOPIC_DELETION_DISABLED


def test_a_topic_grows_and_keeps_its_first_partitions() -> None:
    machine = cluster(brokers=3)
    perform(machine, CreateTopic("t", topic_id(1), partitions=2, replication_factor=2))
    before = machine.image.topic("t")

    reply = perform(machine, CreatePartitions("t", 5))

    after = machine.image.topic("t")
    assert reply == CreatedPartitions(TopicName("t"), 5)
    assert before is not None
    assert after is not None
    assert list(after.partitions)[:2] == list(before.partitions)
    assert [len(p.replicas) for p in after.partitions] == [2] * 5
    assert len(before.partitions) == 2


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (CreatePartitions("none", 3), ErrorKind.UNKNOWN_TOPIC),
        (CreatePartitions("t", 2), ErrorKind.INVALID_PARTITIONS),
        (CreatePartitions("t", 1), ErrorKind.INVALID_PARTITIONS),
        (CreatePartitions("t", 0), ErrorKind.INVALID_PARTITIONS),
        (CreatePartitions("t", 4, assignments=((NodeId(1), NodeId(2)),)), ErrorKind.INVALID_ASSIGNMENT),
        (CreatePartitions("t", 3, assignments=((NodeId(1),),)), ErrorKind.INVALID_ASSIGNMENT),
        (CreatePartitions("t", 3, assignments=((NodeId(1), NodeId(9)),)), ErrorKind.INVALID_ASSIGNMENT),
        (CreatePartitions(OFFSETS_TOPIC, 60), ErrorKind.INVALID_PARTITIONS),
    ],
)
def test_growth_that_cannot_be_is_refused(command: CreatePartitions, kind: ErrorKind) -> None:
    machine = cluster(brokers=3)
    perform(machine, CreateTopic("t", topic_id(1), partitions=2, replication_factor=2))
    perform(machine, CreateTopic(OFFSETS_TOPIC, topic_id(2), partitions=50))

    assert refusal(machine, command) is kind


def test_new_partitions_can_be_placed_by_hand() -> None:
    machine = cluster(brokers=3)
    perform(machine, CreateTopic("t", topic_id(1), partitions=1, replication_factor=2))

    perform(machine, CreatePartitions("t", 2, assignments=((NodeId(3), NodeId(2)),)))

    partition = machine.image.partition("t", 1)
    assert partition is not None
    assert (partition.replicas, partition.leader) == ((3, 2), 3)


def test_internal_topics_are_known_by_their_name() -> None:
    machine = cluster()
    perform(machine, CreateTopic(OFFSETS_TOPIC, topic_id(1), partitions=50))
    perform(machine, CreateTopic("__mine", topic_id(2)))

    flags = {topic.name: topic.internal for topic in machine.image.each_topic()}
    assert flags == {OFFSETS_TOPIC: True, "__mine": False}


def test_topics_are_listed_in_the_order_of_names_whatever_the_order_of_creation() -> None:
    one, other = cluster(), cluster()
    names = [f"t{number}" for number in range(40)]

    def reply(machine: MetadataMachine, name: str) -> Reply:
        return perform(machine, CreateTopic(name, topic_id(names.index(name) + 1), partitions=1))

    assert all(isinstance(reply(one, name), CreatedTopic) for name in names)
    assert all(isinstance(reply(other, name), CreatedTopic) for name in reversed(names))

    assert one.image.topic_names() == sorted(names) == other.image.topic_names()
    assert one.image.topics.keys() == other.image.topics.keys()
