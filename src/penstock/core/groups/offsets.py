"""Committed offsets of groups: commit, fetch, delete and expire.

Offsets that are committed inside a transaction wait in the image until its marker comes (see
`offset_facts`). Until then they do not expire, nor does their group.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias, assert_never

from penstock.core.groups.classic_group import ClassicGroup
from penstock.core.groups.classic_protocol import keep_alive
from penstock.core.groups.cluster_topics import ClusterTopics
from penstock.core.groups.commands import (
    CommitOffsets,
    CommitResults,
    CommittedPartitions,
    CommitTransactionOffsets,
    DeleteOffsets,
    DeletionResults,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    ForgetTopics,
    GroupOk,
    GroupState,
    OffsetCommand,
    OffsetResult,
    OffsetToCommit,
    OnReply,
    TopicToFetch,
)
from penstock.core.groups.consumer_group import ConsumerGroup
from penstock.core.groups.facts import GroupImage
from penstock.core.groups.group_lookup import AnyGroup, GroupLookup
from penstock.core.groups.offset_facts import (
    OffsetCommitted,
    OffsetDeleted,
    PendingOffsets,
    TransactionalOffsetCommitted,
)
from penstock.core.groups.outcome import GroupOptions, GroupOutcome
from penstock.core.groups.share_group import ShareGroup
from penstock.core.model import (
    MILLISECOND,
    ErrorKind,
    Instant,
    PartitionIndex,
    Timestamp,
    TopicId,
    TopicName,
    TopicPartition,
)

# Of positions that are deleted: how many are looked at in a turn, and how many facts it has.
POSITIONS_PER_TURN_MAX, FACTS_PER_TURN_MAX = 2_000, 500
# Positions that are fetched in one go where a group's are fetched all, and else in portions of such rows.
FETCHED_PER_TURN_MAX, PARTITIONS_PER_ROW = 1_000, 16


def decide_offsets(
    command: OffsetCommand,
    image: GroupImage,
    groups: GroupLookup,
    topics: ClusterTopics,
    removals: "PositionRemovals",
    outcome: GroupOutcome,
) -> None:
    match command:
        case CommitOffsets():
            limits = CommitLimits(command.group_id, image, topics, outcome.options)
            _commit(groups.find(command.group_id, outcome), command, limits, outcome)
        case CommitTransactionOffsets():
            limits = CommitLimits(command.group_id, image, topics, outcome.options)
            group = groups.find(command.group_id, outcome)
            _commit_in_transaction(group, command, image.pending, limits, outcome)
        case FetchOffsets():
            is_typed = command.group_id in image.consumers or command.group_id in image.shares
            group = groups.find(command.group_id, outcome) if is_typed else None
            _fetch(group, image, command, outcome)
        case DeleteOffsets():
            _delete(groups.find(command.group_id, outcome), image, command, outcome)
        case ForgetTopics():
            removals.forget_topics(command, topics, outcome)
        case _:
            assert_never(command)


class CommitLimits:
    """Which positions of one command are refused."""

    __slots__ = ("_has_room", "_known", "_metadata_bytes_max", "_options", "_topics")

    def __init__(
        self, group_id: str, image: GroupImage, topics: ClusterTopics, options: GroupOptions
    ) -> None:
        self._known = image.offsets_of(group_id)
        self._topics = topics
        self._options = options
        self._has_room: bool | None = None
        self._metadata_bytes_max: int | None = None

    def problem(self, offset: OffsetToCommit) -> ErrorKind | None:
        """Why a position cannot be stored."""
        if len(offset.metadata) > self._options.offset_metadata_chars_max:
            return ErrorKind.OFFSET_METADATA_TOO_LARGE
        if self._topics.lacks(offset.partition):
            return ErrorKind.UNKNOWN_PARTITION
        known = self._known.get(offset.partition)
        if known is None or len(offset.metadata) > len(known.metadata):
            # What is there already may always be moved.
            if self._has_room is None:
                self._has_room = self._options.has_room()
            return self.metadata_problem(offset) if self._has_room else ErrorKind.TOO_MANY_OFFSETS
        return None

    def metadata_problem(self, offset: OffsetToCommit) -> ErrorKind | None:
        """Whether there is no room for metadata that the group did not have before."""
        if self._metadata_bytes_max is None:
            self._metadata_bytes_max = self._options.metadata_room()
        size = len(offset.metadata) * (1 if offset.metadata.isascii() else 4)
        return ErrorKind.OFFSET_METADATA_TOO_LARGE if size > self._metadata_bytes_max else None


def last_of_each(offsets: Sequence[OffsetToCommit]) -> Sequence[OffsetToCommit]:
    """Each partition once, however often a client names it: what it says last counts."""
    if len(offsets) == 1:
        return offsets
    return list({offset.partition: offset for offset in offsets}.values())


def _commit(
    group: AnyGroup | None, command: CommitOffsets, limits: CommitLimits, outcome: GroupOutcome
) -> None:
    """Accept the positions as they are: a client may well move one back."""
    kind = _why_not_commit(group, command)
    if kind is not None:
        outcome.refuse(command.on_reply, kind)
        return
    if isinstance(group, ClassicGroup) and command.member_id in group.members:
        # A commit shows that the member is alive.
        keep_alive(group, group.members[command.member_id], outcome)
    results = tuple(
        [_commit_one(offset, command, limits, outcome) for offset in last_of_each(command.offsets)]
    )
    outcome.responses.append((command.on_reply, CommitResults(results)))


def _why_not_commit(group: AnyGroup | None, command: CommitOffsets) -> ErrorKind | None:
    """Who may move a group's positions."""
    if group is None:
        # A consumer that assigns itself needs no group; one that names a generation has lost its own.
        return None if command.generation < 0 else ErrorKind.UNKNOWN_GROUP
    if isinstance(group, ShareGroup):
        # It has no positions but queues.
        return ErrorKind.UNKNOWN_GROUP
    if isinstance(group, ConsumerGroup):
        return group.commit_error_kind(command)
    if command.generation < 0 and group.is_empty:
        return None
    kind = group.member_error_kind(command.member_id, command.instance_id)
    if kind is not None:
        return kind
    if command.generation != group.generation:
        return ErrorKind.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # Between generations no member owns a partition: what was read before the rebalance should
        # have been committed while the group was preparing it.
        return ErrorKind.REBALANCE_IN_PROGRESS
    return None


