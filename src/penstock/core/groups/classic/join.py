"""JoinGroup: who may come in, and whether that takes a rebalance."""

from penstock.core.groups.classic import rebalance
from penstock.core.groups.classic.ballot import distinct
from penstock.core.groups.classic.group import ClassicGroup
from penstock.core.groups.classic.member import Member
from penstock.core.groups.classic.static import rejoin_static
from penstock.core.groups.commands import UNKNOWN_MEMBER_ID, Join, MemberProtocol
from penstock.core.groups.options import GroupOptions
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import GroupState, MemberIdRequired
from penstock.core.model import Refused, Why


def refusal_of(command: Join, options: GroupOptions) -> Refused | None:
    """What is wrong with the request whatever the group's state is."""
    if not command.group_id:
        return Refused(Why.INVALID_GROUP, "the group id is empty")
    shortest, longest = options.session_timeout_ms_min, options.session_timeout_ms_max
    if not shortest <= command.session_timeout_ms <= longest:
        return Refused(
            Why.INVALID_SESSION_TIMEOUT,
            f"a session timeout is between {shortest} and {longest} ms, not {command.session_timeout_ms}",
        )
    return None


def join(group: ClassicGroup, command: Join, turn: Turn) -> None:
    """Let the member in, park its request until the join phase ends, or say why not."""
    protocols = distinct(command.protocols)
    if not _has_room(group, command, turn.options.group_members_max):
        _turn_away(group, command, turn)
    elif not group.supports(command.protocol_type, protocols):
        turn.refuse(command.ticket, Why.INCONSISTENT_PROTOCOL)
    elif command.member_id != UNKNOWN_MEMBER_ID:
        _join_known(group, command, protocols, turn)
    elif command.instance_id is not None:
        _join_new_static(group, command, protocols, turn)
    elif command.member_id_required:
        _give_member_id(group, command, turn)
    else:
        _add(group, _new_member_id(command), command, protocols, turn)


def _has_room(group: ClassicGroup, command: Join, members_max: int) -> bool:
    member_id = command.member_id
    if member_id == UNKNOWN_MEMBER_ID and command.instance_id is not None:
        # A restarted static member takes its own place, which a full group has.
        member_id = group.instances.get(command.instance_id, UNKNOWN_MEMBER_ID)
    match group.state:
        case GroupState.EMPTY:
            return True
        case GroupState.PREPARING_REBALANCE:
            # Those that wait count, not those that are known: when the limit was lowered, the first
            # to join again stay and the last are turned away.
            return member_id in group.joining or len(group.joining) < members_max
        case _:
            return member_id in group.members or len(group.members) < members_max


def _turn_away(group: ClassicGroup, command: Join, turn: Turn) -> None:
    turn.refuse(command.ticket, Why.GROUP_FULL)
    group.pending.pop(command.member_id, None)
    if group.why_not_member(command.member_id, command.instance_id) is None:
        rebalance.drop(group, command.member_id, turn, "the group is over its size limit")
    rebalance.complete_join_if_all_are_here(group, turn)


def _new_member_id(command: Join) -> str:
    return f"{command.instance_id or command.client_id}-{command.random_id}"


def _give_member_id(group: ClassicGroup, command: Join, turn: Turn) -> None:
    # Without this step (KIP-394) a client that times out and retries leaves a member behind each time.
    member_id = _new_member_id(command)
    if len(group.pending) >= turn.options.pending_members_max:
        del group.pending[next(iter(group.pending))]
    group.pending[member_id] = turn.wake(group.group_id, command.session_timeout_ms)
    turn.answer(command.ticket, MemberIdRequired(member_id))


def _join_new_static(
    group: ClassicGroup, command: Join, protocols: tuple[MemberProtocol, ...], turn: Turn
) -> None:
    assert command.instance_id is not None
    old_member_id = group.instances.get(command.instance_id)
    member = _member(_new_member_id(command), command, protocols)
    if old_member_id is None:
        _add_member(group, member, command, turn)
    else:
        rejoin_static(group, member, old_member_id, command, turn)


def _join_known(
    group: ClassicGroup, command: Join, protocols: tuple[MemberProtocol, ...], turn: Turn
) -> None:
    if command.member_id in group.pending and command.instance_id is None:
        _add(group, command.member_id, command, protocols, turn)
        return
    why = group.why_not_member(command.member_id, command.instance_id)
    if why is not None:
        turn.refuse(command.ticket, why)
        return
    member = group.members[command.member_id]
    if _must_rebalance(group, member, protocols):
        _park_again(group, member, command, protocols, turn)
    else:
        # The answer to an earlier JoinGroup was lost, or a follower is nervous: no reason to
        # disturb the others.
        turn.answer(command.ticket, rebalance.joined(group, member.member_id))


def _must_rebalance(group: ClassicGroup, member: Member, protocols: tuple[MemberProtocol, ...]) -> bool:
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            return True
        case GroupState.STABLE if member.member_id == group.leader:
            # The leader joins again when the topics' partitions have changed.
            return True
        case _:
            return member.protocols != protocols


def _park_again(
    group: ClassicGroup, member: Member, command: Join, protocols: tuple[MemberProtocol, ...], turn: Turn
) -> None:
    group.update_protocols(member, protocols)
    member.rebalance_timeout_ms = command.rebalance_timeout_ms
    member.session_timeout_ms = command.session_timeout_ms
    if member.member_id in group.joining:
        turn.refuse(
            group.joining[member.member_id], Why.REBALANCE_IN_PROGRESS, "a newer JoinGroup took its place"
        )
    group.joining[member.member_id] = command.ticket
    rebalance.prepare_or_complete(group, turn, f"member {member.member_id} joins again: {_reason(command)}")


def _add(
    group: ClassicGroup, member_id: str, command: Join, protocols: tuple[MemberProtocol, ...], turn: Turn
) -> None:
    _add_member(group, _member(member_id, command, protocols), command, turn)


def _add_member(group: ClassicGroup, member: Member, command: Join, turn: Turn) -> None:
    group.protocol_type = command.protocol_type
    if group.initial_delay is not None:
        group.initial_delay.member_came = True
    group.add(member)
    group.joining[member.member_id] = command.ticket
    member.session_deadline = turn.wake(group.group_id, turn.options.new_member_join_timeout_ms)
    rebalance.prepare_or_complete(group, turn, f"member {member.member_id} is new: {_reason(command)}")


def _member(member_id: str, command: Join, protocols: tuple[MemberProtocol, ...]) -> Member:
    return Member(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.rebalance_timeout_ms,
        command.session_timeout_ms,
        protocols,
        is_new=True,
    )


def _reason(command: Join) -> str:
    return command.reason or "no reason given"
