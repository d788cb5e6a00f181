"""Settings of brokers that topics follow, and those about new topics and stored logs."""

from penstock.core.metadata.configs.checks import at_least, at_least_or_auto, between, level, list_of, one_of
from penstock.core.metadata.configs.definition import (
    Check,
    ConfigDefinition,
    ConfigType,
    Synonym,
    Update,
)
from penstock.core.metadata.configs.topic import (
    COMPRESSION_TYPES,
    DAY_MS,
    HOUR_MS,
    INDEX_BYTES_MIN,
    MESSAGE_BYTES_MIN,
    MINUTE_MS,
    NEVER,
    SEGMENT_BYTES_MIN,
    TOPIC_CONFIGS,
)

BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG

PARTITIONS_MAX = 100_000


def _shared(
    name: str, kind: ConfigType, default: str | None, about: str, check: Check | None = None, *others: Synonym
) -> ConfigDefinition:
    """A setting that can be changed for the whole cluster at once."""
    return ConfigDefinition(name, kind, default, about, check, Update.CLUSTER_WIDE, synonyms=others)


def _unchangeable(name: str, topics: str, about: str) -> ConfigDefinition:
    """What topics cannot choose either, under the name it has there."""
    topic = TOPIC_CONFIGS[topics]
    return ConfigDefinition(
        name, topic.type, topic.default, about, None, Update.CLUSTER_WIDE, fixed=topic.fixed
    )


def _fixed(
    name: str, kind: ConfigType, default: str | None, about: str, check: Check | None = None
) -> ConfigDefinition:
    """A setting that takes a restart."""
    return ConfigDefinition(name, kind, default, about, check)


NEW_TOPICS = (
    _fixed(
        "num.partitions",
        INT,
        "6",
        "Partitions of a topic that is created without a number.",
        between(1, PARTITIONS_MAX),
    ),
    _fixed(
        "default.replication.factor",
        INT,
        "-1",
        "Replicas of a topic that is created without a number; -1 is the smaller of 3 and all brokers.",
        at_least_or_auto(1),
    ),
    _fixed(
        "auto.create.topics.enable", BOOLEAN, "true", "Whether asking for an unknown topic can create it."
    ),
    _fixed("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted at all."),
)

RETENTION = (
    _shared(
        "log.retention.ms",
        LONG,
        None,
        "Age above which segments are deleted, in milliseconds; -1 is no limit.",
        at_least(-1),
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
    ),
    _fixed(
        "log.retention.minutes",
        INT,
        None,
        "The same in minutes, where milliseconds are not set.",
        at_least(-1),
    ),
    _fixed(
        "log.retention.hours",
        INT,
        "168",
        "The same in hours, where neither of the others is set.",
        at_least(-1),
    ),
    _shared(
        "log.retention.bytes",
        LONG,
        "-1",
        "Size of a partition above which its oldest segments are deleted; -1 is no limit.",
        at_least(-1),
    ),
    _fixed(
        "log.retention.check.interval.ms",
        LONG,
        "300000",
        "How often segments are looked at for retention.",
        at_least(1),
    ),
    _shared(
        "log.cleanup.policy",
        ConfigType.LIST,
        "delete",
        "What happens to old records of topics that do not say: delete, compact, or both.",
        list_of("compact", "delete"),
    ),
    _shared(
        "log.segment.delete.delay.ms",
        LONG,
        "0",
        "How long the files of a deleted segment stay on disk.",
        at_least(0),
    ),
    _unchangeable(
        "log.local.retention.ms", "local.retention.ms", "Age limit on the local disk of tiered topics."
    ),
    _unchangeable(
        "log.local.retention.bytes", "local.retention.bytes", "Size limit on the local disk of tiered topics."
    ),
)