def _commit_in_transaction(
    group: AnyGroup | None,
    command: CommitTransactionOffsets,
    pending: PendingOffsets,
    limits: CommitLimits,
    outcome: GroupOutcome,
) -> None:
    kind = _why_not_commit_in_transaction(group, command)
    if kind is not None:
        outcome.refuse(command.on_reply, kind)
        return
    results: list[OffsetResult] = []
    held, new = pending.count_of(command.producer_id), 0
    for offset in last_of_each(command.offsets):
        # Until the transaction ends it is kept beside what it moves.
        problem = limits.problem(offset) or limits.metadata_problem(offset)
        if problem is None and pending.get(command.group_id, offset.partition, command.producer_id) is None:
            new += 1
            if held + new > outcome.options.transaction_positions_max:
                problem = ErrorKind.TOO_MANY_OFFSETS
        if problem is not None:
            results.append(OffsetResult(offset.partition, problem))
            continue
        position = OffsetCommitted(
            command.group_id,
            offset.partition,
            offset.offset,
            offset.leader_epoch,
            offset.metadata,
            outcome.now.wall,
            topic_id=offset.topic_id,
        )
        outcome.facts.append(
            TransactionalOffsetCommitted(command.producer_id, command.producer_epoch, position)
        )
        results.append(OffsetResult(offset.partition))
    outcome.responses.append((command.on_reply, CommitResults(tuple(results))))


def _why_not_commit_in_transaction(
    group: AnyGroup | None, command: CommitTransactionOffsets
) -> ErrorKind | None:
    """A rebalance does not stop a transaction: it must be able to end with what its member has read."""
    if group is None:
        return None if command.generation < 0 else ErrorKind.ILLEGAL_GENERATION
    if isinstance(group, ShareGroup):
        return ErrorKind.UNKNOWN_GROUP
    if command.generation < 0 and not command.member_id and command.instance_id is None:
        # Older versions name no member.
        return None
    if isinstance(group, ConsumerGroup):
        kind = group.commit_error_kind(command)
        # Producers do not know epochs of members.
        return ErrorKind.ILLEGAL_GENERATION if kind is ErrorKind.STALE_MEMBER_EPOCH else kind
    if command.generation < 0 and group.is_empty:
        return None
    kind = group.member_error_kind(command.member_id, command.instance_id)
    if kind is None and command.generation != group.generation:
        return ErrorKind.ILLEGAL_GENERATION
    return kind


