"""A topic's configuration as the broker uses it: typed, complete, frozen."""

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.core.metadata.configs.definition import ConfigValue
from penstock.core.metadata.configs.layers import ConfigLayers, definitions
from penstock.core.metadata.image import ConfigResourceType
from penstock.core.records import CompressionType
from penstock.core.values import dataclass


class CleanupPolicy(enum.Flag):
    """What happens to old records; nothing at all is allowed too."""

    NOTHING = 0
    DELETE = enum.auto()
    COMPACT = enum.auto()
    CONSUMED = enum.auto()


class TimestampType(enum.IntEnum):
    """Whose clock stamps records; the value of the attribute bit in a batch."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


_CODECS = {
    "uncompressed": CompressionType.NONE,
    "none": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}
_LEVELS = {
    CompressionType.GZIP: "compression.gzip.level",
    CompressionType.LZ4: "compression.lz4.level",
    CompressionType.ZSTD: "compression.zstd.level",
}
_POLICIES = {
    "delete": CleanupPolicy.DELETE,
    "compact": CleanupPolicy.COMPACT,
    "consumed": CleanupPolicy.CONSUMED,
}


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """What counts for a topic after every layer was applied.

    `compression` is None where batches stay as the producer sent them, and its level is None
    where the codec has none or its own default counts. Limits of -1 are no limits, as in Kafka.
    """

    cleanup: CleanupPolicy
    retention_ms: int
    retention_bytes: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    flush_messages: int
    flush_ms: int
    max_message_bytes: int
    compression: CompressionType | None
    compression_level: int | None
    timestamp_type: TimestampType
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    deep_validation: bool
    encryption_at_rest: bool

    @property
    def compacted(self) -> bool:
        return CleanupPolicy.COMPACT in self.cleanup


# Field -> key, where the key is not the field with dots for underscores.
_KEYS = {
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_after_max_ms": "message.timestamp.after.max.ms",
}
_PLAIN = tuple(
    (name, _KEYS.get(name, name.replace("_", ".")))
    for name in TopicOptions.__dataclass_fields__
    if name not in ("cleanup", "compression", "compression_level", "timestamp_type", "deep_validation")
)


# What decides which records are deleted.
_DELETION_KEYS = ("cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms")


def topic_options(layers: ConfigLayers) -> TopicOptions:
    """The options of a topic above these layers; raises InvalidConfigValue if its own cannot be read at all.

    Where it is its brokers' that cannot be read, the next layer counts; but nothing is deleted if it might be
    about that.
    """
    options = _options(layers, layers.value)
    if (layers.broker or layers.cluster) and any(map(layers.is_passed_over, _DELETION_KEYS)):
        return replace(options, cleanup=CleanupPolicy.NOTHING)
    return options


def cautious_options(layers: ConfigLayers) -> TopicOptions:
    """The options that can be read; nothing is deleted, since it may be told by one that cannot."""
    return replace(_options(layers, layers.usable_value), cleanup=CleanupPolicy.NOTHING)


def _options(layers: ConfigLayers, read: Callable[[str], ConfigValue | None]) -> TopicOptions:
    assert layers.kind is ConfigResourceType.TOPIC
    values: dict[str, Any] = {name: read(key) for name, key in _PLAIN}
    policies = read("cleanup.policy")
    cleanup = CleanupPolicy.NOTHING
    for policy in policies if isinstance(policies, tuple) else ():
        cleanup |= _POLICIES[policy]
    codec = _CODECS.get(str(read("compression.type")))
    # The topic may have one of the two, and its brokers the other.
    values["max_compaction_lag_ms"] = max(values["max_compaction_lag_ms"], values["min_compaction_lag_ms"])
    return TopicOptions(
        **values,
        cleanup=cleanup,
        compression=codec,
        compression_level=None if codec is None else _level(read, codec),
        timestamp_type=_TIMESTAMP_TYPES[str(read("message.timestamp.type"))],
        deep_validation=read("penstock.validation") == "deep",
    )


def _level(read: Callable[[str], ConfigValue | None], codec: CompressionType) -> int | None:
    """The codec's level; None where it has no levels, or at its own default."""
    key = _LEVELS.get(codec)
    if key is None:
        return None
    level = read(key)
    assert isinstance(level, int)
    # As in Kafka: the default level of lz4 stands for its fast form, any other for its thorough one.
    return None if str(level) == definitions(ConfigResourceType.TOPIC)[key].default else level
