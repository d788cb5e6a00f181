"""A setting is refused with its key, value and range, or works; and whatever is stored can be corrected."""

from uuid import UUID

import pytest

from penstock.broker.replication.options import ReplicationOptions
from penstock.core.metadata import (
    AlterConfigs,
    Command,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    ConfigSet,
    CreateTopic,
    IncrementalAlterConfigs,
    MetadataMachine,
    Ok,
    ReplicaAssignment,
    broker_setting,
    describe_configs,
    options_of,
)
from penstock.core.metadata.configs import CleanupPolicy, ConfigDefinition, NumberRange, definitions
from penstock.core.metadata.configs.topic import MESSAGE_BYTES_MAX
from penstock.core.metadata.topic_names import DELAYED_TOPIC, OFFSETS_TOPIC, QUEUES_TOPIC, TRANSACTIONS_TOPIC
from penstock.core.model import ApiError, ErrorKind, NodeId, PartitionIndex, TopicId
from penstock.runtime.peer_link import PeerOptions
from tests.unit.core.metadata.clusters import cluster, perform

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
GROUP = ConfigResource(ConfigResourceType.GROUP, "g")
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
EVERY_BROKER = ConfigResource(ConfigResourceType.BROKER, "")
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
NUMBERS = [
    (resource, definition)
    for resource in (TOPIC, GROUP, EVERY_BROKER)
    for definition in definitions(resource.kind).values()
    if definition.range is not None and definition.fixed is None
]


@pytest.fixture
def machine() -> MetadataMachine:
    machine = cluster(1)
    create(machine, "t", 1)
    return machine


def create(machine: MetadataMachine, name: str, number: int, **configs: str) -> object:
    placed = ReplicaAssignment(PartitionIndex(0), (NodeId(1),))
    values = tuple((key.replace("_", "."), value) for key, value in configs.items())
    command = CreateTopic(name, TopicId(UUID(int=number)), assignments=(placed,), configs=values)
    return perform(machine, command)


def change(resource: ConfigResource, *changes: tuple[ConfigOperation, str, str | None]) -> Command:
    return IncrementalAlterConfigs(resource, tuple(ConfigChange(*one) for one in changes))


def store(machine: MetadataMachine, resource: ConfigResource, key: str, value: str) -> None:
    """Have a value in the metadata that nobody has checked."""
    machine.replay((ConfigSet(resource.kind, resource.name, key, value),))


def refusal(machine: MetadataMachine, command: Command) -> str:
    reply = perform(machine, command)
    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.INVALID_CONFIG, reply
    assert reply.detail is not None
    return reply.detail


def named(value: object) -> str:
    if isinstance(value, ConfigDefinition):
        return value.name
    return value.kind.name if isinstance(value, ConfigResource) else str(value)


@pytest.mark.parametrize(("resource", "definition"), NUMBERS, ids=named)
def test_a_number_out_of_range_is_refused_with_key_value_and_range(
    resource: ConfigResource, definition: ConfigDefinition
) -> None:
    bounds = definition.range
    assert isinstance(bounds, NumberRange)
    for value in (bounds.lowest - 1, bounds.highest + 1):
        if value == bounds.special:
            continue
        complaint = definition.problem(str(value))

        assert complaint is not None
        for part in (definition.name, str(value), str(bounds.lowest), str(bounds.highest)):
            assert part in complaint


@pytest.mark.parametrize(("resource", "definition"), NUMBERS, ids=named)
def test_the_nearest_number_to_any_is_one_that_is_allowed(
    resource: ConfigResource, definition: ConfigDefinition
) -> None:
    for text in ("-9" + "0" * 30, "-1", "0", "1", "9" + "0" * 30):
        used = definition.nearest(text)

        assert definition.problem(str(used)) is None
        assert used == definition.nearest(str(used))


def test_a_value_that_is_longer_than_any_meaning_is_refused(machine: MetadataMachine) -> None:
    assert "32767" in refusal(machine, change(TOPIC, (SET, "cleanup.policy", "delete," * 5_000)))


@pytest.mark.parametrize(
    "text", ["nan", "inf", "-inf", "1_0", "1e1000", "0x1p-2", "\N{ARABIC-INDIC DIGIT FIVE}", "", " "]
)
def test_a_ratio_is_a_plain_number(machine: MetadataMachine, text: str) -> None:
    assert "min.cleanable.dirty.ratio" in refusal(
        machine, change(TOPIC, (SET, "min.cleanable.dirty.ratio", text))
    )


