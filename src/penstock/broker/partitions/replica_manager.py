"""Every log of this node and its role, kept in step with the cluster's metadata.

    leader is this node     ──► LeaderPartition, a new one in every leader epoch
    leader is another node  ──► FollowerPartition, likewise
    there is no leader      ──► no role; the log is kept

Users of an old role find it stopped, and look up the leader again.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TypeAlias

from penstock.broker.lease import FOREVER, BrokerLease
from penstock.broker.partitions.follower_partition import FollowerPartition
from penstock.broker.partitions.leader_partition import LeaderPartition, Leadership, Replica, SyncPolicy
from penstock.broker.partitions.log_cleaner import LogCleaner
from penstock.broker.partitions.log_maintenance import LogMaintenance, LogMaintenanceOptions
from penstock.broker.partitions.log_manager import LogManager, LogStore
from penstock.broker.partitions.log_scrubber import LogScrubber, ScrubOptions
from penstock.broker.partitions.quarantine import QuarantineSize, drop_quarantines, measure_quarantines
from penstock.broker.partitions.replica_repair import ReplicaRepair, Submit
from penstock.broker.partitions.replica_reports import DivergenceReporter, ReplicaReporter, state_loss
from penstock.core.metadata import (
    ALL_BROKERS,
    EMPTY_IMAGE,
    NO_LEADER,
    NO_LEADER_EPOCH,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    Topic,
    broker_setting,
    layers_for,
    options_of,
)
from penstock.core.metadata import Partition as PartitionState
from penstock.core.metadata.configs import (
    NO_CONFIGS,
    CleanupPolicy,
    ConfigSource,
    InvalidConfigValue,
    LayerValue,
    TopicOptions,
)
from penstock.core.metadata.effective_configs import cautious_options_of, topic_value
from penstock.core.model import (
    MILLISECOND,
    BrokerEpoch,
    CorruptionError,
    Instant,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    StorageError,
    Timestamp,
    TopicId,
    TopicPartition,
)
from penstock.core.replica import CommittedPartitionState
from penstock.observability import log as events
from penstock.runtime import Callback, ExecutorKind, Runtime, Timer
from penstock.runtime.sliced_work import SlicedWork, Slices
from penstock.storage.data_directory import ACCEPT_LOSS, DataDirectory, PartitionDirectory
from penstock.storage.disk import Disk
from penstock.storage.journal import JournalPosition
from penstock.storage.log import (
    CompactionRules,
    KeptTail,
    LogOptions,
    PartitionLog,
    RecoveryReport,
    cleaner_for,
)
from penstock.storage.sealing import KeyUnavailable

Nodes: TypeAlias = tuple[NodeId, ...]
# A negative retention keeps everything.
FOR_EVER = -1
# No log is rolled for its age more often than this: each segment is several files.
SEGMENT_MS_MIN = 1_000
SETTINGS_NOT_VALID = "its topic's settings are not valid"
RETRY_MS, RETRY_MAX_MS = 1_000, 10_000
# So many logs are opened without a break, and of more so many at a time.
OPENED_AT_ONCE = 500
OPENED_PER_SLICE = 4
# While logs are being created, listeners are notified of new roles at most this often. Each notice covers all
# roles, and takes no more than this part of the time.
TELLING_MS = 20
TELLING_SHARE = 20
# What was made waits no longer to be led or followed, even where a notice takes long: the node may be busy.
TELLING_MS_MAX = 1_000
# How many logs of a deleted topic are let go in one turn of the loop.
ABANDONED_AT_ONCE = 64
# How many logs get other settings in a slice, which takes about a millisecond; to work out the settings of a
# topic takes as long as so many logs.
CONFIGURED_AT_ONCE = 128
LOGS_PER_TOPIC = 14


@dataclass(frozen=True, slots=True)
class ReplicaManagerOptions:
    """How the node keeps its logs; `static` holds its broker settings under Kafka's names."""

    static: Mapping[str, str] = field(default_factory=lambda: NO_CONFIGS)
    maintenance: LogMaintenanceOptions = field(default_factory=LogMaintenanceOptions)
    time_index_interval_ms: int = 1_000
    checkpoint_ms: int = 10_000
    # Larger segments have their indexes rebuilt by a thread.
    rebuild_bytes_max: int = 256 << 10


