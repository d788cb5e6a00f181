"""The configuration of topics: Kafka's keys, and two of our own.

A topic that has no value of its own follows its broker (the synonyms, first one wins),
and a broker that has none follows the default.
"""

from penstock.core.metadata.configs.definition import (
    INT64_MAX,
    Check,
    ConfigDefinition,
    ConfigSynonym,
    ConfigType,
    at_least,
    between,
    by_name,
    level,
    list_of,
    one_of,
)

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
NEVER = str(INT64_MAX)
BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
# A segment is four files, and a new one waits for the disk: with less, each batch would have its own.
SEGMENT_BYTES_MIN = 512
# Eight rows: an index that cannot take a row would end every segment before it began. The index of a segment
# that grows is in memory, and is written at once when the segment is full.
INDEX_BYTES_MIN = 64
INDEX_BYTES_MAX = 32 << 20
# A reader goes from batch to batch between two entries: a megabyte of small ones takes some 10 ms.
INDEX_INTERVAL_BYTES_MAX = 1 << 20
# A batch of one empty record has 68 bytes, a transaction marker 78: with less, nothing could be written. A
# megabyte takes some 2 ms of the loop, since a batch is checked and written in one go. One goes to followers
# in a single peer frame of 64 MB, perhaps with 4 MB of other partitions.
MESSAGE_BYTES_MIN = 100
MESSAGE_BYTES_MAX = 16 << 20
COMPRESSION_TYPES = ("uncompressed", "none", "zstd", "lz4", "snappy", "gzip", "producer")


def _key(
    name: str, kind: ConfigType, default: str, about: str, check: Check | None, *synonyms: str | ConfigSynonym
) -> ConfigDefinition:
    named = tuple(ConfigSynonym(other) if isinstance(other, str) else other for other in synonyms)
    return ConfigDefinition(name, kind, default, about, check, synonyms=named)


_THROTTLED = "leader.replication.throttled.rate limits what every replica gets that is not in sync"
_TIERED = "there is no remote storage so far"


def _fixed(
    name: str, kind: ConfigType, default: str, about: str, reason: str, *synonyms: str
) -> ConfigDefinition:
    named = tuple(ConfigSynonym(other) for other in synonyms)
    return ConfigDefinition(name, kind, default, about, synonyms=named, fixed=reason)