POISON = [
    (TOPIC, "index.interval.bytes", "0"),
    (TOPIC, "retention.ms", "for ever"),
    (TOPIC, "cleanup.policy", "shred"),
    (TOPIC, "no.such.key", "1"),
    (GROUP, "consumer.session.timeout.ms", "-1"),
    (GROUP, "share.delivery.count.limit", "many"),
    (EVERY_BROKER, "log.segment.bytes", "0"),
    (EVERY_BROKER, "num.partitions", "0"),
    (EVERY_BROKER, "broker.drained", "true"),
    (EVERY_BROKER, "no.such.key", "1"),
    (BROKER, "log.retention.hours", "x"),
    (BROKER, "min.insync.replicas", "0"),
]
HARMLESS = {
    ConfigResourceType.TOPIC: "flush.ms",
    ConfigResourceType.GROUP: "queue.start",
    ConfigResourceType.BROKER: "log.flush.interval.ms",
}


@pytest.mark.parametrize(("resource", "key", "value"), POISON, ids=named)
def test_what_is_stored_can_be_removed_whatever_it_is(
    machine: MetadataMachine, resource: ConfigResource, key: str, value: str
) -> None:
    store(machine, resource, key, value)

    assert perform(machine, change(resource, (DELETE, key, None))) == Ok()
    assert machine.image.config(*resource) == {}
    store(machine, resource, key, value)
    assert perform(machine, AlterConfigs(resource, ())) == Ok()
    assert machine.image.config(*resource) == {}


@pytest.mark.parametrize(("resource", "key", "value"), POISON, ids=named)
def test_one_wrong_value_does_not_keep_others_from_being_changed(
    machine: MetadataMachine, resource: ConfigResource, key: str, value: str
) -> None:
    store(machine, resource, key, value)
    other = HARMLESS[resource.kind]

    good = "latest" if other == "queue.start" else "5000"
    assert perform(machine, change(resource, (SET, other, good))) == Ok()
    assert perform(machine, change(resource, (DELETE, other, None))) == Ok()


@pytest.mark.parametrize(("resource", "key", "value"), POISON, ids=named)
def test_whatever_is_stored_can_be_described(
    machine: MetadataMachine, resource: ConfigResource, key: str, value: str
) -> None:
    store(machine, resource, key, value)

    rows = {row.name: row for row in describe_configs(machine.image, resource, 1)}

    assert key not in rows or rows[key].value == value
    assert describe_configs(machine.image, TOPIC, 1)


def test_settings_of_all_brokers_that_contradict_each_other_are_refused(machine: MetadataMachine) -> None:
    least, most = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    perform(machine, change(EVERY_BROKER, (SET, most, "100")))

    assert most in refusal(machine, change(EVERY_BROKER, (SET, least, "101")))
    assert most in refusal(machine, change(BROKER, (SET, least, "101")))
    assert perform(machine, change(EVERY_BROKER, (SET, least, "100"))) == Ok()


def test_a_setting_of_brokers_may_contradict_one_of_a_topic_which_can_be_changed_nevertheless(
    machine: MetadataMachine,
) -> None:
    perform(machine, change(TOPIC, (SET, "min.compaction.lag.ms", "1000")))
    perform(machine, change(EVERY_BROKER, (SET, "log.cleaner.max.compaction.lag.ms", "10")))

    assert options_of(machine.image, "t", 1).max_compaction_lag_ms == 1000
    assert perform(machine, change(TOPIC, (SET, "flush.ms", "7"))) == Ok()
    assert "max.compaction.lag.ms (10)" in refusal(
        machine, change(TOPIC, (SET, "min.compaction.lag.ms", "2000"))
    )
    assert perform(machine, change(TOPIC, (DELETE, "min.compaction.lag.ms", None))) == Ok()


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"share.session.timeout.ms": "999"}, "between the brokers' bounds, 1000 and 60000"),
        ({"share.heartbeat.interval.ms": "15001"}, "between the brokers' bounds, 100 and 15000"),
        ({"share.record.lock.duration.ms": "3600001"}, "between the brokers' bounds, 1000 and 3600000"),
        ({"share.record.lock.duration.ms": "43200001"}, "between 1 and 43200000"),
        ({"share.delivery.count.limit": "101"}, "between 1 and 100"),
        ({"share.session.timeout.ms": "5000", "share.heartbeat.interval.ms": "5000"}, "must be below"),
        ({"queue.backoff.ms": "60001"}, "must not be above queue.backoff.max.ms"),
    ],
)
def test_a_group_is_refused_what_its_members_could_not_use(
    machine: MetadataMachine, values: dict[str, str], complaint: str
) -> None:
    changes = [(SET, key, value) for key, value in values.items()]

    assert complaint in refusal(machine, change(GROUP, *changes))


