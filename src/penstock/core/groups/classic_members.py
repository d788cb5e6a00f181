"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

They are there while a group moves from one protocol to the other. The coordinator assigns for them too:
JoinGroup tells what a member wants and has, and moves it towards its target; nobody waits for the
others, and nobody leads. SyncGroup fetches what the member has now; a Heartbeat sends it back to
JoinGroup when there is more to do. What is the member epoch for others is its generation.

    JoinGroup ── generation = member epoch ──▶ SyncGroup ── partitions ──▶ Heartbeat ──┐
        ▲────────────────────────── REBALANCE_IN_PROGRESS ─────────────────────────────┘
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from penstock.core.groups.classic_group import CONSUMER_PROTOCOL_TYPE
from penstock.core.groups.cluster_topics import ClusterTopics
from penstock.core.groups.commands import (
    UNKNOWN_MEMBER_ID,
    ClassicCommand,
    GroupOk,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    MemberIdRequired,
    MemberProtocol,
    SyncGroup,
    SyncGroupResult,
)
from penstock.core.groups.consumer_facts import ClassicMember, ConsumerMemberStored, MemberState
from penstock.core.groups.consumer_group import ConsumerGroup, ConsumerMember
from penstock.core.groups.consumer_protocol import (
    ConsumerGroups,
    MemberUpdate,
    has_memory,
    raise_epoch,
    remove_member,
    replace_member,
    update_member,
)
from penstock.core.groups.embedded_protocol import (
    EmbeddedSubscription,
    NamedPartitions,
    read_subscription,
    write_assignment,
)
from penstock.core.groups.outcome import NO_MEMORY, GroupOptions, GroupOutcome
from penstock.core.groups.partition_sets import PartitionSet, difference, partition_set, rows
from penstock.core.model import ErrorKind, TopicId

# What a protocol takes in a record besides its name and metadata.
_PROTOCOL_BYTES = 10


def partitions_by_id(named: NamedPartitions, topics: ClusterTopics) -> PartitionSet:
    """The partitions of topics that exist."""
    found = [(topics.find(name), indexes) for name, indexes in named]
    return partition_set((topic.id, indexes) for topic, indexes in found if topic is not None)


def assignment_bytes(member: ConsumerMember, topics: ClusterTopics) -> bytes:
    """What the member has, in the form that its client reads."""
    subscription = read_subscription(
        member.stored.classic.protocols[0].metadata if member.stored.classic else b""
    )
    version = 0 if subscription is None else subscription.version
    named = [(topics.name_of(topic_id), indexes) for topic_id, indexes in rows(member.assigned)]
    return write_assignment(version, [(name, indexes) for name, indexes in named if name is not None])


