"""The configuration of groups; keys of features that do not exist are fixed."""

from penstock.core.metadata.configs.definition import (
    INT32_MAX,
    ConfigDefinition,
    ConfigSynonym,
    ConfigType,
    between,
    by_name,
    one_of,
)

WINDOW_LIMITS = "the window of a queue limits it: 10,000 records that are ready, leased or moving"
# Of a lease, and of a delay: half a day.
LEASE_MS_MAX = 43_200_000
# The first delivery of a record, and 99 more.
DELIVERIES_MAX = 100
STABLE_ALONE = "queues deliver what is committed, and nothing of aborted transactions"


def _shared(name: str, default: str, about: str, highest: int = INT32_MAX) -> ConfigDefinition:
    """A key that follows the broker's."""
    synonyms = (ConfigSynonym(f"group.{name}"),)
    return ConfigDefinition(name, ConfigType.INT, default, about, between(1, highest), synonyms=synonyms)


def _queue(name: str, default: str, about: str, lowest: int) -> ConfigDefinition:
    """A duration of queues that follows the broker's."""
    synonyms = (ConfigSynonym(f"group.queue.{name}"),)
    check = between(lowest, LEASE_MS_MAX)
    return ConfigDefinition(f"queue.{name}", ConfigType.INT, default, about, check, synonyms=synonyms)


_GROUPS = (
    _shared(
        "consumer.session.timeout.ms",
        "45000",
        "Silence after which a member of this group counts as gone.",
    ),
    _shared(
        "consumer.heartbeat.interval.ms",
        "500",
        "How often members of this group send a heartbeat.",
    ),
    _shared(
        "share.session.timeout.ms",
        "45000",
        "Silence after which a member of this share group counts as gone.",
    ),
    _shared(
        "share.heartbeat.interval.ms",
        "500",
        "How often members of this share group send a heartbeat.",
    ),
    _shared(
        "share.record.lock.duration.ms",
        "30000",
        "How long a record delivered to this share group stays locked.",
        LEASE_MS_MAX,
    ),
    _shared(
        "share.delivery.count.limit",
        "4",
        "Deliveries of a record to this share group before it is given up.",
        DELIVERIES_MAX,
    ),
    ConfigDefinition(
        "share.partition.max.record.locks",
        ConfigType.INT,
        "10000",
        "Records of one partition that this share group may have in flight.",
        synonyms=(ConfigSynonym("group.share.partition.max.record.locks"),),
        fixed=WINDOW_LIMITS,
    ),
    ConfigDefinition(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "earliest",
        "Where this group begins on a partition that it has no queue of; Kafka's default is latest.",
        one_of("earliest", "latest"),
    ),
    ConfigDefinition(
        "share.isolation.level",
        ConfigType.STRING,
        "read_committed",
        "Whether this share group is given records of transactions that are still open or were aborted.",
        fixed=STABLE_ALONE,
    ),
)
_QUEUES = (
    _queue("visibility.timeout.ms", "30000", "How long a record received by this group stays leased.", 1),
    _queue("backoff.ms", "1000", "How long a record that this group released is not delivered, at first.", 0),
    _queue("backoff.max.ms", "60000", "The longest backoff of this group's records.", 0),
    ConfigDefinition(
        "queue.retries.max",
        ConfigType.INT,
        "3",
        "Deliveries of a record to this group after the first before it is given up.",
        between(0, DELIVERIES_MAX - 1),
        synonyms=(ConfigSynonym("group.queue.retries.max"),),
    ),
    ConfigDefinition(
        "queue.window.max",
        ConfigType.INT,
        "10000",
        "Records of a partition that this group may have in flight or ready at a time; it bounds memory.",
        between(1, 10_000),
        synonyms=(ConfigSynonym("group.queue.window.max"),),
    ),
    ConfigDefinition(
        "queue.dead.letter.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether records that this group gives up are moved to <topic>.dlq.",
        synonyms=(ConfigSynonym("group.queue.dead.letter.enable"),),
    ),
    ConfigDefinition(
        "queue.key.ordered",
        ConfigType.BOOLEAN,
        "false",
        "Whether no two records of a key are delivered to this group at the same time.",
    ),
    ConfigDefinition(
        "queue.start",
        ConfigType.STRING,
        "earliest",
        "Where a new queue of this group begins: earliest, or latest.",
        one_of("earliest", "latest"),
    ),
)
GROUP_CONFIGS = by_name(_GROUPS, _QUEUES)