REQUIRED = [
    (OFFSETS_TOPIC, "cleanup.policy", "delete"),
    (TRANSACTIONS_TOPIC, "cleanup.policy", "compact,delete"),
    (QUEUES_TOPIC, "cleanup.policy", "compact"),
    (QUEUES_TOPIC, "retention.ms", "1000"),
    (DELAYED_TOPIC, "retention.bytes", "0"),
    (OFFSETS_TOPIC, "compression.type", "zstd"),
    (OFFSETS_TOPIC, "max.message.bytes", "1000"),
    (DELAYED_TOPIC, "max.message.bytes", str(1 << 20)),
]


@pytest.mark.parametrize(("topic", "key", "value"), REQUIRED)
def test_an_internal_topic_is_refused_what_would_lose_its_state(
    machine: MetadataMachine, topic: str, key: str, value: str
) -> None:
    refused = create(machine, topic, 2, **{key.replace(".", "_"): value})
    assert isinstance(refused, ApiError)
    assert refused.kind is ErrorKind.INVALID_CONFIG
    create(machine, topic, 2)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)

    assert topic in refusal(machine, change(resource, (SET, key, value)))
    assert perform(machine, change(resource, (SET, "segment.bytes", "1048576"))) == Ok()


def test_what_an_internal_topic_needs_is_not_removed(machine: MetadataMachine) -> None:
    create(machine, QUEUES_TOPIC, 2)
    resource = ConfigResource(ConfigResourceType.TOPIC, QUEUES_TOPIC)

    assert "retention.ms" in refusal(machine, change(resource, (DELETE, "retention.ms", None)))
    assert "retention.ms" in refusal(machine, AlterConfigs(resource, (("cleanup.policy", "delete"),)))
    assert perform(machine, change(resource, (DELETE, "cleanup.policy", None))) == Ok()


@pytest.mark.parametrize(("topic", "key", "value"), REQUIRED)
def test_what_is_stored_of_an_internal_topic_does_not_count_where_it_would_lose_its_state(
    machine: MetadataMachine, topic: str, key: str, value: str
) -> None:
    create(machine, topic, 2)
    expected = options_of(machine.image, topic, 1)
    store(machine, ConfigResource(ConfigResourceType.TOPIC, topic), key, value)
    store(machine, EVERY_BROKER, "log.retention.ms", "1")
    store(machine, EVERY_BROKER, "message.max.bytes", "100")

    found = options_of(machine.image, topic, 1)

    assert found.cleanup is expected.cleanup
    assert found.max_message_bytes >= 1 << 20
    assert found.compression is None
    assert found.cleanup is CleanupPolicy.COMPACT or (found.retention_ms, found.retention_bytes) == (-1, -1)


@pytest.mark.parametrize("topic", [OFFSETS_TOPIC, QUEUES_TOPIC])
def test_an_internal_topic_is_used_also_with_what_cannot_be_read(
    machine: MetadataMachine, topic: str
) -> None:
    create(machine, topic, 2)
    expected = options_of(machine.image, topic, 1)
    for key in ("flush.ms", "cleanup.policy", "retention.ms"):
        store(machine, ConfigResource(ConfigResourceType.TOPIC, topic), key, "nonsense")

    found = options_of(machine.image, topic, 1)

    assert found.cleanup is expected.cleanup
    assert found.flush_ms == expected.flush_ms


def test_the_largest_batch_fits_into_a_peer_frame_with_what_else_is_sent() -> None:
    others = ReplicationOptions().answer_bytes_max
    rows = 10_000 * 200

    assert MESSAGE_BYTES_MAX + others + rows < 64 << 20 <= PeerOptions().frame_bytes_max


def test_a_number_of_a_broker_out_of_range_counts_as_the_nearest(machine: MetadataMachine) -> None:
    store(machine, EVERY_BROKER, "leader.replication.throttled.rate", "0")
    store(machine, EVERY_BROKER, "message.max.bytes", str(2**31 - 1))

    assert broker_setting(machine.image, "leader.replication.throttled.rate", NodeId(1)) == 1
    assert broker_setting(machine.image, "message.max.bytes", NodeId(1)) == MESSAGE_BYTES_MAX


@pytest.mark.parametrize("value", ["-5", "0", "many", ""])
def test_limits_of_partitions_that_make_no_sense_leave_one_partition_or_the_default(
    machine: MetadataMachine, value: str
) -> None:
    for key, default in (("create.partitions.max", 2_000), ("max.broker.partitions", 20_000)):
        store(machine, EVERY_BROKER, key, value)

        expected = 1 if value in ("-5", "0") else default
        assert broker_setting(machine.image, key) == expected