def _commit_one(
    offset: OffsetToCommit, command: CommitOffsets, limits: CommitLimits, outcome: GroupOutcome
) -> OffsetResult:
    problem = limits.problem(offset)
    if problem is not None:
        return OffsetResult(offset.partition, problem)
    expires_at = None
    if command.retention_ms is not None:
        expires_at = Timestamp(outcome.now.wall + command.retention_ms)
    outcome.facts.append(
        OffsetCommitted(
            command.group_id,
            offset.partition,
            offset.offset,
            offset.leader_epoch,
            offset.metadata,
            outcome.now.wall,
            expires_at,
            offset.topic_id,
        )
    )
    return OffsetResult(offset.partition)


def _fetch(group: AnyGroup | None, image: GroupImage, command: FetchOffsets, outcome: GroupOutcome) -> None:
    """An unknown group has committed nothing, and that is no error: clients start from there."""
    kind = group.fetch_error_kind(command) if isinstance(group, ConsumerGroup) else None
    if isinstance(group, ShareGroup):
        kind = ErrorKind.UNKNOWN_GROUP
    if kind is not None:
        outcome.refuse(command.on_reply, kind)
        return
    partitions: list[tuple[TopicPartition, TopicId | None]]
    if command.topics is None:
        known = list(image.offsets_of(command.group_id))
        if command.require_stable:
            known += image.pending.partitions_of(command.group_id)
        if len(known) > FETCHED_PER_TURN_MAX:
            outcome.responses.append((command.on_reply, CommittedPartitions(_by_topic(known))))
            return
        partitions = [(partition, None) for partition in sorted(dict.fromkeys(known))]
    else:
        partitions = [wanted for topic in command.topics for wanted in _partitions_of(topic)]
    offsets = [_fetch_one(image, command, partition, topic_id) for partition, topic_id in partitions]
    outcome.responses.append((command.on_reply, FetchedOffsets(tuple(offsets))))


def _by_topic(partitions: Iterable[TopicPartition]) -> tuple[TopicToFetch, ...]:
    """The partitions in order, each once, and not too many of a topic together."""
    topics: dict[TopicName, list[PartitionIndex]] = {}
    for name, index in dict.fromkeys(partitions):
        topics.setdefault(name, []).append(index)
    return tuple(
        [
            TopicToFetch(name, tuple(portion))
            for name in sorted(topics)
            for portion in _portions(sorted(topics[name]))
        ]
    )


def _portions(indexes: Sequence[PartitionIndex]) -> Iterator[Sequence[PartitionIndex]]:
    for start in range(0, len(indexes), PARTITIONS_PER_ROW):
        yield indexes[start : start + PARTITIONS_PER_ROW]


def _partitions_of(topic: TopicToFetch) -> list[tuple[TopicPartition, TopicId | None]]:
    return [(TopicPartition(topic.topic, partition), topic.topic_id) for partition in topic.partitions]


def _fetch_one(
    image: GroupImage, command: FetchOffsets, partition: TopicPartition, topic_id: TopicId | None
) -> FetchedOffset:
    if command.require_stable and image.is_unstable(command.group_id, partition):
        return FetchedOffset(partition, kind=ErrorKind.OFFSETS_UNSTABLE)
    committed = image.offsets_of(command.group_id).get(partition)
    if committed is None or _is_of_another_topic(committed, topic_id):
        return FetchedOffset(partition)
    return FetchedOffset(partition, committed.offset, committed.leader_epoch, committed.metadata)


def _is_of_another_topic(committed: OffsetCommitted, topic_id: TopicId | None) -> bool:
    # The topic was deleted and made again: the position says nothing about the new one.
    return topic_id is not None and committed.topic_id is not None and committed.topic_id != topic_id