COMPACTION = (
    _fixed("log.cleaner.enable", BOOLEAN, "true", "Whether compaction runs."),
    _fixed(
        "log.cleaner.backoff.ms",
        LONG,
        "15000",
        "How often logs are looked at for compaction.",
        at_least(1),
    ),
    _shared(
        "log.cleaner.delete.retention.ms",
        LONG,
        str(DAY_MS),
        "How long tombstones outlive compaction.",
        at_least(0),
    ),
    _shared(
        "log.cleaner.min.cleanable.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "Share of a log that must be uncompacted before it is compacted.",
        between(0, 1),
    ),
    _shared(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        "0",
        "How long a record is safe from compaction.",
        at_least(0),
    ),
    _shared(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        NEVER,
        "How long a record may wait for compaction.",
        at_least(1),
    ),
)

SEGMENTS = (
    _shared(
        "log.segment.bytes",
        INT,
        str(1 << 30),
        "Size at which a log starts a new segment file.",
        at_least(SEGMENT_BYTES_MIN),
    ),
    _shared(
        "log.roll.ms",
        LONG,
        None,
        "Age at which a segment is closed, in milliseconds.",
        at_least(1),
        Synonym("log.roll.hours", HOUR_MS),
    ),
    _fixed("log.roll.hours", INT, "168", "The same in hours, where milliseconds are not set.", at_least(1)),
    _shared(
        "log.roll.jitter.ms",
        LONG,
        None,
        "Up to how much earlier a segment is closed, in milliseconds.",
        at_least(0),
        Synonym("log.roll.jitter.hours", HOUR_MS),
    ),
    _fixed(
        "log.roll.jitter.hours", INT, "0", "The same in hours, where milliseconds are not set.", at_least(0)
    ),
    _shared(
        "log.index.size.max.bytes",
        INT,
        str(10 << 20),
        "Size to which an index may grow.",
        at_least(INDEX_BYTES_MIN),
    ),
    _shared(
        "log.index.interval.bytes",
        INT,
        "4096",
        "Log bytes between two entries of the offset index.",
        at_least(1),
    ),
    _unchangeable("log.preallocate", "preallocate", "Whether new segment files get their full size at once."),
    _shared(
        "log.flush.interval.messages",
        LONG,
        NEVER,
        "Records after which a log is forced to disk.",
        at_least(1),
    ),
    _shared(
        "log.flush.interval.ms",
        LONG,
        None,
        "Time after which written records are forced to disk.",
        at_least(0),
        Synonym("log.flush.scheduler.interval.ms"),
    ),
    _fixed(
        "log.flush.scheduler.interval.ms",
        LONG,
        NEVER,
        "How often logs are looked at for the time above.",
        at_least(0),
    ),
)

RECORDS = (
    _shared(
        "message.max.bytes",
        INT,
        str((1 << 20) + 12),
        "Largest batch that is accepted.",
        at_least(MESSAGE_BYTES_MIN),
    ),
    _shared(
        "compression.type",
        STRING,
        "producer",
        "Codec in which batches are kept; `producer` keeps what arrives.",
        one_of(*COMPRESSION_TYPES),
    ),
    _shared("compression.gzip.level", INT, "-1", "Effort of gzip.", level(1, 9)),
    _shared("compression.lz4.level", INT, "9", "Effort of lz4.", between(1, 17)),
    _shared("compression.zstd.level", INT, "3", "Effort of zstd.", between(-131072, 22)),
    _shared(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps records: CreateTime or LogAppendTime.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _shared(
        "log.message.timestamp.before.max.ms",
        LONG,
        NEVER,
        "How far timestamps may lie in the past.",
        at_least(0),
    ),
    _shared(
        "log.message.timestamp.after.max.ms",
        LONG,
        str(HOUR_MS),
        "How far timestamps may lie in the future.",
        at_least(0),
    ),
    _shared("min.insync.replicas", INT, "1", "In-sync replicas that acks=all needs.", at_least(1)),
    _shared(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that may miss records can lead when no other is left.",
    ),
)

LOG_SETTINGS = (*NEW_TOPICS, *RETENTION, *COMPACTION, *SEGMENTS, *RECORDS)
