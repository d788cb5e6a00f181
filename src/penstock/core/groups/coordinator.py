"""The machine of one group-coordinator partition, with the commands of operators (list, describe, delete)."""

from collections.abc import Iterator
from itertools import chain
from typing import assert_never

from penstock.core.groups.classic_members import ClassicMembers
from penstock.core.groups.classic_protocol import ClassicGroups
from penstock.core.groups.cluster_topics import ClusterTopics, NoTopics
from penstock.core.groups.commands import (
    ClassicCommand,
    Command,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerCommand,
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribedGroup,
    DescribeGroup,
    DescribeShareGroup,
    FetchOffsets,
    ForgetTopics,
    GroupState,
    GroupType,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListedGroups,
    ListGroups,
    ReloadTopics,
    ShareCommand,
    ShareGroupHeartbeat,
    SyncGroup,
)
from penstock.core.groups.consumer_group import JOIN_EPOCH, ConsumerGroup
from penstock.core.groups.consumer_protocol import ConsumerGroups
from penstock.core.groups.facts import Fact, GroupImage
from penstock.core.groups.group_lookup import AnyGroup, GroupLookup
from penstock.core.groups.held_bytes import HeldBytes
from penstock.core.groups.migration import GroupMigration
from penstock.core.groups.offsets import OffsetRetention, PositionRemovals, decide_offsets
from penstock.core.groups.outcome import GroupDeadlines, GroupOptions, GroupOutcome, ShareGroupRemoved
from penstock.core.groups.share_group import ShareGroup
from penstock.core.groups.share_protocol import ShareGroups
from penstock.core.model import ErrorKind, Instant, Now