class ClassicMembers:
    """Serves the classic members of consumer groups."""

    def __init__(self, consumers: ConsumerGroups, topics: ClusterTopics) -> None:
        self._consumers = consumers
        self._topics = topics

    def decide(self, group: ConsumerGroup, command: ClassicCommand, outcome: GroupOutcome) -> None:
        match command:
            case JoinGroup():
                self._join(group, command, outcome)
            case SyncGroup():
                self._sync(group, command, outcome)
            case Heartbeat():
                _heartbeat(group, command, outcome)
            case LeaveGroup():
                self._leave(group, command, outcome)
            case _:
                assert_never(command)

    def _join(self, group: ConsumerGroup, command: JoinGroup, outcome: GroupOutcome) -> None:
        subscription = read_subscription(command.protocols[0].metadata) if command.protocols else None
        kind = _why_not_join(group, command, subscription, outcome)
        if kind is not None:
            outcome.refuse(command.on_reply, kind)
            return
        assert subscription is not None
        member_id = command.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            member_id = f"{command.instance_id or command.client_id}-{command.random_id}"
            if command.instance_id is None and command.member_id_required:
                outcome.responses.append((command.on_reply, MemberIdRequired(member_id)))
                return
        member = _joining_member(group, member_id, command.instance_id, outcome)
        stored = replace(
            member.stored,
            instance_id=command.instance_id or member.stored.instance_id,
            rack_id=subscription.rack_id or member.stored.rack_id,
            client_id=command.client_id,
            client_host=command.client_host,
            topics=tuple(sorted(set(subscription.topics))),
            pattern=None,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            assignor=None,
            classic=ClassicMember(command.session_timeout_ms, command.protocols),
        )
        if not has_memory(group, stored, outcome):
            outcome.responses.append((command.on_reply, NO_MEMORY))
            return
        owned = partitions_by_id(subscription.owned, self._topics)
        needs_target = update_member(group, member, stored, outcome)
        self._consumers.move_on(group, member, MemberUpdate(owned, needs_target), outcome)
        member.session_deadline = outcome.wake(group.group_id, command.session_timeout_ms)
        if not member.revoking:
            member.revoke_deadline = None
        protocol = command.protocols[0].name
        outcome.responses.append(
            (
                command.on_reply,
                JoinGroupResult(member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, protocol, ""),
            )
        )

    def _sync(self, group: ConsumerGroup, command: SyncGroup, outcome: GroupOutcome) -> None:
        member = _classic_member(group, command.member_id, command.instance_id)
        if isinstance(member, ErrorKind):
            outcome.refuse(command.on_reply, member)
            return
        classic = member.stored.classic
        assert classic is not None
        kind = _why_not_sync(group, member, command)
        if kind is not None:
            outcome.refuse(command.on_reply, kind)
            return
        member.session_deadline = outcome.wake(group.group_id, classic.session_timeout_ms)
        assignment = assignment_bytes(member, self._topics)
        protocol = classic.protocols[0].name
        outcome.responses.append(
            (command.on_reply, SyncGroupResult(CONSUMER_PROTOCOL_TYPE, protocol, assignment))
        )

    def _leave(self, group: ConsumerGroup, command: LeaveGroup, outcome: GroupOutcome) -> None:
        before = len(group.members)
        results = tuple([_leave_one(group, leaving, outcome) for leaving in command.members])
        outcome.responses.append((command.on_reply, LeaveGroupResult(results)))
        if len(group.members) < before:
            raise_epoch(group, outcome, f"{before - len(group.members)} members left")
            self._consumers.keep(group)


def _why_not_join(
    group: ConsumerGroup,
    command: JoinGroup,
    subscription: EmbeddedSubscription | None,
    outcome: GroupOutcome,
) -> ErrorKind | None:
    options = outcome.options
    if not options.session_timeout_ms_min <= command.session_timeout_ms <= options.session_timeout_ms_max:
        return ErrorKind.INVALID_SESSION_TIMEOUT
    if len(command.protocols) > options.protocols_max:
        return ErrorKind.INVALID_REQUEST
    # The group could become a classic one: its classic members need a protocol of them all.
    has_common = group.have_in_common([protocol.name for protocol in command.protocols], command.member_id)
    if command.protocol_type != CONSUMER_PROTOCOL_TYPE or subscription is None or not has_common:
        return ErrorKind.INCONSISTENT_PROTOCOL
    if not fits_record(command.protocols, options):
        return ErrorKind.BATCH_TOO_LARGE
    holder = None if command.instance_id is None else group.instances.get(command.instance_id)
    if command.instance_id is not None and command.member_id != UNKNOWN_MEMBER_ID:
        if holder is None:
            return ErrorKind.UNKNOWN_MEMBER
        if holder != command.member_id:
            return ErrorKind.FENCED_INSTANCE
    is_known = command.member_id in group.members or holder is not None
    is_full = len(group.members) >= options.consumer.members_max
    return ErrorKind.GROUP_FULL if is_full and not is_known else None