def _delete(group: AnyGroup | None, image: GroupImage, command: DeleteOffsets, outcome: GroupOutcome) -> None:
    """Delete offsets, unless the group is reading those topics."""
    if group is None or isinstance(group, ShareGroup):
        outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP)
        return
    if not group.is_empty and not group.is_consumer_group:
        # What members of other protocol types read is unknown.
        outcome.refuse(command.on_reply, ErrorKind.GROUP_NOT_EMPTY)
        return
    committed = image.offsets_of(command.group_id)
    results: list[OffsetResult] = []
    for partition in command.partitions:
        if group.is_subscribed_to(partition.topic):
            results.append(OffsetResult(partition, ErrorKind.GROUP_SUBSCRIBED))
            continue
        if partition in committed or image.is_unstable(command.group_id, partition):
            outcome.facts.append(OffsetDeleted(command.group_id, partition))
        results.append(OffsetResult(partition))
    outcome.responses.append((command.on_reply, DeletionResults(tuple(results))))


# One position after the other; the fact that deletes it, or None where it stays.
Removals: TypeAlias = Iterator[OffsetDeleted | None]


class PositionRemovals:
    """Deletes positions of groups and topics that are gone, and what has expired: a bounded number in a turn.

    A few are deleted by the command itself. What becomes of the others meanwhile counts: one that was
    committed again since stays.
    """

    def __init__(self, image: GroupImage) -> None:
        self._image = image
        # What is not done yet, the first one under way.
        self.left: deque[tuple[Removals, OnReply | None]] = deque()

    def forget_topics(self, command: ForgetTopics, topics: ClusterTopics, outcome: GroupOutcome) -> None:
        """Delete the positions in topics that are gone."""
        outcome.responses.append((command.on_reply, GroupOk()))
        self.begin(self._in_topics(command.topics, topics), None, outcome)

    def delete_group(self, group_id: str, on_reply: OnReply, outcome: GroupOutcome) -> None:
        """Delete the positions of a group; the reply comes when that is done."""
        offsets = list(self._image.offsets_of(group_id).values())
        pending = [
            each
            for each in self._image.pending.partitions_of(group_id)
            if each not in self._image.offsets_of(group_id)
        ]
        self.begin(self._of_group(group_id, offsets, pending), on_reply, outcome)

    def begin(self, removals: Removals, on_reply: OnReply | None, outcome: GroupOutcome) -> None:
        """Begin, once earlier ones are done."""
        self.left.append((removals, on_reply))
        if len(self.left) == 1:
            self.go_on(outcome)

    def go_on(self, outcome: GroupOutcome) -> None:
        """As much as a turn has room for."""
        for _ in range(POSITIONS_PER_TURN_MAX):
            if not self.left or len(outcome.facts) >= FACTS_PER_TURN_MAX:
                return
            removals, on_reply = self.left[0]
            try:
                fact = next(removals)
            except StopIteration:
                self.left.popleft()
                if on_reply is not None:
                    outcome.responses.append((on_reply, GroupOk()))
                continue
            if fact is not None:
                outcome.facts.append(fact)

    def _of_group(
        self, group_id: str, offsets: Sequence[OffsetCommitted], pending: Sequence[TopicPartition]
    ) -> Removals:
        for offset in offsets:
            is_same = self._image.offsets_of(group_id).get(offset.partition) is offset
            yield OffsetDeleted(group_id, offset.partition) if is_same else None
        for partition in pending:
            is_pending = self._image.is_unstable(group_id, partition)
            yield OffsetDeleted(group_id, partition) if is_pending else None

    def _in_topics(self, names: Collection[TopicName], topics: ClusterTopics) -> Removals:
        image = self._image
        for name in sorted(names):
            for group_id in list(image.topics.get(name, ())):
                for offset in list(image.offsets_of(group_id).values()):
                    gone = offset.partition.topic == name and _is_gone(offset, topics)
                    is_same = gone and image.offsets_of(group_id).get(offset.partition) is offset
                    yield OffsetDeleted(group_id, offset.partition) if is_same else None
        for group_id in image.pending.group_ids():
            for partition in image.pending.partitions_of(group_id):
                gone = partition.topic in names and partition not in image.offsets_of(group_id)
                positions = [each.position for each in image.pending.of(group_id, partition)] if gone else []
                gone = gone and all(_is_gone(position, topics) for position in positions)
                yield OffsetDeleted(group_id, partition) if gone else None


def _is_gone(position: OffsetCommitted, topics: ClusterTopics) -> bool:
    """Whether the topic of a position is not that which has its name now, if any has."""
    topic = topics.find(position.partition.topic)
    return topic is None or position.topic_id != topic.id


