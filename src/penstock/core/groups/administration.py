"""ListGroups, DescribeGroups, DeleteGroups: what operators see and do."""

from typing import assert_never

from penstock.core.groups.classic import ClassicGroup, ClassicGroups
from penstock.core.groups.commands import DeleteGroup, DescribeGroup, GroupCommand, ListGroups
from penstock.core.groups.facts import GroupDeleted, OffsetDeleted
from penstock.core.groups.image import GroupImage
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import DescribedGroup, Done, GroupState, GroupType, ListedGroups
from penstock.core.model import Why


def handle_administration(
    command: GroupCommand, image: GroupImage, classic: ClassicGroups, turn: Turn
) -> None:
    match command:
        case ListGroups():
            _list(command, classic, turn)
        case DescribeGroup():
            turn.answer(command.ticket, _described(command.group_id, classic.find(command.group_id)))
        case DeleteGroup():
            _delete(command, image, classic, turn)
        case _:
            assert_never(command)


def _list(command: ListGroups, classic: ClassicGroups, turn: Turn) -> None:
    states = [state.lower() for state in command.states]
    types = [type_.lower() for type_ in command.types]
    groups = tuple(
        group
        for group in classic.listed()
        if (not states or group.state.value.lower() in states) and (not types or group.type.value in types)
    )
    turn.answer(command.ticket, ListedGroups(groups))


def _described(group_id: str, group: ClassicGroup | None) -> DescribedGroup:
    if group is None:
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


def _delete(command: DeleteGroup, image: GroupImage, classic: ClassicGroups, turn: Turn) -> None:
    group = classic.find(command.group_id)
    if group is None:
        turn.refuse(command.ticket, Why.UNKNOWN_GROUP)
        return
    if not group.is_empty:
        turn.refuse(command.ticket, Why.GROUP_NOT_EMPTY)
        return
    for partition in image.offsets_of(command.group_id):
        turn.record(OffsetDeleted(command.group_id, partition))
    if command.group_id in image.groups:
        turn.record(GroupDeleted(command.group_id))
    classic.forget(command.group_id)
    turn.answer(command.ticket, Done())
