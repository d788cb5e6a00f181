"""Consumer groups on this node: the machine of `core.groups` on the coordinators of `__consumer_offsets`.

    GroupService ── group id ──► Coordinator ── GroupCoordinator (core, decides)
      │                             ├── group_records: facts in Kafka's own schemas
      │                             └── GroupMetricsRecorder: metrics and events
      └ list, lag

When replies are released, and what happens to commands that wait when a partition moves or fails,
is up to the coordinator runtime; this module has what is specific to groups.

Offsets inside transactions are records of transactional batches, which markers commit or abort. Their
commits come through `broker.transactions.offset_commits`.

A member of a share group may have leases on records when it is gone: `MemberReleases` gives them back.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol
from uuid import UUID

from penstock.broker.coordinator import group_records
from penstock.broker.coordinator.coordinators import (
    Coordinators,
    InternalTopicCreator,
    LedPartitions,
)
from penstock.broker.coordinator.group_metrics import (
    ClientKey,
    ConsumptionTracker,
    GroupMetrics,
    GroupMetricsRecorder,
    GroupPartitionLag,
    LagReader,
    LogLookup,
)
from penstock.broker.coordinator.group_topics import GroupTimeouts, GroupTopics
from penstock.broker.coordinator.runtime import Coordinator, CoordinatorOptions, CoordinatorSpec
from penstock.broker.partitions import LeaderPartition
from penstock.core.groups import (
    Command,
    ConsumerGroupOptions,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeShareGroup,
    Fact,
    FetchOffsets,
    ForgetTopics,
    GroupCoordinator,
    GroupOptions,
    GroupType,
    Heartbeat,
    ListedGroup,
    ListedGroups,
    ListGroups,
    MemberRemoved,
    MigrationPolicy,
    OffsetCommitted,
    OffsetDeleted,
    ReloadTopics,
    ShareGroupOptions,
    ShareGroupRemoved,
)
from penstock.core.metadata import OFFSETS_TOPIC, MetadataImage, broker_setting
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    NodeId,
    Offset,
    TopicId,
    TopicPartition,
)
from penstock.core.records import ControlRecord
from penstock.runtime import Runtime

_MS_PER_MINUTE = 60_000
# How often committed positions are counted.
COUNT_NS = 100 * MILLISECOND
# How often what members have sent is counted, over all groups.
METADATA_COUNT_NS = 1_000 * MILLISECOND
# Records have room for 32,767 bytes, whatever the characters.
GROUP_ID_CHARS_MAX = 8_000
NOT_SURE = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE, "this broker has lost contact with the controller; try again"
)
TOO_LONG = ApiError(ErrorKind.INVALID_GROUP, f"a group id has at most {GROUP_ID_CHARS_MAX} characters")


class MemberReleases(Protocol):
    """Releases what members of share groups have leased, and forgets queues of groups that are gone."""

    def release(self, group_id: str, member_id: str, topics: tuple[str, ...]) -> None: ...

    def forget(self, group_id: str, topics: tuple[tuple[TopicId, int], ...]) -> None: ...


@dataclass(frozen=True, slots=True)
class GroupServiceOptions:
    """Options of the groups on this node."""

    machine: GroupOptions = field(default_factory=GroupOptions)
    coordinator: CoordinatorOptions = field(default_factory=CoordinatorOptions)
    # Where the timeouts in `machine` come from, if they follow the metadata.
    timeouts: tuple[GroupTimeouts, ...] = ()
    releases: MemberReleases | None = None
    position_bytes_max: int = 256 << 20
    # What members of classic groups may send about themselves, all together.
    metadata_bytes_max: int = 32 << 20


def options_of_node(
    image: MetadataImage, node_id: NodeId, static: Mapping[str, str] = NO_CONFIGS
) -> GroupServiceOptions:
    """The options under Kafka's names, as they are when the node starts."""

    def number(key: str) -> int:
        value = broker_setting(image, key, node_id, static)
        assert isinstance(value, int), key
        return value

    assignors = broker_setting(image, "group.consumer.assignors", node_id, static)
    assert isinstance(assignors, tuple)
    migration = broker_setting(image, "group.consumer.migration.policy", node_id, static)
    timeouts = GroupTimeouts(node_id, image, static)
    share_timeouts = GroupTimeouts(node_id, image, static, GroupType.SHARE)
    return GroupServiceOptions(
        GroupOptions(
            session_timeout_ms_min=number("group.min.session.timeout.ms"),
            session_timeout_ms_max=number("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
            group_members_max=number("group.max.size"),
            offset_metadata_chars_max=number("offset.metadata.max.bytes"),
            offsets_retention_ms=number("offsets.retention.minutes") * _MS_PER_MINUTE,
            offsets_retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
            consumer=ConsumerGroupOptions(
                members_max=number("group.consumer.max.size"),
                assignors=assignors,
                migration=MigrationPolicy(migration),
                timeouts=timeouts,
            ),
            share=ShareGroupOptions(members_max=number("group.share.max.size"), timeouts=share_timeouts),
        ),
        CoordinatorOptions(commit_timeout_ms=number("offsets.commit.timeout.ms")),
        (timeouts, share_timeouts),
        position_bytes_max=number("offsets.memory.max.bytes"),
        metadata_bytes_max=number("group.metadata.memory.max.bytes"),
    )


class GroupPartitions(LedPartitions, LogLookup, Protocol):
    """The partitions that this node leads, and all its logs."""


class GroupObserver(GroupMetricsRecorder):
    """Also has the leases of lost members released."""

    def __init__(
        self,
        metrics: GroupMetrics,
        lags: LagReader,
        consumption: ConsumptionTracker,
        releases: MemberReleases | None,
    ) -> None:
        super().__init__(metrics, lags, consumption)
        self._releases = releases

    def member_removed(self, event: MemberRemoved) -> None:
        super().member_removed(event)
        if self._releases is not None and event.shared_topics:
            self._releases.release(event.group_id, event.member_id, event.shared_topics)

    def share_group_removed(self, event: ShareGroupRemoved) -> None:
        super().share_group_removed(event)
        if self._releases is not None:
            self._releases.forget(event.group_id, event.topics)


class GroupService:
    """Passes commands to the coordinator of their group, and knows where that is.

    Call `on_metadata` after `ReplicaManager.on_metadata`.
    """

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        partitions: GroupPartitions,
        topics: InternalTopicCreator,
        options: GroupServiceOptions | None = None,
        metrics: GroupMetrics | None = None,
    ) -> None:
        options = options or GroupServiceOptions()
        self.metrics = metrics or GroupMetrics()
        self._entropy = runtime.entropy
        self.consumption = ConsumptionTracker(self.metrics)
        self._lags = LagReader(partitions, runtime.clock)
        self._topics = GroupTopics()
        self._timeouts = options.timeouts
        machine = replace(options.machine, has_room=self._has_room, has_member_room=self._has_member_room)
        self._position_bytes_max = options.position_bytes_max
        self._metadata_bytes_max = options.metadata_bytes_max
        # What members have sent, with those that joined since it was counted, and when it is counted again.
        self._metadata_bytes = 0
        self._metadata_counted_until = Instant(0)
        # What positions take, and until when that is taken for true.
        self._counted_until = Instant(0)
        self.position_bytes = 0
        spec: CoordinatorSpec[GroupCoordinator, Command, Fact] = CoordinatorSpec(
            OFFSETS_TOPIC,
            lambda: GroupCoordinator(machine, self._topics),
            group_records,
            GroupObserver(self.metrics, self._lags, self.consumption, options.releases),
            (
                *(Heartbeat, FetchOffsets, DescribeGroup, DescribeConsumerGroup, ListGroups),
                DescribeShareGroup,
                *(ForgetTopics, ReloadTopics),
            ),
            (ForgetTopics, ReloadTopics),
            self._corrections,
            group_records.TransactionalOffsets(),
        )
        self._coordinators = Coordinators(node_id, runtime, partitions, topics, spec, options.coordinator)
        self._clock = runtime.clock
        self._lease = partitions.lease
        self._image = MetadataImage()

    def _has_room(self) -> bool:
        """Whether groups may have more positions, over all coordinators of this node."""
        now = self._clock.now()
        if now >= self._counted_until:
            self._counted_until = Instant(now + COUNT_NS)
            self.position_bytes = sum([each.machine.image.position_bytes for each in self._coordinators])
        return self.position_bytes < self._position_bytes_max

    def _has_member_room(self, size_bytes: int) -> bool:
        """Whether a member may join with so much metadata."""
        now = self._clock.now()
        if now >= self._metadata_counted_until:
            self._metadata_counted_until = Instant(now + METADATA_COUNT_NS)
            self._metadata_bytes = sum([each.machine.metadata_bytes for each in self._coordinators])
        if self._metadata_bytes + size_bytes > self._metadata_bytes_max:
            return False
        self._metadata_bytes += size_bytes
        return True

    @property
    def positions(self) -> int:
        """How many are committed, over all coordinators of this node."""
        return sum([each.machine.image.positions for each in self._coordinators])

    def random_id(self) -> str:
        """The random part of a new member's id, in the form that Kafka gives it."""
        return str(UUID(bytes=self._entropy.bytes(16), version=4))

    def submit(self, command: Command) -> None:
        """Serve a command that names one group; its callback gets the reply, perhaps at once."""
        assert not isinstance(command, ListGroups | ForgetTopics | ReloadTopics), "not about one group"
        if len(command.group_id) > GROUP_ID_CHARS_MAX:
            command.on_reply(TOO_LONG)
            return
        coordinator = self._coordinators.find(command.group_id)
        if isinstance(coordinator, ApiError):
            command.on_reply(coordinator)
        else:
            coordinator.submit(command)

    def partition_of(self, group_id: str) -> LeaderPartition | ApiError:
        """The partition that keeps the group, if its coordinator is on this node and serves."""
        coordinator = self._coordinators.find(group_id)
        if isinstance(coordinator, ApiError):
            return coordinator
        kind: ErrorKind | None = coordinator.state.value
        return coordinator.partition if kind is None else ApiError(kind)

    def end_transaction(
        self, partition: LeaderPartition, append: Callable[[], Offset | ApiError], marker: ControlRecord
    ) -> Offset | ApiError:
        """Have the partition's coordinator append a marker, and apply or drop the producer's positions."""
        for coordinator in self._coordinators:
            if coordinator.partition is partition:
                return coordinator.end_transaction(append, marker)
        # The metadata says that this node leads it, and the coordinator is about to be made.
        return ApiError(ErrorKind.COORDINATOR_LOADING)

    def list_groups(
        self, states: tuple[str, ...], types: tuple[str, ...], done: Callable[[ListedGroups | ApiError], None]
    ) -> None:
        """The groups of every coordinator on this node, by id; an error while one of them loads."""
        if self._clock.now() >= self._lease.until:
            done(NOT_SURE)
            return

        def gathered(listed: list[ListedGroups] | ApiError) -> None:
            if isinstance(listed, ApiError):
                done(listed)
            else:
                rows = chain.from_iterable(each.groups for each in listed)
                done(ListedGroups(tuple(sorted(rows, key=_group_id))))

        self._coordinators.ask_each(
            lambda on_reply: ListGroups(on_reply=on_reply, states=states, types=types), gathered
        )

    def locate(self, group_id: str, done: Callable[[NodeId | ApiError], None]) -> None:
        """Find the node that coordinates the group; the offsets topic is created on the first call."""
        self._coordinators.locate(group_id, done)

    def looked_up(self, reader: ClientKey, partition: TopicPartition, offset: Offset) -> None:
        """A client looked up an offset of a partition, by time or by its ends."""
        self.consumption.looked_up(reader, partition, offset)

    def lag(self, group_id: str) -> list[GroupPartitionLag] | ApiError:
        """How far the group is behind, in records and seconds, wherever it has a position."""
        coordinator = self._coordinators.find(group_id)
        if isinstance(coordinator, ApiError):
            return coordinator
        if self._clock.now() >= self._lease.until:
            return NOT_SURE
        if coordinator.state.value is not None:
            return ApiError(coordinator.state.value)
        return self._lags.of_group(coordinator.machine.image, group_id)

    def may_be_share_member(self, group_id: str, member_id: str) -> bool:
        """Whether somebody is a member of a share group, or may be for all that this node knows."""
        coordinator = self._coordinators.find(group_id)
        if isinstance(coordinator, ApiError) or coordinator.state.value is not None:
            return True
        group = coordinator.machine.image.shares.get(group_id)
        return self._clock.now() >= self._lease.until or (group is not None and member_id in group.members)

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over and give up coordinators as the cluster's metadata says."""
        before, self._image = self._image, image
        for timeouts in self._timeouts:
            timeouts.on_metadata(image)
        changed = self._topics.on_metadata(image)
        self._coordinators.on_metadata(image)
        if changed:
            for coordinator in self._coordinators:
                coordinator.submit(ReloadTopics(on_reply=lambda _: None, topics=changed))
        gone = [before.topic_by_id(topic_id) for topic_id in before.topics.keys_missing_in(image.topics)]
        names = frozenset([topic.name for topic in gone if topic is not None])
        if names:
            # Once for all of them: every coordinator looks at every position that it has.
            for coordinator in self._coordinators:
                # A callback of its own: the coordinator distinguishes commands that wait by it.
                coordinator.submit(ForgetTopics(on_reply=lambda _: None, topics=names))

    def roles_changed(self) -> None:
        """The node leads other partitions than before."""
        self._coordinators.on_leadership_change()

    def stop(self) -> None:
        """Give up every coordinator: commands that wait get NOT_COORDINATOR."""
        self._coordinators.stop()

    def __iter__(self) -> Iterator[Coordinator[GroupCoordinator, Command, Fact]]:
        return iter(self._coordinators)

    def _corrections(self, machine: GroupCoordinator) -> list[Fact]:
        """What a rewrite that did not end has overtaken, and positions in topics that are gone."""
        return [*machine.image.pending.overtaken(), *self._stale_positions(machine)]

    def _stale_positions(self, machine: GroupCoordinator) -> list[Fact]:
        """Positions in topics that were deleted while another node, or none, led these groups."""
        image = machine.image
        committed = [position for offsets in image.offsets.values() for position in offsets.values()]
        pending = [fact.position for fact in image.pending]
        return [
            OffsetDeleted(position.group_id, position.partition)
            for position in committed + pending
            if not self._is_current(position)
        ]

    def _is_current(self, position: OffsetCommitted) -> bool:
        topic_id = self._image.topic_id(position.partition.topic)
        return topic_id is not None and position.topic_id in (None, topic_id)


def _group_id(group: ListedGroup) -> str:
    return group.group_id