class OffsetRetention:
    """Deletes expired offsets: all groups once per interval, a few at a time.

    They are kept for the retention time after the group became empty, or after the commit
    where there never was a member; in a stable consumer group, those in topics it has
    unsubscribed from age as well. A group with nothing left is deleted.
    """

    def __init__(self, image: GroupImage, groups: GroupLookup, removals: PositionRemovals) -> None:
        self._image = image
        self._groups = groups
        self._removals = removals
        self._left: list[str] = []
        self.deadline: Instant | None = None

    def plan(self, outcome: GroupOutcome) -> None:
        interval_ms = outcome.options.offsets_retention_check_interval_ms
        self.deadline = Instant(outcome.now.instant + interval_ms * MILLISECOND)

    def drop_emptied(self, outcome: GroupOutcome) -> None:
        """Delete the oldest groups that have nothing left, a few at a time."""
        for _ in range(outcome.options.groups_expired_per_turn_max):
            emptied = self._image.emptied
            is_enough = emptied.size_bytes <= outcome.options.emptied_bytes_max
            if is_enough or len(outcome.facts) >= FACTS_PER_TURN_MAX:
                return
            self._delete_expired(emptied.take_oldest(), outcome)

    def run_if_due(self, outcome: GroupOutcome) -> None:
        if self.deadline is None or self.deadline > outcome.now.instant:
            return
        if not self._left:
            self._left = self._image.group_ids()
        for _ in range(min(len(self._left), outcome.options.groups_expired_per_turn_max)):
            if len(outcome.facts) >= FACTS_PER_TURN_MAX or self._removals.left:
                break
            self._delete_expired(self._left.pop(), outcome)
        if not self._left:
            self.plan(outcome)

    def _delete_expired(self, group_id: str, outcome: GroupOutcome) -> None:
        group = self._groups.find(group_id, outcome)
        if group is None:
            return
        if isinstance(group, ShareGroup):
            if group.is_idle:
                self._groups.delete(group_id, outcome)
            return
        offsets = self._image.offsets_of(group_id)
        if len(offsets) > FACTS_PER_TURN_MAX:
            # The group itself is looked at again when the next time comes.
            self._removals.begin(self._expired(group_id, list(offsets.values()), outcome), None, outcome)
            return
        expired = [
            offset
            for offset in offsets.values()
            if not self._image.is_unstable(group_id, offset.partition) and _is_expired(offset, group, outcome)
        ]
        for offset in expired:
            outcome.facts.append(OffsetDeleted(group_id, offset.partition))
        is_all = len(expired) == len(offsets) and not self._image.pending.has_group(group_id)
        if is_all and group.is_idle:
            self._groups.delete(group_id, outcome)

    def _expired(self, group_id: str, offsets: Sequence[OffsetCommitted], outcome: GroupOutcome) -> Removals:
        for offset in offsets:
            group = self._groups.find(group_id, outcome)
            if group is None or isinstance(group, ShareGroup):
                return
            is_same = self._image.offsets_of(group_id).get(offset.partition) is offset
            is_stable = not self._image.is_unstable(group_id, offset.partition)
            is_due = is_same and is_stable and _is_expired(offset, group, outcome)
            yield OffsetDeleted(group_id, offset.partition) if is_due else None


def _is_expired(offset: OffsetCommitted, group: ClassicGroup | ConsumerGroup, outcome: GroupOutcome) -> bool:
    since = _aging_since(group)
    if since is None or group.is_subscribed_to(offset.partition.topic):
        return False
    if offset.expires_at is not None:
        return outcome.now.wall >= offset.expires_at
    return outcome.now.wall - since(offset) >= outcome.options.offsets_retention_ms


def _aging_since(group: ClassicGroup | ConsumerGroup) -> Callable[[OffsetCommitted], Timestamp] | None:
    """From when on an offset of this group ages; None while none of them does."""
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return _committed_at
    if group.is_empty:
        empty_since = group.state_since
        return _committed_at if empty_since is None else lambda _: empty_since
    if group.state is GroupState.STABLE and group.subscribed is not None:
        return _committed_at
    return None


def _committed_at(offset: OffsetCommitted) -> Timestamp:
    return offset.committed_at