CLEANING = (
    _key(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "What happens to old records: `delete` drops whole segments by age or size, `compact` keeps the "
        "latest record of every key; both can be combined, and an empty list keeps everything. `consumed` "
        "drops records that all queues on the topic have finished; it does not go with `compact`.",
        list_of("compact", "consumed", "delete"),
        "log.cleanup.policy",
    ),
    _key(
        "delete.retention.ms",
        LONG,
        str(DAY_MS),
        "How long compaction leaves a tombstone in place, so that readers on their way can still see it.",
        at_least(0),
        "log.cleaner.delete.retention.ms",
    ),
    _key(
        "min.cleanable.dirty.ratio",
        ConfigType.DOUBLE,
        "0.5",
        "Share of the log that must be uncompacted before compaction is worth its while.",
        between(0, 1),
        "log.cleaner.min.cleanable.ratio",
    ),
    _key(
        "min.compaction.lag.ms",
        LONG,
        "0",
        "How long a record is safe from compaction.",
        at_least(0),
        "log.cleaner.min.compaction.lag.ms",
    ),
    _key(
        "max.compaction.lag.ms",
        LONG,
        NEVER,
        "How long a record may wait for compaction at most.",
        at_least(1),
        "log.cleaner.max.compaction.lag.ms",
    ),
    _key(
        "retention.bytes",
        LONG,
        "-1",
        "Size of a partition above which its oldest segments are deleted; -1 is no limit.",
        at_least(-1),
        "log.retention.bytes",
    ),
    _key(
        "retention.ms",
        LONG,
        str(7 * DAY_MS),
        "Age above which segments are deleted; -1 is no limit.",
        at_least(-1),
        "log.retention.ms",
        ConfigSynonym("log.retention.minutes", MINUTE_MS),
        ConfigSynonym("log.retention.hours", HOUR_MS),
    ),
    _key(
        "file.delete.delay.ms",
        LONG,
        "0",
        "How long the files of a deleted segment stay on disk; who is reading them can finish anyway.",
        at_least(0),
        "log.segment.delete.delay.ms",
    ),
)
SEGMENTS = (
    _key(
        "segment.bytes",
        INT,
        str(1 << 30),
        "Size at which a partition starts a new segment file; retention works on whole segments.",
        at_least(SEGMENT_BYTES_MIN),
        "log.segment.bytes",
    ),
    _key(
        "segment.ms",
        LONG,
        str(7 * DAY_MS),
        "Age at which a segment is closed even if it is small; less than a second counts as a second.",
        at_least(1),
        "log.roll.ms",
        ConfigSynonym("log.roll.hours", HOUR_MS),
    ),
    _key(
        "segment.jitter.ms",
        LONG,
        "0",
        "Up to how much earlier a segment is closed, each by another time: not all partitions roll at once.",
        at_least(0),
        "log.roll.jitter.ms",
        ConfigSynonym("log.roll.jitter.hours", HOUR_MS),
    ),
    _key(
        "segment.index.bytes",
        INT,
        str(10 << 20),
        "Size to which a segment's offset index may grow.",
        between(INDEX_BYTES_MIN, INDEX_BYTES_MAX),
        "log.index.size.max.bytes",
    ),
    _key(
        "index.interval.bytes",
        INT,
        "4096",
        "Log bytes between two entries of the offset index.",
        between(1, INDEX_INTERVAL_BYTES_MAX),
        "log.index.interval.bytes",
    ),
    _fixed(
        "preallocate",
        BOOLEAN,
        "false",
        "Whether a new segment's file gets its full size at once.",
        "files grow as they are written",
        "log.preallocate",
    ),
    _key(
        "flush.messages",
        LONG,
        NEVER,
        "Records after which the log is forced to disk; 1 syncs every batch, whatever the node's fsync mode.",
        at_least(1),
        "log.flush.interval.messages",
    ),
    _key(
        "flush.ms",
        LONG,
        NEVER,
        "Time after which written records are forced to disk, whatever the node's fsync mode.",
        at_least(0),
        "log.flush.interval.ms",
        "log.flush.scheduler.interval.ms",
    ),
)
RECORDS = (
    _key(
        "compression.type",
        STRING,
        "producer",
        "Codec in which batches are kept; `producer` keeps what arrives.",
        one_of(*COMPRESSION_TYPES),
        "compression.type",
    ),
    _key(
        "compression.gzip.level",
        INT,
        "-1",
        "Effort of gzip, where the broker compresses; -1 is the codec's default.",
        level(1, 9),
        "compression.gzip.level",
    ),
    _key(
        "compression.lz4.level",
        INT,
        "9",
        "Effort of lz4, where the broker compresses.",
        between(1, 17),
        "compression.lz4.level",
    ),
    _key(
        "compression.zstd.level",
        INT,
        "3",
        "Effort of zstd, where the broker compresses.",
        between(-131072, 22),
        "compression.zstd.level",
    ),
    _key(
        "max.message.bytes",
        INT,
        str((1 << 20) + 12),
        "Largest batch that is accepted, as it arrives.",
        between(MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX),
        "message.max.bytes",
    ),
    _key(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps records: the producer's (`CreateTime`) or the broker's (`LogAppendTime`).",
        one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
    ),
    _key(
        "message.timestamp.before.max.ms",
        LONG,
        NEVER,
        "How far a producer's timestamp may lie behind the broker's clock.",
        at_least(0),
        "log.message.timestamp.before.max.ms",
    ),
    _key(
        "message.timestamp.after.max.ms",
        LONG,
        str(HOUR_MS),
        "How far a producer's timestamp may lie ahead of the broker's clock.",
        at_least(0),
        "log.message.timestamp.after.max.ms",
    ),
    _key(
        "penstock.validation",
        STRING,
        "header",
        "How closely batches are checked: `header` checks header, CRC, sequence and first bytes, and every "
        "record of small batches; `deep` unpacks batches and walks every record. Compacted topics are walked "
        "anyway.",
        one_of("header", "deep"),
    ),
    _key(
        "encryption.at.rest",
        BOOLEAN,
        "false",
        "Whether record batches are encrypted on disk, as they are by default where `security.encryption` is "
        "enabled; `true` needs its keys. A change begins a segment, and what is there stays as it is.",
        None,
        "log.encryption.at.rest",
    ),
)
REPLICATION = (
    _key(
        "min.insync.replicas",
        INT,
        "1",
        "In-sync replicas that acks=all needs; unless set, it is 2 for topics with three or more replicas.",
        at_least(1),
        "min.insync.replicas",
    ),
    _key(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "Whether a replica that may miss records can become leader when no other is left.",
        None,
        "unclean.leader.election.enable",
    ),
    _fixed(
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas whose leaders send at the throttled rate, as partition:broker pairs, or * for all.",
        _THROTTLED,
    ),
    _fixed(
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        "",
        "Replicas that fetch at the throttled rate, as partition:broker pairs, or * for all.",
        _THROTTLED,
    ),
)
TIERING = (
    _fixed(
        "remote.storage.enable",
        BOOLEAN,
        "false",
        "Whether closed segments move to remote storage; this needs a node with remote storage set up.",
        _TIERED,
    ),
    _fixed(
        "remote.log.copy.disable",
        BOOLEAN,
        "false",
        "Whether copying to remote storage is paused; what is there stays readable.",
        _TIERED,
    ),
    _fixed(
        "remote.log.delete.on.disable",
        BOOLEAN,
        "false",
        "Whether switching remote storage off deletes what it holds.",
        _TIERED,
    ),
    _fixed(
        "local.retention.ms",
        LONG,
        "-2",
        "Age above which segments that remote storage holds leave the local disk; -2 follows retention.ms.",
        _TIERED,
        "log.local.retention.ms",
    ),
    _fixed(
        "local.retention.bytes",
        LONG,
        "-2",
        "Size above which segments that remote storage holds leave the disk; -2 follows retention.bytes.",
        _TIERED,
        "log.local.retention.bytes",
    ),
)
TOPIC_CONFIGS = by_name(CLEANING, SEGMENTS, RECORDS, REPLICATION, TIERING)