class LogSettings:
    """The effective settings of topics and of this broker; those of topics are cached.

    What is committed has to be applied, and another version may have allowed more. A number out of range
    counts as the nearest that is not, and what cannot be read is passed over if brokers have it. If the topic
    itself has it, it keeps the last settings that it had since the node started; without any, it is not
    usable until its settings are changed.
    """

    def __init__(
        self,
        node_id: NodeId,
        options: ReplicaManagerOptions,
        on_worked_out: Callable[[str], None],
        *,
        has_keys: bool,
    ) -> None:
        self._node_id = node_id
        self._on_worked_out = on_worked_out
        self._options = options
        self._has_keys = has_keys
        self._image = EMPTY_IMAGE
        # As the image has it; None: not looked up yet. Every leadership that begins asks for it.
        self._lag_max_ns: int | None = None
        self.known: dict[str, TopicOptions] = {}
        self._minima: dict[str, int] = {}
        self._last_good: dict[str, TopicOptions] = {}
        self._unusable: dict[str, None] = {}
        # Settings that are not allowed and were reported, by topic; those of brokers are under no topic.
        self._reported: dict[str, tuple[LayerValue, ...]] = {}
        # The options of logs, and those of the topic that they were made of.
        self._made: dict[str, tuple[TopicOptions, LogOptions]] = {}

    def on_metadata(self, image: MetadataImage) -> list[str] | None:
        """Take over a new image; returns the topics whose settings may have changed, None for all of them."""
        before, self._image = self._image, image
        self._lag_max_ns = None
        if before.configs is image.configs:
            return []
        changed = image.configs.keys_changed_since(before.configs)
        changed += before.configs.keys_missing_in(image.configs)
        topics = [resource.name for resource in changed if resource.kind is ConfigResourceType.TOPIC]
        for topic in topics:
            self._outdate(topic)
        brokers = [resource.name for resource in changed if resource.kind is ConfigResourceType.BROKER]
        if ALL_BROKERS not in brokers and str(self._node_id) not in brokers:
            return topics
        self.known.clear()
        self._minima.clear()
        self._unusable.clear()
        return None

    def topic_changed(self, topic: Topic, before: Topic | None) -> None:
        """Recompute the settings if the number of replicas changed: `min.insync.replicas` depends on it."""
        if before is not None and before.replicas_to_rely_on != topic.replicas_to_rely_on:
            self._outdate(topic.name)

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted, or replaced by one of the same name."""
        self._outdate(topic)
        self._last_good.pop(topic, None)
        self._reported.pop(topic, None)

    def _outdate(self, topic: str) -> None:
        """Drop the cached settings of a topic."""
        self.known.pop(topic, None)
        self._minima.pop(topic, None)
        self._unusable.pop(topic, None)
        self._made.pop(topic, None)

    def is_usable(self, topic: str) -> bool:
        """Whether the topic's settings are valid for a log."""
        return self._find(topic) is not None

    def of(self, topic: str) -> TopicOptions:
        """A topic's options; of one that is not usable those that can be read."""
        found = self.known.get(topic) or self._find(topic)
        return found or cautious_options_of(self._image, topic, self._node_id, self._options.static)

    def _find(self, topic: str) -> TopicOptions | None:
        found = self.known.get(topic)
        if found is None and topic not in self._unusable:
            found = self._work_out(topic)
            if found is None:
                self._unusable[topic] = None
            else:
                self.known[topic] = self._last_good[topic] = found
                self._on_worked_out(topic)
        return found

    def _work_out(self, topic: str) -> TopicOptions | None:
        try:
            options = options_of(self._image, topic, self._node_id, self._options.static)
            self._log_options(options)
            self._check_keys(options)
        except ValueError as error:
            former = self._last_good.get(topic)
            named = error if isinstance(error, InvalidConfigValue) else None
            events.error(
                "topic.settings_invalid",
                topic=topic,
                setting="" if named is None else named.key,
                value="" if named is None else named.value,
                error=error,
                partitions="offline" if former is None else "keep their former settings",
            )
            return former
        self._report(topic)
        return options

    def _check_keys(self, options: TopicOptions) -> None:
        """What is to be encrypted does not go to disk in clear."""
        if options.encryption_at_rest and not self._has_keys:
            raise ValueError(
                "encryption.at.rest is true, and this node has no keys: enable security.encryption"
            )

    def _report(self, topic: str) -> None:
        """Say which stored settings are not allowed, and what counts instead: once, until they change."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        layers = layers_for(self._image, resource, self._node_id, self._options.static)
        found = list(layers.not_allowed())
        for name, is_own in (("", False), (topic, True)):
            wrong = [pair for pair in found if (pair[1].source is ConfigSource.TOPIC) is is_own]
            values = tuple(value for _, value in wrong)
            if values == self._reported.get(name, ()):
                continue
            self._reported[name] = values
            for definition, (key, text, _) in wrong:
                problem = definition.problem(text or "")
                events.warning("setting.not_allowed", topic=name, setting=key, value=text, problem=problem)

    def min_insync_replicas(self, name: str) -> int:
        """How many replicas must be in sync, as the cluster sees it.

        Settings of this one broker are ignored: the controller would not know what a leader
        takes for committed, and might elect a replica that lacks it.
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
        return SyncPolicy(self._options.maintenance.fsync, options.flush_messages, options.flush_ms)

    def log_options(self, topic: str) -> LogOptions:
        # Once for all partitions of a topic: a start opens thousands.
        options = self.of(topic)
        made = self._made.get(topic)
        if made is None or made[0] is not options:
            made = self._made[topic] = (options, self._log_options(options))
        return made[1]

    def _log_options(self, options: TopicOptions) -> LogOptions:
        deletes = CleanupPolicy.DELETE in options.cleanup
        segment_ms = options.segment_ms
        if options.compacted:
            # The active segment cannot be compacted.
            segment_ms = min(segment_ms, options.max_compaction_lag_ms)
        segment_ms = max(segment_ms, SEGMENT_MS_MIN)
        return LogOptions(
            segment_bytes=options.segment_bytes,
            segment_ms=segment_ms,
            segment_jitter_ms=min(options.segment_jitter_ms, segment_ms - SEGMENT_MS_MIN),
            index_interval_bytes=options.index_interval_bytes,
            index_bytes_max=options.segment_index_bytes,
            time_index_interval_ms=self._options.time_index_interval_ms,
            retention_ms=options.retention_ms if deletes else FOR_EVER,
            retention_bytes=options.retention_bytes if deletes else FOR_EVER,
            message_bytes_max=options.max_message_bytes,
            checkpoint_ms=self._options.checkpoint_ms,
            producer_expiry_ms=self._broker("producer.id.expiration.ms"),
            file_delete_delay_ms=options.file_delete_delay_ms,
            may_have_gaps=options.compacted,
            rebuild_bytes_max=self._options.rebuild_bytes_max,
            is_encrypted=options.encryption_at_rest,
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
        """How often to check for something to compact; None: never."""
        if not self._broker("log.cleaner.enable"):
            return None
        return self._broker("log.cleaner.backoff.ms")

    def scrub_options(self) -> ScrubOptions:
        """How segments are verified in the background."""
        return ScrubOptions(self._broker("log.scrub.bytes.per.second"), self._broker("log.scrub.interval.ms"))

    def scrub_requested(self) -> Timestamp:
        """Before when the last scrub must not have begun."""
        return Timestamp(self._broker("log.scrub.requested.ms"))

    def quarantine_dropped_before(self) -> Timestamp:
        """Before when nothing is kept in quarantine."""
        return Timestamp(self._broker("log.quarantine.drop.before.ms"))

    def producers_max(self) -> int:
        """How many idempotent producers all logs of this node remember together."""
        return self._broker("producer.ids.max")

    def session_ns(self, brokers: Nodes) -> int:
        """For how long any of these may answer as a leader without hearing of its successor."""
        return max((self._image.session_ns(node) for node in brokers), default=0)

    def lag_max_ns(self) -> int:
        """How long a replica may lag behind before it leaves the ISR."""
        if self._lag_max_ns is None:
            self._lag_max_ns = self._broker("replica.lag.time.max.ms") * MILLISECOND
        return self._lag_max_ns

    def _broker(self, key: str) -> int:
        value = broker_setting(self._image, key, self._node_id, self._options.static)
        assert isinstance(value, int), key
        return value


class ReplicaRoles:
    """Gives roles to logs, takes them back, and finds them."""

    def __init__(
        self,
        me: NodeId,
        runtime: Runtime,
        settings: LogSettings,
        mending: ReplicaRepair,
        side_disk: Disk,
    ) -> None:
        self._me = me
        self._runtime = runtime
        self._settings = settings
        self._repair = mending
        self._side_disk = side_disk
        self.led: dict[tuple[str, int], LeaderPartition] = {}
        self.led_by_id: dict[tuple[TopicId, int], LeaderPartition] = {}
        self.followed: dict[tuple[TopicId, int], FollowerPartition] = {}
        # Leaderships that wait for a former leader.
        self._handovers: dict[LeaderPartition, None] = {}
        # Former leaders that heard of an epoch before this node did.
        self._resigned: dict[tuple[TopicId, int], tuple[NodeId, LeaderEpoch]] = {}

    def _offload(
        self,
        work: Callable[[Disk], KeptTail],
        done: Callable[[KeptTail], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._runtime.spawn.spawn(partial(work, self._side_disk), done, failed, ExecutorKind.DISK)

    def assign(self, replica: Replica, state: PartitionState, former_leaders: Nodes = ()) -> bool:
        """Give a log the role that the metadata says; returns whether the role changed.

        `former_leaders` are live and may not have heard of this state.
        """
        role = replica.role
        if state.leader == self._me:
            assignment = CommittedPartitionState(
                state.replicas, state.isr, state.partition_epoch, self._minimum(replica)
            )
            if isinstance(role, LeaderPartition) and role.leader_epoch == state.leader_epoch:
                role.assignment_changed(assignment)
                return False
            self.take_back(replica, f"leader epoch {state.leader_epoch} has started")
            term = Leadership(
                self._me,
                state.leader_epoch,
                assignment,
                self._settings.lag_max_ns(),
                former_leaders,
                self._settings.session_ns(former_leaders),
            )
            self._lead(replica, LeaderPartition(replica, term, self._runtime))
            if state.unclean_epoch == state.leader_epoch:
                state_loss(str(replica.name), replica.log.end, state)
            return True
        if state.leader == NO_LEADER:
            self.take_back(replica, "the partition has no leader")
            return role is not None
        if isinstance(role, FollowerPartition) and role.leader_epoch == state.leader_epoch:
            return False
        self.take_back(replica, f"broker {state.leader} leads in epoch {state.leader_epoch}")
        needs_refill = self._repair.repair(replica, state)
        followed = FollowerPartition(
            replica, state.leader, state.leader_epoch, self._runtime, self._offload, state.unclean_epoch
        )
        followed.needs_refill = needs_refill
        replica.role = followed
        self.followed[replica.topic_id, replica.name.partition] = followed
        return True

    def settings_changed(self, replica: Replica) -> None:
        """Apply the topic's `min.insync.replicas`, which may have changed."""
        role = replica.role
        if isinstance(role, LeaderPartition):
            role.assignment_changed(role.isr.assignment._replace(minimum=self._minimum(replica)))

    def _minimum(self, replica: Replica) -> int:
        return self._settings.min_insync_replicas(replica.name.topic)

    def _lead(self, replica: Replica, partition: LeaderPartition) -> None:
        replica.role = partition
        self.led[replica.name.topic, replica.name.partition] = partition
        key = (replica.topic_id, replica.name.partition)
        self.led_by_id[key] = partition
        node, epoch = self._resigned.pop(key, (self._me, NO_LEADER_EPOCH))
        if epoch == partition.leader_epoch:
            partition.former_leader_left(node)
        if partition.former_leaders:
            self._handovers[partition] = None

    def leader_resigned(self, replica: Replica, node: NodeId, epoch: LeaderEpoch) -> None:
        """A broker that led before, and keeps no replica any more, has heard of this leader epoch."""
        role = replica.role
        if isinstance(role, LeaderPartition) and role.leader_epoch >= epoch:
            if role.leader_epoch == epoch:
                role.former_leader_left(node)
        else:
            self._resigned[replica.topic_id, replica.name.partition] = (node, epoch)

    def forget(self, replica: Replica) -> None:
        """The log is gone from this node."""
        self._resigned.pop((replica.topic_id, replica.name.partition), None)

    def on_brokers(self, image: MetadataImage) -> None:
        """A broker that is fenced now has no lease, whatever it has heard."""
        for partition in list(self._handovers):
            for node in list(partition.former_leaders):
                if not image.is_live(node):
                    partition.former_leader_left(node)
            if not partition.former_leaders or partition.stopped is not None:
                del self._handovers[partition]

    def take_back(self, replica: Replica, reason: str) -> None:
        """End the role of a log: this node neither leads nor follows it any more."""
        topic, index = replica.name
        key = (replica.topic_id, index)
        if self.led_by_id.pop(key, None) is not None:
            del self.led[topic, index]
        self.followed.pop(key, None)
        replica.resign(reason)


class ReplicaManager:
    """Opens, creates, serves and removes the logs of this node."""

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        store: LogStore,
        options: ReplicaManagerOptions | None = None,
        lease: BrokerLease | None = None,
        work: SlicedWork | None = None,
    ) -> None:
        options = options or ReplicaManagerOptions()
        self._work = SlicedWork(runtime.clock.now, runtime.timers.soon) if work is None else work
        # Until when this node may answer for what it leads; a node on its own always may.
        self.lease = lease or BrokerLease(FOREVER)
        self._node_id = node_id
        self._runtime = runtime
        self._settings = LogSettings(node_id, options, self._configure_now, has_keys=store.vault is not None)
        # Topics whose logs are still to get the settings that brokers have now.
        self._unconfigured: dict[str, None] = {}
        # Cached results of `options`, by topic: every batch needs them.
        self.known_options: Mapping[str, TopicOptions] = self._settings.known
        self._log_manager = LogManager(runtime, store)
        # For threads: see `LogStore`.
        self.side_disk = store.side_disk
        self._replicas: dict[tuple[TopicId, int], Replica] = {}
        self._repair = ReplicaRepair(node_id, runtime, self._all, self._replicas.get)
        self._reports = ReplicaReporter(node_id, runtime, self._replicas)
        self._divergences = DivergenceReporter(node_id, runtime)
        self._roles = ReplicaRoles(node_id, runtime, self._settings, self._repair, store.side_disk)
        # Called when this node does not keep a partition any more that it led: who leads it now.
        self._when_led_elsewhere: list[Callable[[TopicId, PartitionState], None]] = []
        # By topic and index, for lookups on every request.
        self.led_by_name: Mapping[tuple[str, int], LeaderPartition] = self._roles.led
        self._image = EMPTY_IMAGE
        # The image that the roles are of: an older one while a new one is gone through.
        self._roles_image = EMPTY_IMAGE
        self._directory: DataDirectory | None = None
        # By name: of two topics of one name, the second waits until the first is removed. Numbered as begun.
        self._making: dict[TopicPartition, int] = {}
        self._begun = 0
        # Logs of deleted topics that are still to be let go.
        self._deleted: dict[TopicPartition, Replica] = {}
        # Those that were let go of late: topics of the same names may wait for them.
        self._abandoned: list[TopicPartition] = []
        # Logs that cannot be used yet, and whether they are on disk already.
        self._offline: dict[tuple[TopicId, int], bool] = {}
        # Why some of them could not be opened or created, so that it is said once.
        self._not_opened: dict[tuple[TopicId, int], str] = {}
        self._opening_pause_ms = RETRY_MS
        # Whether a master key was missing for any of them.
        self._lacks_keys = False
        self._is_closed = False
        # Who waits for logs that are being made, those numbered up to here, or those of a topic.
        self._on_logs_ready: deque[tuple[int, Callable[[], None]]] = deque()
        self._making_of: Counter[str] = Counter()
        self._on_topic_ready: dict[str, list[Callable[[], None]]] = {}
        # Logs that were opened and are still to be synced, and what waits for that.
        self._unsynced = 0
        self._on_synced: Callback | None = None
        self._when_roles_change: list[Callable[[], None]] = []
        self._retry: Timer | None = None
        self._telling: Timer | None = None
        # How long the last notice took.
        self._telling_ns = 0
        self.maintenance = LogMaintenance(
            runtime,
            self._all,
            options.maintenance,
            self._settings.producers_max,
            store.disk.take_shortage,
        )
        self.cleaner = LogCleaner(runtime, cleaner_for(store.side_disk), self._compacted)
        self.scrubber = LogScrubber(runtime, self._all, store.side_disk)
        self._dropped_before = Timestamp(0)

    def _all(self) -> list[Replica]:
        return list(self._replicas.values())

    def _compacted(self) -> Iterator[tuple[Replica, CompactionRules | None]]:
        """Every log that there is now, and how it is compacted, if its topic asks for it."""
        for replica in self._all():
            # Its topic may have been deleted since: then nothing is to be learned of its settings.
            if self._replicas.get((replica.topic_id, replica.name.partition)) is replica:
                yield replica, self._settings.compaction(replica.name.topic)

    def find(self, topic: str, index: int) -> LeaderPartition | None:
        """The partition, if this node leads it."""
        return self.led_by_name.get((topic, index))

    def find_by_id(self, topic_id: TopicId, index: int) -> LeaderPartition | None:
        """The partition, if this node leads it."""
        return self._roles.led_by_id.get((topic_id, index))

    def find_followed(self, topic_id: TopicId, index: int) -> FollowerPartition | None:
        """The partition, if this node follows its leader."""
        return self._roles.followed.get((topic_id, index))

    def find_replica(self, topic_id: TopicId, index: int) -> Replica | None:
        """The log, whatever its role."""
        return self._replicas.get((topic_id, index))

    def is_compacted(self, topic: str) -> bool:
        """Whether a log of the topic may have gaps that another replica's does not have yet."""
        return self._settings.compaction(topic) is not None

    def find_log(self, topic: str, index: int) -> Replica | None:
        """The log, whatever its role."""
        topic_id = self._image.topic_id(topic)
        return None if topic_id is None else self._replicas.get((topic_id, index))

    def offline_reason(self, topic: str, index: int) -> str | None:
        """Why the log of a partition cannot be used here, if it should be; None if it can, or is not here."""
        topic_id = self._image.topic_id(topic)
        if topic_id is None:
            return None
        key = (topic_id, PartitionIndex(index))
        reason = self._not_opened.get(key) or self._repair.lost().get(key)
        return SETTINGS_NOT_VALID if reason is None and key in self._offline else reason

    @property
    def offline_count(self) -> int:
        """How many logs of this node cannot be used."""
        return len(self._offline | self._not_opened | self._repair.lost())

    def led(self) -> list[LeaderPartition]:
        """Every partition that this node leads."""
        return list(self.led_by_name.values())

    def followed(self) -> list[FollowerPartition]:
        """Every partition whose leader this node follows."""
        return list(self._roles.followed.values())

    def on_roles_change(self, told: Callable[[], None]) -> None:
        """Call `told` whenever this node has begun or ceased to lead or follow something."""
        self._when_roles_change.append(told)

    def on_logs_ready(self, done: Callable[[], None]) -> None:
        """Call `done` when every log of the metadata as it is now exists; perhaps at once.

        Later ones do not count: where topics are created all the time, some log is always being made.
        """
        if self._making:
            self._on_logs_ready.append((self._begun, done))
        else:
            done()

    def on_topics_ready(self, names: Iterable[str], done: Callable[[], None]) -> None:
        """Call `done` when no log of these topics is being made; perhaps at once."""
        unready = [name for name in dict.fromkeys(names) if self._making_of[name]]
        left = len(unready)

        def ready() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                done()

        for name in unready:
            self._on_topic_ready.setdefault(name, []).append(ready)
        if not unready:
            done()

    def offline(self) -> dict[TopicPartition, str]:
        """The partitions whose logs are placed here and cannot be used, and why."""
        reasons = dict.fromkeys(self._offline, SETTINGS_NOT_VALID) | self._not_opened | self._repair.lost()
        found: dict[TopicPartition, str] = {}
        for (topic_id, index), reason in reasons.items():
            topic = self._image.topic_name(topic_id)
            if topic is not None:
                found[TopicPartition(topic, PartitionIndex(index))] = reason
        return found

    def damaged(self) -> dict[TopicPartition, str]:
        """The partitions whose logs are open, and damaged or stopped, and why."""
        found: dict[TopicPartition, str] = {}
        for replica in self._replicas.values():
            log = replica.log
            if log.stopped is not None:
                found[replica.name] = str(log.stopped)
            elif log.has_damage:
                damage = log.corruption[0]
                found[replica.name] = f"offsets {damage.start} to {damage.end - 1}: {damage.reason}"
        return found

    def options(self, topic: str) -> TopicOptions:
        """A topic's options."""
        return self.known_options.get(topic) or self._settings.of(topic)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._replicas)

    def start_scrub(self) -> None:
        """Verify what is on disk in the background, from now on."""
        self.scrubber.start(self._settings.scrub_options())
        self._obey_requests()

    def _obey_requests(self) -> None:
        """Begin a scrub, and remove what is in quarantine, if an operator has asked for it."""
        self.scrubber.request(self._settings.scrub_requested())
        before = self._settings.quarantine_dropped_before()
        if before > self._dropped_before:
            self._dropped_before = before
            drop = partial(drop_quarantines, self.side_disk, self.scrubber.directories(), before)
            self._runtime.spawn.spawn(drop, _quarantine_dropped, _quarantine_kept, ExecutorKind.DISK)

    def measure_quarantines(
        self, replicas: Sequence[Replica], done: Callable[[dict[str, QuarantineSize]], None]
    ) -> None:
        """Call `done` with what these logs have in quarantine, by directory; nothing if it cannot be read."""

        def failed(error: Exception) -> None:
            events.warning("quarantine.not_measured", error=error)
            done({})

        directories = [replica.log.directory for replica in replicas]
        work = partial(measure_quarantines, self.side_disk, directories)
        self._runtime.spawn.spawn(work, done, failed, ExecutorKind.DISK)

    def start_repair(self, broker_epoch: BrokerEpoch, submit: Submit) -> None:
        """Start resigning from damaged logs, with the controller's consent."""
        self._repair.start(broker_epoch, submit)

    def report_replicas(self, broker_epoch: BrokerEpoch, submit: Submit, done: Callback) -> None:
        """Tell the controller what the logs hold; `done` is called when it knows, before we may lead."""

        def report() -> None:
            self._divergences.start(broker_epoch, submit, self._image)
            self._reports.start(broker_epoch, submit, self._image, done)

        if self._unsynced:
            # What is reported has to survive a power cut.
            self._on_synced = report
        else:
            report()

    @property
    def are_synced(self) -> bool:
        """Whether everything that was found in the logs at the start is durable."""
        return not self._unsynced

    def _sync_opened(self) -> None:
        """Make durable what a former process had appended last, with one round for all logs."""
        for replica in self:
            if replica.log.stopped is None and replica.log.synced < replica.log.end:
                self._unsynced += 1
                replica.log.sync(partial(self._opened_synced, replica))

    def _opened_synced(self, replica: Replica, error: StorageError | None) -> None:
        self._unsynced -= 1
        if error is not None and self._replicas.get((replica.topic_id, replica.name.partition)) is replica:
            # Otherwise it was removed meanwhile, and nothing has failed.
            replica.on_storage_error()
        if not self._unsynced and self._on_synced is not None:
            then, self._on_synced = self._on_synced, None
            then()

    def open_all(self, image: MetadataImage, directory: DataDirectory) -> list[RecoveryReport]:
        """Open every log that the metadata places here, before clients are served. Blocks."""
        reports: list[RecoveryReport] = []
        for _ in self.open_in_slices(image, directory, reports):
            pass
        return reports

    def open_in_slices(
        self, image: MetadataImage, directory: DataDirectory, reports: list[RecoveryReport]
    ) -> Slices:
        """The same in slices, if there are many: the node must be heard of while it opens thousands.

        Directories that the metadata does not know are moved aside; those of replicas that were
        moved to other brokers are removed. One that may be the log of another topic is moved aside if the
        partition has other replicas, which fill an empty one; else it stays, and the partition is offline.
        Newer metadata than `image` is for `on_metadata`, after all of it.
        """
        self._image = self._roles_image = image
        self._directory = directory
        self._settings.on_metadata(image)
        self._repair.on_metadata(image)
        damaged: dict[tuple[TopicId, int], str] = {}
        present: list[PartitionDirectory] = []
        for found in directory.each_partition():
            present.append(found)
            if len(present) > OPENED_AT_ONCE and len(present) % OPENED_PER_SLICE == 0:
                yield
        for number, found in enumerate(present):
            if len(present) > OPENED_AT_ONCE and number % OPENED_PER_SLICE == 0:
                yield
            self._open_found(found, directory, damaged, reports)
        self._sync_opened()
        self._log_manager.remove_stray_logs(lambda name: image.topic(name) is not None)
        self.maintenance.start()
        backoff_ms = self._settings.cleaner_backoff_ms()
        if backoff_ms is not None:
            self.cleaner.start(backoff_ms)
        self.start_scrub()
        self._find_lost(damaged)
        # A crash may have come between the creation of a topic and that of its logs.
        self._make_missing()
        self._tell_roles()

    def _open_found(
        self,
        found: PartitionDirectory,
        directory: DataDirectory,
        damaged: dict[tuple[TopicId, int], str],
        reports: list[RecoveryReport],
    ) -> None:
        image = self._image
        topic = image.topic(found.partition.topic)
        state = topic.partition(found.partition.partition) if topic is not None else None
        if topic is None or state is None or self._is_foreign(found, topic, state):
            self._set_aside(found, directory)
        elif self._is_lost(found, topic, state):
            place = self._set_aside(found, directory)
            reason = found.damage or f"its directory is that of topic {found.topic_id}"
            damaged[topic.id, state.index] = f"{reason}; it is kept in {place}"
        elif self._node_id not in state.replicas:
            events.info("partition.reassigned_away", partition=str(found.partition))
            self._log_manager.mark_deleted(found.partition, topic.id)
        elif not self._settings.is_usable(topic.name):
            self._take_offline(topic, state, on_disk=True)
            self._settle_log(found.partition, topic.id)
        elif (report := self._open_now(topic, state, is_synced_later=True)) is not None:
            reports.append(report)

    def _is_foreign(self, found: PartitionDirectory, topic: Topic, state: PartitionState) -> bool:
        """Whether a directory is certainly not the log of this partition, or one that was never finished."""
        if found.is_unreadable or (found.topic_id == topic.id and not found.damage):
            return False
        if self._node_id not in state.replicas:
            return True
        if self._is_loss_accepted(found, state):
            self._log_manager.forget(found.partition, topic.id)
            return True
        # A topic of the same name was deleted while the node was down, or the creation was interrupted.
        return not found.damage and not self._log_manager.had_log((topic.id, state.index))

    def _is_loss_accepted(self, found: PartitionDirectory, state: PartitionState) -> bool:
        """Whether an operator gives up what the only replica had."""
        if not self.side_disk.exists(f"{found.path}/{ACCEPT_LOSS}"):
            return False
        if len(state.replicas) > 1:
            events.warning(
                "partition.accept_loss_ignored",
                partition=str(found.partition),
                reason="other replicas fill it: an empty log must not pass for a complete one",
            )
            return False
        events.warning("partition.loss_accepted", partition=str(found.partition), path=found.path)
        return True

    def _is_lost(self, found: PartitionDirectory, topic: Topic, state: PartitionState) -> bool:
        """Whether nothing can be done with a directory, or other replicas fill an empty log in its place."""
        if found.is_unreadable or (found.topic_id == topic.id and not found.damage):
            return False
        if not found.has_log:
            return True
        if found.topic_id is None and self._log_manager.had_log((topic.id, state.index)):
            # It gets its identity back.
            return False
        return len(state.replicas) > 1 or not (found.has_records or found.topic_id)

    def _set_aside(self, found: PartitionDirectory, directory: DataDirectory) -> str:
        place = directory.set_aside(found)
        events.warning("partition.stray_log_set_aside", partition=str(found.partition), place=place)
        return place

    def _settle_log(self, name: TopicPartition, topic_id: TopicId) -> None:
        """A log that is offline for its settings must not need the journal, which may give it up."""
        try:
            self._log_manager.settle(name, topic_id)
        except (StorageError, CorruptionError) as error:
            events.error("partition.not_opened", partition=str(name), error=error)

    def _find_lost(self, damaged: Mapping[tuple[TopicId, int], str]) -> None:
        """Distinguish logs that were lost from those that were never created."""
        created = self._log_manager.created
        known = dict.fromkeys(created.all())
        expected = {
            (topic.id, state.index): (topic, state)
            for topic, state in self._image.partitions_of(self._node_id)
        }
        present = {key: None for key in expected if key in self._replicas or key in self._offline}
        # The journal remembers logs also if nothing else is left that says that they were there.
        missing = [key for key in expected if key not in present and key not in known]
        known |= dict.fromkeys(key for key in missing if self._log_manager.durable_end(key))
        unknown = [key for key in present if key not in known and key not in self._not_opened]
        if unknown:
            # Their creation was interrupted, or they are older than the list of known logs.
            created.add(unknown)
        for key, (topic, state) in expected.items():
            reason = damaged.get(key, "its directory or its identity is missing" if key in known else "")
            if reason and key not in present:
                if end := self._log_manager.durable_end(key):
                    reason = f"{reason}; it was durable up to offset {end}"
                self._repair.on_log_lost(topic, state, reason)
                self._reports.on_lost(key)
        for key in known:
            if key not in expected:
                created.discard(key)
        self._log_manager.forget_others(expected)

    def on_metadata(self, image: MetadataImage) -> None:
        """Bring the logs and their roles in step with a new image."""
        before, self._image = self._image, image
        self._repair.on_metadata(image)
        self._reports.on_metadata(image)
        self._divergences.on_metadata(image)
        self._apply_settings(self._settings.on_metadata(image))
        if before.brokers is not image.brokers:
            self._roles.on_brokers(image)
        if before.topics is not image.topics:
            self._follow_topics(image, before)
        self._roles_image = image

    def _follow_topics(self, image: MetadataImage, before: MetadataImage) -> None:
        changed = False
        for topic_id in before.topics.keys_missing_in(image.topics):
            gone = before.topic_by_id(topic_id)
            assert gone is not None
            changed = self._remove_topic(gone) or changed
        for topic_id in image.topics.keys_changed_since(before.topics):
            topic = image.topic_by_id(topic_id)
            assert topic is not None
            changed = self._follow_topic(topic, before.topic_by_id(topic_id)) or changed
        if changed:
            self._tell_roles()

    def _follow_topic(self, topic: Topic, before: Topic | None) -> bool:
        """Apply a topic's new state; returns whether this node's role in a partition changed."""
        self._settings.topic_changed(topic, before)
        changed = False
        for state in topic.partitions:
            if before is not None and before.partition(state.index) is state:
                continue
            replica = self._replicas.get((topic.id, state.index))
            if self._node_id not in state.replicas:
                if replica is not None:
                    led = isinstance(replica.role, LeaderPartition)
                    self._remove(replica, "the replica was moved to other brokers")
                    for notify in self._when_led_elsewhere if led else ():
                        notify(topic.id, state)
                    changed = True
                else:
                    self._remove_offline(topic, state)
                continue
            if replica is None:
                self._make(topic, state)
            else:
                former = None if before is None else before.partition(state.index)
                unaware = () if former is None else self._former_leaders(replica, former, state)
                changed = self._roles.assign(replica, state, unaware) or changed
            self._reports.on_partition(topic.id, state)
        return changed

    def _former_leaders(self, replica: Replica, before: PartitionState, state: PartitionState) -> Nodes:
        """Brokers that may answer as the leader for a while, because they have not heard of this state.

        One that is fenced has no lease. States in between may have passed this node by: then any replica
        can have led. Whoever led before the last leader may not have heard of that one either.
        """
        if before.leader_epoch == state.leader_epoch:
            return ()
        nodes: Nodes = (before.leader,)
        if state.leader_epoch > before.leader_epoch + 1:
            nodes = (*before.replicas, *state.replicas)
        now, unaware = self._runtime.clock.now(), replica.unaware
        unaware.update((node, Instant(now + self._image.session_ns(node))) for node in nodes)
        for node, until in list(unaware.items()):
            if until <= now or node in (self._node_id, state.leader) or not self._image.is_live(node):
                del unaware[node]
        return tuple(unaware)

    def on_led_elsewhere(self, notify: Callable[[TopicId, PartitionState], None]) -> None:
        """Call `notify` when a partition that this node led has moved away altogether."""
        self._when_led_elsewhere.append(notify)

    def leader_resigned(self, topic_id: TopicId, index: int, node: NodeId, epoch: LeaderEpoch) -> None:
        """A broker that led before, and keeps no replica any more, has heard of this leader epoch."""
        replica = self._replicas.get((topic_id, index))
        if replica is not None:
            self._roles.leader_resigned(replica, node, epoch)

    def _tell_roles(self) -> None:
        # One line for all of them: a broker that fails may have led thousands.
        events.info(
            "partitions.roles_changed",
            leads=len(self.led_by_name),
            follows=len(self._roles.followed),
            logs=len(self),
        )
        began = self._runtime.clock.now()
        for told in self._when_roles_change:
            told()
        self._telling_ns = self._runtime.clock.now() - began

    def _tell_roles_soon(self) -> None:
        """Notify listeners later: a topic may have thousands of partitions, and each notice covers all."""

        def tell() -> None:
            self._telling = None
            self._tell_roles()

        if self._telling is None:
            pause_ns = max(TELLING_MS * MILLISECOND, TELLING_SHARE * self._telling_ns) if self._making else 0
            pause_ns = min(pause_ns, TELLING_MS_MAX * MILLISECOND)
            deadline = Instant(self._runtime.clock.now() + pause_ns)
            self._telling = self._runtime.timers.at(deadline, tell)

    def _apply_settings(self, topics: list[str] | None) -> None:
        """Have the logs of these topics follow their settings; None: of all topics, in slices.

        Whoever asks for a topic's settings before its turn, as Produce does, has its logs follow at once.
        """
        if topics is None:
            are_underway = bool(self._unconfigured)
            self._unconfigured = dict.fromkeys(replica.name.topic for replica in self)
            if self._unconfigured and not are_underway:
                self._work.run(self._configure_the_rest())
            self._obey_requests()
        else:
            for name in topics:
                self._unconfigured.pop(name, None)
                self._configure(name)
        if topics is None or topics:
            self._bring_online()

    def _configure_the_rest(self) -> Slices:
        logs = 0
        while self._unconfigured and not self._is_closed:
            name = next(iter(self._unconfigured))
            del self._unconfigured[name]
            logs += LOGS_PER_TOPIC + self._configure(name)
            if logs >= CONFIGURED_AT_ONCE:
                logs = 0
                yield

    def _configure_now(self, name: str) -> None:
        if name in self._unconfigured:
            del self._unconfigured[name]
            self._configure(name)

    def _configure(self, name: str) -> int:
        """Have a topic's logs follow its settings; returns how many logs these are."""
        topic = self._image.topic(name)
        if topic is None:
            return 0
        found = [self._replicas.get((topic.id, state.index)) for state in topic.partitions]
        replicas = [replica for replica in found if replica is not None]
        if not replicas:
            return 0
        options, policy = self._settings.log_options(name), self._settings.sync_policy(name)
        former = self._roles_image.topic_by_id(topic.id)
        for replica in replicas:
            replica.log.configure(options)
            replica.configure(policy)
            index = replica.name.partition
            if former is not None and former.partition(index) is topic.partition(index):
                # Otherwise the new minimum comes with the new ISR: with the former one it was never in
                # force, and the leader would acknowledge what the controller takes for uncommitted.
                self._roles.settings_changed(replica)
        return len(replicas)

    def _take_offline(self, topic: Topic, state: PartitionState, *, on_disk: bool) -> None:
        if (topic.id, state.index) not in self._offline:
            self._offline[topic.id, state.index] = on_disk
            if on_disk:
                self._reports.on_not_opened((topic.id, state.index))
            events.error(
                "partition.offline",
                partition=f"{topic.name}/{state.index}",
                reason=f"{SETTINGS_NOT_VALID}: see topic.settings_invalid",
            )

    def _bring_online(self) -> None:
        """Open or create the logs whose settings have become valid. Blocks, if there are any."""
        for (topic_id, index), on_disk in list(self._offline.items()):
            topic = self._image.topic_by_id(topic_id)
            state = None if topic is None else topic.partition(index)
            if topic is None or state is None or self._node_id not in state.replicas:
                # It is handled when the topics are gone through.
                continue
            if not self._settings.is_usable(topic.name):
                continue
            del self._offline[topic_id, index]
            if not on_disk:
                self._make(topic, state)
                continue
            if self._open_now(topic, state) is not None:
                events.info("partition.online", partition=f"{topic.name}/{index}")
                self._tell_roles_soon()

    def _remove_offline(self, topic: Topic, state: PartitionState) -> None:
        """Remove a log that was offline and is no longer placed here."""
        self._not_opened.pop((topic.id, state.index), None)
        if self._offline.pop((topic.id, state.index), False):
            self._log_manager.delete(TopicPartition(topic.name, state.index), topic.id)

    def _open_now(
        self, topic: Topic, state: PartitionState, *, is_synced_later: bool = False
    ) -> RecoveryReport | None:
        """Open a log; one that cannot be opened is offline, and the node serves the others. Blocks."""
        key = (topic.id, state.index)
        try:
            report = self._open(topic, state, is_synced_later=is_synced_later)
        except (StorageError, CorruptionError) as error:
            self._lacks_keys = self._lacks_keys or isinstance(error, KeyUnavailable)
            self._offline[key] = True
            self._reports.on_not_opened(key)
            if self._not_opened.get(key) != str(error):
                events.error("partition.not_opened", partition=f"{topic.name}/{state.index}", error=error)
            self._not_opened[key] = str(error)
            # Whoever relies on it continues without it, if others are complete.
            self._repair.resign(topic.id, TopicPartition(topic.name, state.index))
            self._try_again_later()
            return None
        return report

    def _open(self, topic: Topic, state: PartitionState, *, is_synced_later: bool = False) -> RecoveryReport:
        name, options = TopicPartition(topic.name, state.index), self._settings.log_options(topic.name)
        log, report = self._log_manager.open(name, topic.id, options, is_synced_later=is_synced_later)
        self._take_in(topic, state, log, report)
        return report

    def _take_in(
        self, topic: Topic, state: PartitionState, log: PartitionLog, report: RecoveryReport
    ) -> None:
        """A log is open: give it its role."""
        name = TopicPartition(topic.name, state.index)
        replica = Replica(name, topic.id, log, self._settings.sync_policy(topic.name))
        replica.on_storage_error = partial(self._on_storage_error, replica)
        replica.on_divergence = partial(self._divergences.report, replica)
        self._replicas[topic.id, state.index] = replica
        self._not_opened.pop((topic.id, state.index), None)
        self._reports.on_opened((topic.id, state.index), report)
        self._roles.assign(replica, state)
        self._reports.on_partition(topic.id, state)

    def _on_storage_error(self, replica: Replica) -> None:
        if replica.log.stopped is not None and self._directory is not None:
            # The kernel has dropped what it could not write: it is not in the page cache any more.
            try:
                self._directory.forget_boot()
            except StorageError as error:
                events.warning("partition.boot_not_forgotten", partition=str(replica.name), error=error)
        self._repair.resign(replica.topic_id, replica.name)

    def _make_missing(self) -> None:
        for topic, state in self._image.partitions_of(self._node_id):
            if (topic.id, state.index) not in self._replicas:
                self._make(topic, state)

    def _make_of_name(self, name: TopicPartition) -> None:
        """Perhaps another topic of this name has been waiting for the log of this one to be removed."""
        topic = self._image.topic(name.topic)
        state = None if topic is None else topic.partition(name.partition)
        if topic is None or state is None or self._node_id not in state.replicas:
            return
        if (topic.id, state.index) not in self._replicas:
            self._make(topic, state)

    def _make(self, topic: Topic, state: PartitionState) -> None:
        name = TopicPartition(topic.name, state.index)
        if name in self._making or name in self._deleted or (topic.id, state.index) in self._offline:
            return
        if not self._repair.may_create(topic.id, state):
            return
        if not self._settings.is_usable(topic.name):
            self._take_offline(topic, state, on_disk=False)
            return
        self._begun += 1
        self._making[name] = self._begun
        self._making_of[topic.name] += 1

        def made(position: JournalPosition) -> None:
            del self._making[name]
            self._made(topic.id, name, position)
            self._settle(topic.name)

        def failed(error: Exception) -> None:
            del self._making[name]
            self._not_made(topic.id, name, error)
            self._settle(topic.name)

        def is_wanted() -> bool:
            return self._image.topic_by_id(topic.id) is not None

        self._log_manager.create(
            name, topic.id, self._settings.log_options(topic.name), made, failed, is_wanted
        )

    def _made(self, topic_id: TopicId, name: TopicPartition, position: JournalPosition) -> None:
        """An empty log was created; the metadata may have changed since it was requested."""
        topic = self._image.topic_by_id(topic_id)
        state = None if topic is None else topic.partition(name.partition)
        if topic is None or state is None or self._node_id not in state.replicas:
            self._log_manager.delete(name, topic_id)
            self._make_of_name(name)
            return
        try:
            opened = self._log_manager.open_created(
                name, topic_id, self._settings.log_options(topic.name), position
            )
            self._take_in(topic, state, *opened)
        except StorageError as error:
            # For lack of file descriptors, say. The log exists, so it need only be opened.
            self._offline[topic_id, name.partition] = True
            self._not_made(topic_id, name, error)
        else:
            self._tell_roles_soon()

    def _not_made(self, topic_id: TopicId, name: TopicPartition, error: Exception) -> None:
        if self._image.topic_by_id(topic_id) is None:
            # It was deleted meanwhile, and its directory with it.
            self._make_of_name(name)
            return
        if self._not_opened.get((topic_id, name.partition)) != str(error):
            events.error("partition.create_failed", partition=str(name), error=error)
        self._not_opened[topic_id, name.partition] = str(error)
        self._repair.resign(topic_id, name)
        self._try_again_later()

    def _try_again_later(self) -> None:
        """Retry later: a full disk may have room again, or a topic of the same name be removed."""
        if self._retry is not None:
            self._retry.cancel()
        # A log that cannot be opened blocks the loop each time, and seldom mends itself.
        pause_ms = self._opening_pause_ms if any(self._offline.values()) else RETRY_MS
        self._retry = self._runtime.timers.at(
            Instant(self._runtime.clock.now() + pause_ms * MILLISECOND), self._try_again
        )

    def _try_again(self) -> None:
        if self._is_closed:
            return
        if self._lacks_keys:
            # They may be back: without them there is no use in trying.
            self._lacks_keys = False
            self._log_manager.reload_keys(self._try_again)
            return
        is_opening = any(self._offline.values())
        self._opening_pause_ms = min(2 * self._opening_pause_ms, RETRY_MAX_MS) if is_opening else RETRY_MS
        self._bring_online()
        self._make_missing()

    def _settle(self, topic: str) -> None:
        """One log of the topic less is being made; perhaps another one in its place."""
        self._making_of[topic] -= 1
        if not self._making_of[topic]:
            del self._making_of[topic]
            for ready in self._on_topic_ready.pop(topic, ()):
                ready()
        waiting = self._on_logs_ready
        while waiting and waiting[0][0] < next(iter(self._making.values()), self._begun + 1):
            _, done = waiting.popleft()
            done()

    def _remove_topic(self, topic: Topic) -> bool:
        """Remove a topic's logs; returns whether there were any."""
        self._settings.forget(topic.name)
        keys = [(topic.id, state.index) for state in topic.partitions if self._node_id in state.replicas]
        if not keys:
            return False
        for key in keys:
            self._offline.pop(key, None)
            self._not_opened.pop(key, None)
        # Under another name from now on, whatever happens to this node.
        self._log_manager.delete_topic(topic.name, keys)
        doomed = [replica for replica in (self._replicas.pop(key, None) for key in keys) if replica]
        is_underway = bool(self._deleted)
        self._deleted.update((replica.name, replica) for replica in doomed)
        if not is_underway:
            self._abandoned.clear()
            if self._abandon_some():
                self._runtime.timers.soon(self._abandon_more)
        return bool(doomed)

    def _abandon_some(self) -> bool:
        """Let go of some logs of deleted topics; returns whether there are more.

        A topic may have thousands, and clients of others wait meanwhile.
        """
        for name in list(islice(self._deleted, ABANDONED_AT_ONCE)):
            replica = self._deleted[name]
            self._roles.take_back(replica, "the topic was deleted")
            self._roles.forget(replica)
            replica.log.abandon()
            self._log_manager.removed((replica.topic_id, name.partition))
            del self._deleted[name]
            self._abandoned.append(name)
        return bool(self._deleted)

    def _abandon_more(self) -> None:
        if self._abandon_some():
            self._runtime.timers.soon(self._abandon_more)
            return
        abandoned, self._abandoned = self._abandoned, []
        for name in abandoned:
            self._make_of_name(name)
        self._tell_roles()

    def _remove(self, replica: Replica, reason: str) -> None:
        del self._replicas[replica.topic_id, replica.name.partition]
        self._roles.take_back(replica, reason)
        self._roles.forget(replica)
        replica.log.abandon()
        self._log_manager.delete(replica.name, replica.topic_id)

    def checkpoint_all(self, done: Callable[[], None]) -> None:
        """Take a checkpoint of every log that needs one, concurrently; `done` is called when all have ended.

        Syncs are shared that way, and `close` finds nothing left to wait for.
        """
        logs = [log for log in (replica.log for replica in self) if log.stopped is None]
        logs = [log for log in logs if not log.is_checkpointed]
        left = len(logs)

        def ended(_: StorageError | None) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        for log in logs:
            log.checkpoint(ended)
        if not logs:
            done()

    def close(self) -> bool:
        """Make every log durable and close it; returns whether that was so for all of them. Blocks."""
        self._on_synced = None
        self._is_closed = True
        self.maintenance.stop()
        self.cleaner.stop()
        self.scrubber.stop()
        self._repair.stop()
        self._reports.stop()
        self._divergences.stop()
        for timer in (self._retry, self._telling):
            if timer is not None:
                timer.cancel()
        for replica in self._deleted.values():
            replica.log.abandon()
        closed = [self._close_log(replica) for replica in self]
        return all(closed)

    def _close_log(self, replica: Replica) -> bool:
        if replica.log.stopped is not None:
            return False
        try:
            replica.log.close()
        except (StorageError, CorruptionError) as error:
            # The others must be closed all the same.
            events.error("partition.close_failed", partition=str(replica.name), error=error)
            return False
        return True


def _quarantine_dropped(dropped: QuarantineSize) -> None:
    events.info("quarantine.dropped", files=dropped.files, bytes=dropped.size_bytes)


def _quarantine_kept(error: Exception) -> None:
    events.warning("quarantine.drop_failed", error=error)
