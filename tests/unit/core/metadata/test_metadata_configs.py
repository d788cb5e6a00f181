"""Changing configuration, and which value counts."""

from uuid import UUID

import pytest

from penstock.core.metadata import (
    ALL_BROKERS,
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    CreateTopic,
    IncrementalAlterConfigs,
    MetadataMachine,
    Ok,
    broker_setting,
    describe_configs,
    options_of,
)
from penstock.core.metadata.commands import Command
from penstock.core.metadata.configs import (
    CleanupPolicy,
    ConfigSource,
    DescribedConfig,
    LayerValue,
    TimestampType,
)
from penstock.core.metadata.effective_configs import topic_value
from penstock.core.model import ApiError, ErrorKind, Instant, TopicId
from penstock.core.records import CompressionType
from tests.unit.core.metadata.clusters import cluster, perform

TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")
GROUP = ConfigResource(ConfigResourceType.GROUP, "readers")
METRICS = ConfigResource(ConfigResourceType.CLIENT_METRICS, "m")
EVERY_BROKER = ConfigResource(ConfigResourceType.BROKER, ALL_BROKERS)
BROKER = ConfigResource(ConfigResourceType.BROKER, "1")
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


@pytest.fixture
def machine() -> MetadataMachine:
    machine = cluster(brokers=3)
    perform(machine, CreateTopic("t", TopicId(UUID(int=1)), partitions=1, replication_factor=1))
    return machine


def change(resource: ConfigResource, *changes: tuple[ConfigOperation, str, str | None]) -> Command:
    return IncrementalAlterConfigs(resource, tuple(ConfigChange(*each) for each in changes))


def kind_of(machine: MetadataMachine, command: Command) -> ErrorKind:
    reply = perform(machine, command)
    assert isinstance(reply, ApiError), reply
    return reply.kind


def detail(machine: MetadataMachine, command: Command) -> str:
    reply = perform(machine, command)
    assert isinstance(reply, ApiError), reply
    return reply.detail


def describe(machine: MetadataMachine, key: str, **static: str) -> DescribedConfig:
    settings = {name.replace("_", "."): value for name, value in static.items()}
    (described,) = describe_configs(machine.image, TOPIC, 1, settings, (key,))
    return described


def test_single_keys_change_and_the_others_stay(machine: MetadataMachine) -> None:
    perform(machine, change(TOPIC, (SET, "retention.ms", "1000"), (SET, "segment.bytes", "2000")))
    perform(machine, change(TOPIC, (DELETE, "retention.ms", None), (SET, "flush.ms", "5")))

    assert machine.image.config(*TOPIC) == {"flush.ms": "5", "segment.bytes": "2000"}


def test_a_full_replacement_resets_what_it_does_not_name(machine: MetadataMachine) -> None:
    perform(machine, change(TOPIC, (SET, "retention.ms", "1000"), (SET, "segment.bytes", "2000")))

    perform(machine, AlterConfigs(TOPIC, (("segment.bytes", "3000"),)))

    assert machine.image.config(*TOPIC) == {"segment.bytes": "3000"}
    perform(machine, AlterConfigs(TOPIC, ()))
    assert TOPIC not in machine.image.configs


def test_lists_can_be_added_to_and_taken_from_starting_at_the_default(machine: MetadataMachine) -> None:
    perform(machine, change(TOPIC, (APPEND, "cleanup.policy", "compact,delete")))
    assert machine.image.config(*TOPIC) == {"cleanup.policy": "delete,compact"}

    perform(machine, change(TOPIC, (SUBTRACT, "cleanup.policy", "delete")))

    assert machine.image.config(*TOPIC) == {"cleanup.policy": "compact"}


def test_setting_what_is_set_already_makes_no_facts(machine: MetadataMachine) -> None:
    command = change(TOPIC, (SET, "retention.ms", "1000"))
    perform(machine, command)

    decision = machine.decide(command, Instant(0))

    assert (decision.facts, decision.reply) == ((), Ok())


