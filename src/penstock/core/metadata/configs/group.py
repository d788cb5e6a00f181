"""The configuration of groups, and of subscriptions to client metrics."""

from penstock.core.metadata.configs.checks import at_least, between, one_of, starting_point
from penstock.core.metadata.configs.definition import ConfigDefinition, ConfigType, Synonym, by_name

_MINUTE_MS = 60_000


def _ms(name: str, default: int, about: str, synonym: str) -> ConfigDefinition:
    return ConfigDefinition(
        name, ConfigType.INT, str(default), about, at_least(1), synonyms=(Synonym(synonym),)
    )


_GROUPS = (
    _ms(
        "consumer.session.timeout.ms",
        45_000,
        "Silence after which a member of this group counts as gone.",
        "group.consumer.session.timeout.ms",
    ),
    _ms(
        "consumer.heartbeat.interval.ms",
        500,
        "How often members of this group are told to send a heartbeat.",
        "group.consumer.heartbeat.interval.ms",
    ),
    _ms(
        "share.session.timeout.ms",
        45_000,
        "Silence after which a member of this share group counts as gone.",
        "group.share.session.timeout.ms",
    ),
    _ms(
        "share.heartbeat.interval.ms",
        500,
        "How often members of this share group are told to send a heartbeat.",
        "group.share.heartbeat.interval.ms",
    ),
    _ms(
        "share.record.lock.duration.ms",
        30_000,
        "How long a record that this share group was given stays leased.",
        "group.share.record.lock.duration.ms",
    ),
    ConfigDefinition(
        "share.delivery.count.limit",
        ConfigType.INT,
        "4",
        "Deliveries of a record to this share group before it is given up.",
        between(1, 100),
        synonyms=(Synonym("group.share.delivery.count.limit"),),
    ),
    ConfigDefinition(
        "share.partition.max.record.locks",
        ConfigType.INT,
        "2000",
        "Records of one partition that this share group may have in flight.",
        between(100, 10_000),
        synonyms=(Synonym("group.share.partition.max.record.locks"),),
    ),
    ConfigDefinition(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "latest",
        "Where this share group begins on a partition that it has not read: earliest, latest or "
        "by_duration:<ISO 8601 duration>.",
        starting_point,
    ),
    ConfigDefinition(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        "Whether this share group is given records of transactions that are still open or were aborted.",
        one_of("read_committed", "read_uncommitted"),
    ),
)

_METRICS = (
    ConfigDefinition("metrics", ConfigType.LIST, "", "Prefixes of the metrics that clients shall push."),
    ConfigDefinition(
        "interval.ms",
        ConfigType.INT,
        str(5 * _MINUTE_MS),
        "How often clients push.",
        between(100, 60 * _MINUTE_MS),
    ),
    ConfigDefinition("match", ConfigType.LIST, "", "Which clients are meant, as key=pattern pairs."),
)

GROUP_CONFIGS = by_name(_GROUPS)
CLIENT_METRICS_CONFIGS = by_name(_METRICS)
