"""Between a classic group and its stored form.

Stored is what a settled generation needs to go on after a failover; timers, parked requests,
ids that were given out and protocols that were not chosen are not. So a group comes back
Stable or Empty, and sessions start anew in full.
"""

from penstock.core.groups.classic.group import ClassicGroup
from penstock.core.groups.classic.member import Member
from penstock.core.groups.commands import MemberProtocol
from penstock.core.groups.facts import GroupStored, StoredMember
from penstock.core.groups.replies import GroupState
from penstock.core.model import MILLISECOND, Instant, Timestamp

NO_TIMESTAMP = Timestamp(-1)


def stored(group: ClassicGroup) -> GroupStored:
    return GroupStored(
        group.group_id,
        group.protocol_type or "",
        group.generation,
        group.protocol,
        group.leader,
        NO_TIMESTAMP if group.state_since is None else group.state_since,
        tuple(_stored_member(member, group.protocol) for member in group.members.values()),
    )


def restored(fact: GroupStored, resumed_at: Instant) -> ClassicGroup:
    """The group as it was stored, with every session starting at `resumed_at`."""
    group = ClassicGroup(fact.group_id)
    group.generation = fact.generation
    group.protocol_type = fact.protocol_type or None
    group.protocol = fact.protocol
    group.state_since = None if fact.state_since == NO_TIMESTAMP else fact.state_since
    for stored_member in fact.members:
        member = _restored_member(stored_member, fact.protocol or "")
        member.session_deadline = Instant(resumed_at + member.session_timeout_ms * MILLISECOND)
        group.add(member)
    group.leader = fact.leader
    if group.members:
        group.state = GroupState.STABLE
    group.note_subscriptions()
    return group


def _stored_member(member: Member, protocol: str | None) -> StoredMember:
    return StoredMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        member.metadata_for(protocol),
        member.assignment,
    )


def _restored_member(member: StoredMember, protocol: str) -> Member:
    # Records of the oldest version have no rebalance timeout.
    rebalance_timeout_ms = member.rebalance_timeout_ms
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = member.session_timeout_ms
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        rebalance_timeout_ms,
        member.session_timeout_ms,
        (MemberProtocol(protocol, member.subscription),),
        member.assignment,
    )
