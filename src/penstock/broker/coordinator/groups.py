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

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
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
    HeldBytes,
    ListedGroup,
    ListedGroups,
    ListGroups,
    MemberRemoved,
    MigrationPolicy,
    OffsetCommitted,
    OffsetDeleted,
    ReloadTopics,
    Reply,
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
from penstock.runtime import Runtime, Timers

_MS_PER_MINUTE = 60_000
# How often committed positions are counted.
COUNT_NS = 100 * MILLISECOND
# What the metadata of a position may always have, and otherwise: this part of the memory that is left for it.
SMALL_POSITION_METADATA = 128
POSITION_METADATA_PART = 1_024
# Members that send little have so many times the memory of those that send much: they are refused last.
SMALL_MEMBERS_FACTOR = 8
# Clients of one host get this part of it.
HOST_PART = 2
# Share groups get this part: those that may have queues are kept until somebody deletes them.
SHARE_PART = 2
# Records have room for 32,767 bytes, whatever the characters.
GROUP_ID_CHARS_MAX = 8_000
# Groups in a list that are looked at in one turn.
LISTED_PER_TURN_MAX = 2_000
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
    # What the metadata of positions may take of that.
    position_metadata_bytes_max: int = 32 << 20
    # What groups and members may take, all together, before those that send much are refused.
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
        position_metadata_bytes_max=number("offsets.metadata.memory.max.bytes"),
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

    def on_closed(self, machine: GroupCoordinator) -> None:
        super().on_closed(machine)
        machine.close()

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
        machine = replace(
            options.machine,
            has_room=self._has_room,
            metadata_room=self._metadata_room,
            has_member_room=self._has_member_room,
            has_share_room=self._has_share_room,
        )
        self._position_bytes_max = options.position_bytes_max
        self._position_metadata_bytes_max = options.position_metadata_bytes_max
        self._metadata_bytes_max = options.metadata_bytes_max
        self._small_metadata_bytes = options.machine.small_metadata_bytes
        # What groups and members take, over all coordinators.
        self._held = HeldBytes()
        # What positions take, and until when that is taken for true.
        self._counted_until = Instant(0)
        self.position_bytes = 0
        self.position_metadata_bytes = 0
        spec: CoordinatorSpec[GroupCoordinator, Command, Fact] = CoordinatorSpec(
            OFFSETS_TOPIC,
            lambda: GroupCoordinator(machine, self._topics, self._held),
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
        self._timers = runtime.timers
        self._lease = partitions.lease
        self._image = MetadataImage()

    def _has_room(self) -> bool:
        """Whether groups may have more positions, over all coordinators of this node."""
        self._count_positions()
        return self.position_bytes < self._position_bytes_max

    def _metadata_room(self) -> int:
        """How much metadata a position may get: the less is left for it, the less one may have.

        So whoever asks for most is refused first. A little is always allowed: clients note a time there.
        """
        self._count_positions()
        left_bytes = self._position_metadata_bytes_max - self.position_metadata_bytes
        return max(SMALL_POSITION_METADATA, left_bytes // POSITION_METADATA_PART)

    def _count_positions(self) -> None:
        now = self._clock.now()
        if now < self._counted_until:
            return
        self._counted_until = Instant(now + COUNT_NS)
        images = [each.machine.image for each in self._coordinators]
        # What transactions have not decided yet takes as much as what is committed.
        self.position_bytes = sum([each.position_bytes + each.pending.size_bytes for each in images])
        self.position_metadata_bytes = sum(
            [each.metadata_bytes + each.pending.metadata_bytes for each in images]
        )

    def _has_member_room(self, host: str, size_bytes: int) -> bool:
        """Whether a client of this host may have so many bytes kept, over all coordinators of this node."""
        held = self._held
        return self._fits(size_bytes, held.total, held.of(host), 1)

    def _has_share_room(self, host: str, size_bytes: int) -> bool:
        """Whether a client of this host may have so many bytes kept of a share group."""
        if not self._has_member_room(host, size_bytes):
            return False
        held = [each.machine.image.shares_held for each in self._coordinators]
        of_host = sum([each.of(host) for each in held])
        return self._fits(size_bytes, sum([each.total for each in held]), of_host, SHARE_PART)

    def _fits(self, size_bytes: int, held_bytes: int, of_host_bytes: int, part: int) -> bool:
        """Whether so much more fits into a part of the memory of groups, and a host's share of it."""
        bytes_max = self._metadata_bytes_max // part
        if size_bytes <= self._small_metadata_bytes:
            bytes_max *= SMALL_MEMBERS_FACTOR
        if held_bytes + size_bytes > bytes_max:
            return False
        return of_host_bytes + size_bytes <= bytes_max // HOST_PART

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

        _Listing(
            list(self._coordinators),
            self._timers,
            ListGroups(on_reply=_unheard, states=states, types=types),
            done,
        ).start()

    def locate(self, group_id: str, done: Callable[[NodeId | ApiError], None]) -> None:
        """Find the node that coordinates the group; the offsets topic is created on the first call."""
        if len(group_id) > GROUP_ID_CHARS_MAX:
            done(TOO_LONG)
            return
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
            self._coordinators.ask_each(
                lambda on_reply: ForgetTopics(on_reply=on_reply, topics=names), lambda _: None
            )

    def roles_changed(self) -> None:
        """The node leads other partitions than before."""
        self._coordinators.on_leadership_change()

    def stop(self) -> None:
        """Give up every coordinator: commands that wait get NOT_COORDINATOR."""
        self._coordinators.stop()

    def __iter__(self) -> Iterator[Coordinator[GroupCoordinator, Command, Fact]]:
        return iter(self._coordinators)

    def _corrections(self, machine: GroupCoordinator) -> Iterator[Fact | None]:
        """What a rewrite that did not end has overtaken, and positions in topics that are gone."""
        return chain(machine.image.pending.overtaken(), self._stale_positions(machine))

    def _stale_positions(self, machine: GroupCoordinator) -> Iterator[Fact | None]:
        """Positions in topics that were deleted while another node, or none, led these groups."""
        image = machine.image
        pending = [fact.position for fact in image.pending]
        committed = (
            position for offsets in list(image.offsets.values()) for position in list(offsets.values())
        )
        for position in chain(committed, pending):
            is_current = self._is_current(position)
            yield None if is_current else OffsetDeleted(position.group_id, position.partition)

    def _is_current(self, position: OffsetCommitted) -> bool:
        topic_id = self._image.topic_id(position.partition.topic)
        return topic_id is not None and position.topic_id in (None, topic_id)


class _Listing:
    """Lists the groups of coordinators: some of them in each turn, and then all of them in order."""

    def __init__(
        self,
        coordinators: Sequence[Coordinator[GroupCoordinator, Command, Fact]],
        timers: Timers,
        command: ListGroups,
        done: Callable[[ListedGroups | ApiError], None],
    ) -> None:
        self._timers = timers
        self._command = command
        self._done = done
        self._unasked = _portions_of(coordinators)
        self._listed: list[tuple[ListedGroup, ...]] = []
        self._refused: ApiError | None = None
        # One for the end, so that nothing is done before all were asked.
        self._waiting = 1

    def start(self) -> None:
        portion = next(self._unasked, None)
        if portion is None:
            self._end_one()
            return
        coordinator, group_ids = portion
        self._waiting += 1
        # A callback of its own: the coordinator distinguishes commands that wait by it.
        coordinator.submit(replace(self._command, on_reply=partial(self._take), group_ids=group_ids))
        self._timers.soon(self.start)

    def _take(self, reply: Reply) -> None:
        if isinstance(reply, ListedGroups):
            self._listed.append(reply.groups)
        elif isinstance(reply, ApiError) and reply.kind is not ErrorKind.NOT_COORDINATOR:
            # One that was given up meanwhile is listed by another node.
            self._refused = reply
        self._end_one()

    def _end_one(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        if self._refused is not None:
            self._done(self._refused)
        else:
            self._put_in_order(heapq.merge(*self._listed, key=_group_id), [])

    def _put_in_order(self, merged: Iterator[ListedGroup], rows: list[ListedGroup]) -> None:
        portion = list(islice(merged, LISTED_PER_TURN_MAX))
        rows += portion
        if len(portion) < LISTED_PER_TURN_MAX:
            self._done(ListedGroups(tuple(rows)))
        else:
            self._timers.soon(partial(self._put_in_order, merged, rows))


def _portions_of(
    coordinators: Sequence[Coordinator[GroupCoordinator, Command, Fact]],
) -> Iterator[tuple[Coordinator[GroupCoordinator, Command, Fact], tuple[str, ...]]]:
    for coordinator in coordinators:
        group_ids = coordinator.machine.group_ids()
        # One that has no groups is asked, too: it may be loading.
        for start in range(0, max(1, len(group_ids)), LISTED_PER_TURN_MAX):
            yield coordinator, tuple(group_ids[start : start + LISTED_PER_TURN_MAX])


def _unheard(_: object) -> None:
    """In the place of the callback of each command."""


def _group_id(group: ListedGroup) -> str:
    return group.group_id
