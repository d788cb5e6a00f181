"""What the configuration says about a node's logs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.metadata import (
    EMPTY_IMAGE,
    MetadataImage,
    ResourceKind,
    Topic,
    broker_setting,
    options_of,
)
from penstock.core.metadata.configs import NOTHING, Cleanup, TopicOptions
from penstock.core.metadata.effective import topic_value
from penstock.core.model import MILLISECOND, NodeId
from penstock.services.partitions.syncing import SyncPolicy
from penstock.services.partitions.upkeep import HousekeepingOptions
from penstock.storage.log import CompactionRules, LogOptions

# A negative retention keeps everything.
FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class PartitionsOptions:
    """How the node keeps its logs; `static` holds its broker settings under Kafka's names."""

    static: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    housekeeping: HousekeepingOptions = field(default_factory=HousekeepingOptions)
    time_index_interval_ms: int = 1_000


class LogSettings:
    """Topics' and the broker's settings as they count here; those of topics are kept once worked out."""

    def __init__(self, node_id: NodeId, options: PartitionsOptions) -> None:
        self._node_id = node_id
        self._options = options
        self._image = EMPTY_IMAGE
        self.known: dict[str, TopicOptions] = {}
        self._minima: dict[str, int] = {}

    def follow(self, image: MetadataImage) -> bool:
        """Take up a new image; answers whether settings may have changed in it."""
        before, self._image = self._image, image
        if before.configs is image.configs:
            return False
        changed = image.configs.keys_changed_since(before.configs)
        changed += before.configs.keys_missing_in(image.configs)
        if any(resource.kind is ResourceKind.BROKER for resource in changed):
            self.known.clear()
            self._minima.clear()
        for resource in changed:
            if resource.kind is ResourceKind.TOPIC:
                self.forget(resource.name)
        return True

    def topic_changed(self, topic: Topic, before: Topic | None) -> None:
        """How many replicas must be in sync depends on how many there are."""
        if before is not None and before.replicas_to_rely_on != topic.replicas_to_rely_on:
            self.forget(topic.name)

    def forget(self, topic: str) -> None:
        """The topic is gone, or is another one now."""
        self.known.pop(topic, None)
        self._minima.pop(topic, None)

    def of(self, topic: str) -> TopicOptions:
        """A topic's options."""
        found = self.known.get(topic)
        if found is None:
            found = options_of(self._image, topic, self._node_id, self._options.static)
            self.known[topic] = found
        return found

    def minimum_in_sync(self, name: str) -> int:
        """How many replicas must be in sync, as the cluster sees it.

        Settings of this one broker do not count: the controller could not know what a leader
        takes for committed, and might let somebody lead who does not have it.
        """
        found = self._minima.get(name)
        if found is None:
            topic = self._image.topic(name)
            assert topic is not None
            value = topic_value(self._image, topic, "min.insync.replicas", self._options.static)
            assert isinstance(value, int)
            found = self._minima[name] = value
        return found

    def sync_policy(self, topic: str) -> SyncPolicy:
        options = self.of(topic)
        return SyncPolicy(self._options.housekeeping.fsync, options.flush_messages, options.flush_ms)

    def log_options(self, topic: str) -> LogOptions:
        options = self.of(topic)
        deletes = Cleanup.DELETE in options.cleanup
        return LogOptions(
            segment_bytes=options.segment_bytes,
            # What is still growing cannot be compacted.
            segment_ms=min(options.segment_ms, options.max_compaction_lag_ms)
            if options.compacted
            else options.segment_ms,
            index_interval_bytes=options.index_interval_bytes,
            index_bytes_max=options.segment_index_bytes,
            time_index_interval_ms=self._options.time_index_interval_ms,
            retention_ms=options.retention_ms if deletes else FOR_EVER,
            retention_bytes=options.retention_bytes if deletes else FOR_EVER,
            message_bytes_max=options.max_message_bytes,
        )

    def compaction(self, topic: str) -> CompactionRules | None:
        """How the topic is compacted, if it is."""
        options = self.of(topic)
        if not options.compacted:
            return None
        return CompactionRules(
            options.min_cleanable_dirty_ratio,
            options.delete_retention_ms,
            options.min_compaction_lag_ms,
            options.max_compaction_lag_ms,
        )

    def cleaner_backoff_ms(self) -> int | None:
        """How often to look for something to compact; None: never."""
        if not self._broker("log.cleaner.enable"):
            return None
        return self._broker("log.cleaner.backoff.ms")

    def lag_max_ns(self) -> int:
        """How long a replica may lag behind before it leaves the ISR."""
        return self._broker("replica.lag.time.max.ms") * MILLISECOND

    def _broker(self, key: str) -> int:
        value = broker_setting(self._image, key, self._node_id, self._options.static)
        assert isinstance(value, int), key
        return value
