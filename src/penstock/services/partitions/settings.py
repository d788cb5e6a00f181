"""What the configuration says about a node's logs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.metadata import (
    EMPTY_IMAGE,
    ConfigResourceType,
    MetadataImage,
    Topic,
    broker_setting,
    options_of,
)
from penstock.core.metadata.configs import NO_CONFIGS, CleanupPolicy, InvalidConfigValue, TopicOptions
from penstock.core.metadata.effective_configs import topic_value
from penstock.core.model import MILLISECOND, NodeId
from penstock.observability import log as events
from penstock.services.partitions.syncing import SyncPolicy
from penstock.services.partitions.upkeep import HousekeepingOptions
from penstock.storage.log import CompactionRules, LogOptions

# A negative retention keeps everything.
FOR_EVER = -1


@dataclass(frozen=True, slots=True)
class PartitionsOptions:
    """How the node keeps its logs; `static` holds its broker settings under Kafka's names."""

    static: Mapping[str, str] = field(default_factory=lambda: NO_CONFIGS)
    housekeeping: HousekeepingOptions = field(default_factory=HousekeepingOptions)
    time_index_interval_ms: int = 1_000


class LogSettings:
    """Topics' and the broker's settings as they count here; those of topics are kept once worked out.

    What is committed may be nothing that a log can work with: another version may have allowed it.
    A topic goes on then with the last settings that it had in this life of the node; one that never
    had any is not usable until its settings are changed.
    """

    def __init__(self, node_id: NodeId, options: PartitionsOptions) -> None:
        self._node_id = node_id
        self._options = options
        self._image = EMPTY_IMAGE
        self.known: dict[str, TopicOptions] = {}
        self._minima: dict[str, int] = {}
        self._last_good: dict[str, TopicOptions] = {}
        self._unusable: dict[str, None] = {}

    def follow(self, image: MetadataImage) -> bool:
        """Take up a new image; answers whether settings may have changed in it."""
        before, self._image = self._image, image
        if before.configs is image.configs:
            return False
        changed = image.configs.keys_changed_since(before.configs)
        changed += before.configs.keys_missing_in(image.configs)
        if any(resource.kind is ConfigResourceType.BROKER for resource in changed):
            self.known.clear()
            self._minima.clear()
            self._unusable.clear()
        for resource in changed:
            if resource.kind is ConfigResourceType.TOPIC:
                self._outdate(resource.name)
        return True

    def topic_changed(self, topic: Topic, before: Topic | None) -> None:
        """How many replicas must be in sync depends on how many there are."""
        if before is not None and before.replicas_to_rely_on != topic.replicas_to_rely_on:
            self._outdate(topic.name)

    def forget(self, topic: str) -> None:
        """The topic is gone, or is another one now."""
        self._outdate(topic)
        self._last_good.pop(topic, None)

    def _outdate(self, topic: str) -> None:
        """The topic's settings must be worked out anew."""
        self.known.pop(topic, None)
        self._minima.pop(topic, None)
        self._unusable.pop(topic, None)

    def is_usable(self, topic: str) -> bool:
        """Whether a log can work with what the topic is set to."""
        return self._find(topic) is not None

    def of(self, topic: str) -> TopicOptions:
        """A topic's options; the topic must be usable."""
        found = self.known.get(topic) or self._find(topic)
        assert found is not None, f"the settings of {topic} are not usable"
        return found

    def _find(self, topic: str) -> TopicOptions | None:
        found = self.known.get(topic)
        if found is None and topic not in self._unusable:
            found = self._work_out(topic)
            if found is None:
                self._unusable[topic] = None
            else:
                self.known[topic] = self._last_good[topic] = found
        return found

    def _work_out(self, topic: str) -> TopicOptions | None:
        try:
            options = options_of(self._image, topic, self._node_id, self._options.static)
            self._log_options(options)
        except ValueError as error:
            former = self._last_good.get(topic)
            named = error if isinstance(error, InvalidConfigValue) else None
            events.error(
                "topic.settings_invalid",
                topic=topic,
                setting="" if named is None else named.key,
                value="" if named is None else named.value,
                error=error,
                partitions="offline" if former is None else "go on with their former settings",
            )
            return former
        return options

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
        return self._log_options(self.of(topic))

    def _log_options(self, options: TopicOptions) -> LogOptions:
        deletes = CleanupPolicy.DELETE in options.cleanup
        return LogOptions(
            segment_bytes=options.segment_bytes,
            # What is still growing cannot be compacted.
            segment_ms=min(options.segment_ms, options.max_compaction_lag_ms)
            if options.compacted
            else options.segment_ms,
            segment_jitter_ms=options.segment_jitter_ms,
            index_interval_bytes=options.index_interval_bytes,
            index_bytes_max=options.segment_index_bytes,
            time_index_interval_ms=self._options.time_index_interval_ms,
            retention_ms=options.retention_ms if deletes else FOR_EVER,
            retention_bytes=options.retention_bytes if deletes else FOR_EVER,
            message_bytes_max=options.max_message_bytes,
            producer_expiry_ms=self._broker("producer.id.expiration.ms"),
            file_delete_delay_ms=options.file_delete_delay_ms,
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