class GroupCoordinator:
    """Who is in which group, and where each group stands.

    Recovery: `apply` every fact of the log, then `resume` once. Service: `decide` commands
    and `expire` deadlines; append the facts of each outcome and `apply` them before the next
    call; release its replies when the log end is committed. When an append fails, drop the machine.
    """

    def __init__(
        self,
        options: GroupOptions | None = None,
        topics: ClusterTopics | None = None,
        whole: HeldBytes | None = None,
    ) -> None:
        """What groups and their members take counts towards a `whole`, until the machine is closed."""
        self._options = GroupOptions() if options is None else options
        self._image = GroupImage()
        # About what groups and their members take in memory, besides positions.
        self.held = self._image.held
        if whole is not None:
            self.held.join(whole)
        self._classic = ClassicGroups(self._image)
        self._topics = topics = NoTopics() if topics is None else topics
        self._consumers = ConsumerGroups(self._image, topics)
        self._shares = ShareGroups(self._image, topics)
        self._classic_members = ClassicMembers(self._consumers, topics)
        self._migration = GroupMigration(self._image, self._classic, self._consumers, topics)
        self._groups = GroupLookup(self._image, self._classic, self._consumers, self._shares)
        self._removals = PositionRemovals(self._image)
        self._retention = OffsetRetention(self._image, self._groups, self._removals)
        self._deadlines = GroupDeadlines()
        self._facts_owed = 0

    def close(self) -> None:
        """Nothing of it counts any more: it is not used again."""
        self.held.leave()

    def group_ids(self) -> list[str]:
        """Every group, in no order."""
        return self._groups.group_ids()

    @property
    def image(self) -> GroupImage:
        """The durable state, read only."""
        return self._image

    def apply(self, fact: Fact) -> None:
        """Apply a fact of the log."""
        if self._facts_owed:
            self._facts_owed -= 1
        self._image.apply(fact)

    def size(self) -> int:
        """How many facts `snapshot` has."""
        image = self._image
        # Asked with every append.
        typed = image.consumer_facts + image.share_facts
        return len(image.groups) + typed + image.positions + len(image.pending)

    def snapshot(self) -> Iterator[Fact]:
        """The durable state as facts, each as it is when the iterator reaches it.

        The machine may move on meanwhile; keys that are new since the call are left out.
        """
        image = self._image
        group_ids = list(image.groups)
        keys = [(group_id, partition) for group_id, offsets in image.offsets.items() for partition in offsets]
        groups = (image.groups.get(group_id) for group_id in group_ids)
        stored = list(image.consumers.values())
        consumers = chain.from_iterable(group.facts() for group in stored)
        shared = list(image.shares.values())
        shares = chain.from_iterable(group.facts() for group in shared)
        offsets = (image.offsets_of(group_id).get(partition) for group_id, partition in keys)
        # Behind the committed ones: a position that is committed later supersedes what is pending, also
        # what became pending since the call.
        pending = image.pending.copies()
        return (fact for fact in chain(groups, consumers, shares, offsets, pending) if fact is not None)

    def resume(self, now: Now) -> GroupOutcome:
        """Begin to lead, once the log is replayed: every session starts now, in full."""
        outcome = GroupOutcome(now, self._options, self._deadlines)
        self._classic.resume(outcome)
        self._consumers.resume(outcome)
        self._shares.resume(outcome)
        self._retention.plan(outcome)
        self._facts_owed = len(outcome.facts)
        return outcome

    def decide(self, command: Command, now: Now) -> GroupOutcome:
        """Reply to the command, park it, or complete others with it; changes nothing durable."""
        assert not self._facts_owed, "facts of the last outcome were not applied"
        outcome = GroupOutcome(now, self._options, self._deadlines)
        match command:
            case JoinGroup() | SyncGroup() | Heartbeat() | LeaveGroup():
                self._classic_request(command, outcome)
            case (
                CommitOffsets()
                | CommitTransactionOffsets()
                | FetchOffsets()
                | DeleteOffsets()
                | ForgetTopics()
            ):
                decide_offsets(command, self._image, self._groups, self._topics, self._removals, outcome)
            case ConsumerGroupHeartbeat() | DescribeConsumerGroup() | ReloadTopics():
                self._consumer_request(command, outcome)
            case ShareGroupHeartbeat() | DescribeShareGroup():
                self._share_request(command, outcome)
            case DescribeGroup():
                described = _described(command.group_id, self._groups.find(command.group_id, outcome))
                outcome.responses.append((command.on_reply, described))
            case ListGroups():
                self._list(command, outcome)
            case DeleteGroup():
                self._delete(command, outcome)
            case _:
                assert_never(command)
        self._facts_owed = len(outcome.facts)
        return outcome

    def expire(self, now: Now) -> GroupOutcome:
        """Do what is due, a bounded part of it at a time: call again while `next_deadline` is past."""
        assert not self._facts_owed, "facts of the last outcome were not applied"
        outcome = GroupOutcome(now, self._options, self._deadlines)
        if self._removals.left or self._image.emptied.size_bytes > self._options.emptied_bytes_max:
            self._removals.go_on(outcome)
            self._retention.drop_emptied(outcome)
        for _ in range(self._options.groups_expired_per_turn_max):
            group_id = self._deadlines.pop(now.instant)
            if group_id is None:
                self._retention.run_if_due(outcome)
                break
            if group_id in self._image.consumers:
                again = self._consumers.expire(group_id, outcome)
            elif group_id in self._image.shares:
                again = self._shares.expire(group_id, outcome)
            else:
                again = self._classic.expire(group_id, outcome)
            if again is not None:
                self._deadlines.arm(group_id, again)
                if again <= now.instant:
                    # It has work for several turns, of which this was one.
                    break
        self._facts_owed = len(outcome.facts)
        return outcome

    def next_deadline(self) -> Instant | None:
        """When to call `expire`; at times it will then find that nothing is due yet."""
        # Asked with every command: no calls.
        if self._removals.left or self._image.emptied.size_bytes > self._options.emptied_bytes_max:
            return Instant(0)
        deadline, retention = self._deadlines.next(), self._retention.deadline
        if deadline is None or (retention is not None and retention < deadline):
            return retention
        return deadline

    def _classic_request(self, command: ClassicCommand, outcome: GroupOutcome) -> None:
        """A request of a classic member, which may be in a consumer group."""
        if command.group_id in self._image.shares:
            is_join = isinstance(command, JoinGroup)
            kind = ErrorKind.INCONSISTENT_PROTOCOL if is_join else ErrorKind.UNKNOWN_MEMBER
            outcome.refuse(command.on_reply, kind, _is_shared(command.group_id))
            return
        if command.group_id not in self._image.consumers:
            self._classic.decide(command, outcome)
            return
        group = self._consumers.find(command.group_id, outcome)
        assert group is not None
        if not group.members and isinstance(command, JoinGroup):
            self._migration.forget_consumers(command.group_id, outcome)
            self._classic.decide(command, outcome)
        elif self._migration.downgrade_if_due(group, outcome):
            self._classic.decide(command, outcome)
        else:
            self._classic_members.decide(group, command, outcome)

    def _consumer_request(self, command: ConsumerCommand, outcome: GroupOutcome) -> None:
        match command:
            case ConsumerGroupHeartbeat():
                self._consumer_heartbeat(command, outcome)
            case ReloadTopics():
                self._shares.reload(command)
                self._consumers.decide(command, outcome)
            case DescribeConsumerGroup():
                self._consumers.decide(command, outcome)
            case _:
                assert_never(command)

    def _consumer_heartbeat(self, command: ConsumerGroupHeartbeat, outcome: GroupOutcome) -> None:
        if command.group_id in self._image.shares:
            outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP, _is_shared(command.group_id))
            return
        classic = None
        if command.epoch == JOIN_EPOCH and command.group_id not in self._image.consumers:
            classic = self._classic.find(command.group_id)
        if classic is not None and self._consumers.problem(command, outcome) is None:
            reason = self._migration.upgrade(classic, command.instance_id, outcome)
            if reason is not None:
                outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP, reason)
                return
        self._consumers.decide(command, outcome)

    def _share_request(self, command: ShareCommand, outcome: GroupOutcome) -> None:
        group_id = command.group_id
        is_known = group_id in self._image.shares
        if (
            isinstance(command, ShareGroupHeartbeat)
            and not is_known
            and not self._shares.problem(command, outcome)
        ):
            other = self._groups.find(group_id, outcome)
            if other is not None and (not other.is_empty or self._image.has_positions(group_id)):
                detail = f"group {group_id} is not a share group"
                outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP, detail)
                return
            if other is not None and command.epoch == JOIN_EPOCH:
                # Nothing is left of it that anybody could miss.
                self._groups.delete(group_id, outcome)
        self._shares.decide(command, outcome)

    def _list(self, command: ListGroups, outcome: GroupOutcome) -> None:
        states = [state.lower() for state in command.states]
        types = [type_.lower() for type_ in command.types]
        group_ids = self.group_ids() if command.group_ids is None else command.group_ids
        groups = tuple(
            group
            for group in self._groups.listed(group_ids)
            if (not states or group.state.value.lower() in states)
            and (not types or group.type.value in types)
        )
        outcome.responses.append((command.on_reply, ListedGroups(groups)))

    def _delete(self, command: DeleteGroup, outcome: GroupOutcome) -> None:
        group = self._groups.find(command.group_id, outcome)
        if group is None:
            outcome.refuse(command.on_reply, ErrorKind.UNKNOWN_GROUP)
            return
        if not group.is_empty:
            outcome.refuse(command.on_reply, ErrorKind.GROUP_NOT_EMPTY)
            return
        if isinstance(group, ShareGroup):
            topics = tuple((each.id, each.partitions) for each in group.known)
            outcome.events.append(ShareGroupRemoved(command.group_id, topics))
        self._groups.delete(command.group_id, outcome)
        self._removals.delete_group(command.group_id, command.on_reply, outcome)


def _is_shared(group_id: str) -> str:
    return f"group {group_id} is a share group"


def _described(group_id: str, group: AnyGroup | None) -> DescribedGroup:
    # A group has one type; the other's request does not find it.
    if group is None or isinstance(group, ConsumerGroup | ShareGroup):
        return DescribedGroup(group_id, GroupState.DEAD, GroupType.CLASSIC, "", "", ())
    # Only a stable group has settled on a protocol; before, members' metadata is in flux.
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id,
        group.state,
        GroupType.CLASSIC,
        group.protocol_type or "",
        protocol or "",
        tuple(member.described(protocol) for member in group.members.values()),
    )