def test_validation_alone_changes_nothing(machine: MetadataMachine) -> None:
    good = AlterConfigs(TOPIC, (("retention.ms", "5"),), validate_only=True)
    bad = AlterConfigs(TOPIC, (("retention.ms", "x"),), validate_only=True)

    assert perform(machine, good) == Ok()
    assert kind_of(machine, bad) is ErrorKind.INVALID_CONFIG
    assert machine.image.config(*TOPIC) == {}


def test_an_unknown_key_is_named_in_the_refusal(machine: MetadataMachine) -> None:
    for resource in (TOPIC, GROUP, EVERY_BROKER):
        for command in (change(resource, (SET, "no.such", "1")), AlterConfigs(resource, (("no.such", "1"),))):
            assert kind_of(machine, command) is ErrorKind.INVALID_CONFIG
            assert "no.such" in detail(machine, command)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "1.5"),
        ("retention.ms", "1_000"),
        ("retention.ms", "٣"),
        ("retention.ms", ""),
        ("retention.ms", str(2**63)),
        ("retention.ms", "9" * 5_000),
        ("segment.bytes", str(2**31)),
        ("segment.bytes", "511"),
        ("index.interval.bytes", "0"),
        ("segment.index.bytes", "63"),
        ("max.message.bytes", "99"),
        ("max.message.bytes", str((16 << 20) + 1)),
        ("flush.messages", "0"),
        ("cleanup.policy", "remove"),
        ("compression.type", "brotli"),
        ("compression.lz4.level", "18"),
        ("compression.gzip.level", "0"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("preallocate", "yes"),
        ("penstock.validation", "full"),
        ("follower.replication.throttled.replicas", "1-2"),
        ("remote.storage.enable", "true"),
        ("max.compaction.lag.ms", "0"),
    ],
)
def test_values_that_a_key_cannot_have_are_refused_with_its_name(
    machine: MetadataMachine, key: str, value: str
) -> None:
    command = change(TOPIC, (SET, key, value))

    assert kind_of(machine, command) is ErrorKind.INVALID_CONFIG
    assert key in detail(machine, command)
    assert len(detail(machine, command)) < 300


def test_values_that_contradict_each_other_are_refused(machine: MetadataMachine) -> None:
    perform(machine, change(TOPIC, (SET, "max.compaction.lag.ms", "100")))

    assert kind_of(machine, change(TOPIC, (SET, "min.compaction.lag.ms", "101"))) is ErrorKind.INVALID_CONFIG
    assert perform(machine, change(TOPIC, (SET, "min.compaction.lag.ms", "100"))) == Ok()


def test_changes_that_make_no_sense_are_refused(machine: MetadataMachine) -> None:
    assert kind_of(machine, change(TOPIC, (SET, "retention.ms", None))) is ErrorKind.INVALID_REQUEST
    assert kind_of(machine, change(TOPIC, (APPEND, "retention.ms", "1"))) is ErrorKind.INVALID_CONFIG
    twice = change(TOPIC, (SET, "retention.ms", "1"), (DELETE, "retention.ms", None))
    assert kind_of(machine, twice) is ErrorKind.INVALID_REQUEST
    assert (
        kind_of(machine, AlterConfigs(TOPIC, (("flush.ms", "1"), ("flush.ms", "2"))))
        is ErrorKind.INVALID_REQUEST
    )


def test_only_things_that_exist_can_be_configured(machine: MetadataMachine) -> None:
    def of(kind: ConfigResourceType, name: str) -> ErrorKind:
        return kind_of(machine, AlterConfigs(ConfigResource(kind, name), ()))

    assert of(ConfigResourceType.TOPIC, "none") is ErrorKind.UNKNOWN_TOPIC
    assert of(ConfigResourceType.TOPIC, "a b") is ErrorKind.INVALID_TOPIC_NAME
    assert of(ConfigResourceType.TOPIC, "") is ErrorKind.INVALID_REQUEST
    assert of(ConfigResourceType.BROKER, "9") is ErrorKind.UNKNOWN_BROKER
    assert of(ConfigResourceType.BROKER, "one") is ErrorKind.INVALID_REQUEST
    assert of(ConfigResourceType.BROKER, "01") is ErrorKind.INVALID_REQUEST
    assert of(ConfigResourceType.BROKER, "1" * 400) is ErrorKind.INVALID_REQUEST
    assert of(ConfigResourceType.GROUP, "") is ErrorKind.INVALID_REQUEST