def fits_record(protocols: Sequence[MemberProtocol], options: GroupOptions) -> bool:
    """Whether a classic member can be stored: with all its protocols, and the topics of one once more."""
    sizes = [_PROTOCOL_BYTES + len(name.encode()) + 2 * len(metadata) for name, metadata in protocols]
    return sum(sizes) <= options.record_bytes_max


def _joining_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, outcome: GroupOutcome
) -> ConsumerMember:
    holder = None if instance_id is None else group.instances.get(instance_id)
    if holder is not None and holder != member_id:
        # The instance has restarted: whoever had its place before is fenced.
        return replace_member(group, group.members[holder], member_id, outcome)
    member = group.members.get(member_id)
    return ConsumerMember(ConsumerMemberStored(group.group_id, member_id)) if member is None else member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> ConsumerMember | ErrorKind:
    if instance_id is not None:
        holder = group.instances.get(instance_id)
        if holder is None:
            return ErrorKind.UNKNOWN_MEMBER
        if holder != member_id:
            return ErrorKind.FENCED_INSTANCE
    member = group.members.get(member_id)
    if member is None or member.stored.classic is None:
        return ErrorKind.UNKNOWN_MEMBER
    return member


def _why_not_sync(group: ConsumerGroup, member: ConsumerMember, command: SyncGroup) -> ErrorKind | None:
    if command.generation != member.epoch:
        return ErrorKind.ILLEGAL_GENERATION
    classic = member.stored.classic
    assert classic is not None
    if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or command.protocol not in (
        None,
        classic.protocols[0].name,
    ):
        return ErrorKind.INCONSISTENT_PROTOCOL
    # One that gives up partitions has joined already: it goes on with what it keeps, and joins again then.
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return ErrorKind.REBALANCE_IN_PROGRESS
    return None


def _heartbeat(group: ConsumerGroup, command: Heartbeat, outcome: GroupOutcome) -> None:
    member = _classic_member(group, command.member_id, command.instance_id)
    if isinstance(member, ErrorKind):
        outcome.refuse(command.on_reply, member)
        return
    if command.generation != member.epoch:
        outcome.refuse(command.on_reply, ErrorKind.ILLEGAL_GENERATION)
        return
    classic = member.stored.classic
    assert classic is not None
    member.session_deadline = outcome.wake(group.group_id, classic.session_timeout_ms)
    if not _has_to_join_again(group, member):
        outcome.responses.append((command.on_reply, GroupOk()))
        return
    if member.revoke_deadline is None:
        member.revoke_deadline = outcome.wake(group.group_id, member.stored.rebalance_timeout_ms)
    outcome.refuse(command.on_reply, ErrorKind.REBALANCE_IN_PROGRESS)


def _has_to_join_again(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if member.state is MemberState.STABLE:
        return False
    # It waits for partitions: once one of them is free, it fetches that.
    target: PartitionSet = group.target.get(member.stored.member_id, {})
    wanted: list[tuple[TopicId, int]] = [
        (topic_id, index)
        for topic_id, indexes in difference(target, member.assigned).items()
        for index in indexes
    ]
    return any(group.owner_of(topic_id, index) is None for topic_id, index in wanted)


def _leave_one(group: ConsumerGroup, leaving: LeavingMember, outcome: GroupOutcome) -> LeftMember:
    member_id, instance_id, reason = leaving
    left = LeftMember(member_id, instance_id)
    if member_id == UNKNOWN_MEMBER_ID and instance_id is not None:
        # An operator removes a static member, whoever holds the instance id now.
        member_id = group.instances.get(instance_id, UNKNOWN_MEMBER_ID)
    elif instance_id is not None and (holder := group.instances.get(instance_id)) != member_id:
        kind = ErrorKind.UNKNOWN_MEMBER if holder is None else ErrorKind.FENCED_INSTANCE
        return left._replace(kind=kind)
    if member_id not in group.members:
        return left._replace(kind=ErrorKind.UNKNOWN_MEMBER)
    remove_member(group, member_id, outcome, f"left: {reason or 'no reason given'}")
    return left