def test_read_only_settings_of_brokers_cannot_be_changed(machine: MetadataMachine) -> None:
    assert kind_of(machine, change(BROKER, (SET, "num.partitions", "3"))) is ErrorKind.INVALID_REQUEST
    assert (
        kind_of(machine, change(EVERY_BROKER, (SET, "ssl.client.auth", "none"))) is ErrorKind.INVALID_REQUEST
    )
    assert kind_of(machine, change(BROKER, (SET, "min.insync.replicas", "2"))) is ErrorKind.INVALID_REQUEST
    assert perform(machine, change(BROKER, (SET, "message.max.bytes", "2000"))) == Ok()
    assert broker_setting(machine.image, "message.max.bytes", 1) == 2000
    assert broker_setting(machine.image, "message.max.bytes", 2) == 1048588


def test_the_nearest_layer_counts_and_all_of_them_are_told(machine: MetadataMachine) -> None:
    perform(machine, change(EVERY_BROKER, (SET, "log.retention.ms", "300")))
    perform(machine, change(BROKER, (SET, "log.retention.ms", "200")))
    perform(machine, change(TOPIC, (SET, "retention.ms", "100")))

    described = describe(machine, "retention.ms", log_retention_hours="2")

    assert (described.value, described.source, described.is_default) == ("100", ConfigSource.TOPIC, False)
    assert described.synonyms == (
        LayerValue("retention.ms", "100", ConfigSource.TOPIC),
        LayerValue("log.retention.ms", "200", ConfigSource.BROKER),
        LayerValue("log.retention.ms", "300", ConfigSource.ALL_BROKERS),
        LayerValue("log.retention.hours", "2", ConfigSource.STATIC),
        LayerValue("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_synonyms_in_other_units_are_translated(machine: MetadataMachine) -> None:
    def value(**static: str) -> str | None:
        return describe(machine, "retention.ms", **static).value

    assert value() == "604800000"
    assert value(log_retention_hours="2") == "7200000"
    assert value(log_retention_hours="2", log_retention_minutes="3") == "180000"
    assert value(log_retention_hours="2", log_retention_ms="4") == "4"
    assert value(log_retention_hours="-1") == "-1"


def test_a_default_says_so(machine: MetadataMachine) -> None:
    described = describe(machine, "compression.type")

    assert (described.value, described.source, described.is_default) == (
        "producer",
        ConfigSource.DEFAULT,
        True,
    )
    assert not described.read_only
    assert described.documentation.endswith(".")


def test_secrets_of_brokers_are_not_told(machine: MetadataMachine) -> None:
    static = {"ssl.key.password": "hunter2"}

    (described,) = describe_configs(machine.image, BROKER, 1, static, ("ssl.key.password",))

    assert described.sensitive
    assert described.read_only
    assert described.value is None
    assert "hunter2" not in repr(described)


def test_every_key_of_every_kind_can_be_described(machine: MetadataMachine) -> None:
    for resource in (TOPIC, GROUP, BROKER, EVERY_BROKER, METRICS):
        described = describe_configs(machine.image, resource, 1)

        names = [config.name for config in described]
        assert names == sorted(frozenset(names))
        assert all(config.documentation for config in described)


def test_topic_options_follow_the_configuration(machine: MetadataMachine) -> None:
    values = {
        "cleanup.policy": "compact, delete",
        "compression.type": "zstd",
        "message.timestamp.type": "LogAppendTime",
        "penstock.validation": "deep",
        "max.message.bytes": "123",
        "compression.zstd.level": "19",
        "segment.jitter.ms": "5",
        "file.delete.delay.ms": "6",
        "message.timestamp.after.max.ms": "7",
    }
    perform(machine, AlterConfigs(TOPIC, tuple(values.items())))

    options = options_of(machine.image, "t", 1, {"log.segment.bytes": "4096"})

    assert options.cleanup == CleanupPolicy.COMPACT | CleanupPolicy.DELETE
    assert options.compacted
    assert options.compression is CompressionType.ZSTD
    assert options.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert options.deep_validation
    assert (options.max_message_bytes, options.segment_bytes) == (123, 4096)
    assert options.compression_level == 19
    assert (options.segment_jitter_ms, options.file_delete_delay_ms) == (5, 6)
    assert options.timestamp_after_max_ms == 7


def test_topic_options_have_defaults_for_everything(machine: MetadataMachine) -> None:
    options = options_of(machine.image, "t", 1)

    assert options.cleanup is CleanupPolicy.DELETE
    assert options.compression is None
    assert not options.deep_validation
    assert options.retention_ms == 7 * 24 * 3_600_000


@pytest.mark.parametrize(("replicas", "minimum"), [(1, 1), (2, 1), (3, 2)])
def test_three_replicas_need_two_in_sync_unless_somebody_says_otherwise(
    machine: MetadataMachine, replicas: int, minimum: int
) -> None:
    perform(machine, CreateTopic("r", TopicId(UUID(int=2)), partitions=1, replication_factor=replicas))

    topic = machine.image.topic("r")
    assert topic is not None
    assert topic_value(machine.image, topic, "min.insync.replicas") == minimum
    assert topic_value(machine.image, topic, "min.insync.replicas", {"min.insync.replicas": "3"}) == 3


@pytest.mark.parametrize(
    ("resource", "key", "default", "other", "reason"),
    [
        (TOPIC, "preallocate", "false", "true", "files grow as they are written"),
        (TOPIC, "local.retention.ms", "-2", "1000", "no remote storage"),
        (TOPIC, "leader.replication.throttled.replicas", "", "*", "every replica"),
        (EVERY_BROKER, "log.preallocate", "false", "true", "files grow as they are written"),
        (GROUP, "share.isolation.level", "read_committed", "read_uncommitted", "committed"),
    ],
)
def test_what_does_not_exist_cannot_be_chosen_and_the_refusal_says_why(
    machine: MetadataMachine, resource: ConfigResource, key: str, default: str, other: str, reason: str
) -> None:
    command = change(resource, (SET, key, other))

    assert perform(machine, change(resource, (SET, key, default))) == Ok()
    assert kind_of(machine, command) is ErrorKind.INVALID_CONFIG
    assert key in detail(machine, command)
    assert reason in detail(machine, command)


@pytest.mark.parametrize(
    ("codec", "level", "expected"),
    [
        ("gzip", None, None),
        ("gzip", "9", 9),
        ("lz4", None, None),
        ("lz4", "12", 12),
        ("zstd", "22", 22),
        ("snappy", None, None),
        ("producer", None, None),
    ],
)
def test_the_level_is_that_of_the_topics_codec(
    machine: MetadataMachine, codec: str, level: str | None, expected: int | None
) -> None:
    levels = () if level is None else ((f"compression.{codec}.level", level),)
    perform(machine, AlterConfigs(TOPIC, (("compression.type", codec), *levels)))

    assert options_of(machine.image, "t", 1).compression_level == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("consumer.session.timeout.ms", "999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.heartbeat.interval.ms", "99"),
        ("consumer.heartbeat.interval.ms", "15001"),
    ],
)
def test_a_group_keeps_to_the_bounds_of_the_brokers(machine: MetadataMachine, key: str, value: str) -> None:
    assert kind_of(machine, change(GROUP, (SET, key, value))) is ErrorKind.INVALID_CONFIG
    assert key in detail(machine, change(GROUP, (SET, key, value)))


def test_the_session_of_a_group_outlives_its_heartbeat(machine: MetadataMachine) -> None:
    both = (SET, "consumer.session.timeout.ms", "5000"), (SET, "consumer.heartbeat.interval.ms", "5000")

    assert kind_of(machine, change(GROUP, *both)) is ErrorKind.INVALID_CONFIG
    assert perform(machine, change(GROUP, both[0], (SET, "consumer.heartbeat.interval.ms", "4999"))) == Ok()
