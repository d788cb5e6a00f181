"""The classic groups that are alive on this coordinator partition.

A group is here while it has members, or ids that it gave out; else the image says all
there is to say, and the group is made from it when it is asked for. After a failover,
groups with members come in one by one too, when they are first touched or when their
shortest session may have ended: starting a coordinator does not take longer with more members.
"""

from typing import assert_never

from penstock.core.groups.classic import rebalance
from penstock.core.groups.classic.group import ClassicGroup
from penstock.core.groups.classic.join import join, refusal_of
from penstock.core.groups.classic.presence import expire, heartbeat, leave
from penstock.core.groups.classic.storing import restored
from penstock.core.groups.classic.sync import sync
from penstock.core.groups.commands import ClassicCommand, Heartbeat, Join, Leave, Sync
from penstock.core.groups.image import GroupImage
from penstock.core.groups.outcome import Turn
from penstock.core.groups.replies import GroupState, GroupType, Left, LeftMember, ListedGroup
from penstock.core.model import Instant, Why


class ClassicGroups:
    """Finds, keeps and lets go of the groups, and brings commands to them."""

    def __init__(self, image: GroupImage) -> None:
        self._image = image
        self._live: dict[str, ClassicGroup] = {}
        self._resumed_at = Instant(0)

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self._live.get(group_id)
        if group is not None:
            return group
        stored = self._image.groups.get(group_id)
        if stored is not None:
            group = restored(stored, self._resumed_at)
            if group.members:
                self._live[group_id] = group
            return group
        # A consumer that assigns itself commits under a group id and never joins.
        return ClassicGroup(group_id) if self._image.knows(group_id) else None

    def listed(self) -> list[ListedGroup]:
        """Every group by id, without waking those that were not touched since the failover."""
        group_ids = sorted({*self._live, *self._image.group_ids()})
        return [self._listed_one(group_id) for group_id in group_ids]

    def handle(self, command: ClassicCommand, turn: Turn) -> None:
        if isinstance(command, Join):
            self._join(command, turn)
            return
        if not command.group_id:
            turn.refuse(command.ticket, Why.INVALID_GROUP, "the group id is empty")
            return
        group = self.find(command.group_id)
        if group is None:
            _answer_stranger(command, turn)
            return
        match command:
            case Sync():
                sync(group, command, turn)
            case Heartbeat():
                heartbeat(group, command, turn)
            case Leave():
                leave(group, command, turn)
            case _:
                assert_never(command)
        self._keep_or_release(group)

    def expire(self, group_id: str, turn: Turn) -> Instant | None:
        """Do what is due in the group; returns when to look at it again."""
        group = self.find(group_id)
        if group is None:
            return None
        expire(group, turn)
        self._keep_or_release(group)
        return group.earliest_deadline()

    def forget(self, group_id: str) -> None:
        """The group is deleted; ids it gave out are worth nothing any more."""
        self._live.pop(group_id, None)

    def resume(self, turn: Turn) -> None:
        """Sessions of all stored members start now, in full."""
        self._resumed_at = turn.now.instant
        for stored in self._image.groups.values():
            if not stored.members:
                continue
            turn.wake(stored.group_id, min(member.session_timeout_ms for member in stored.members))
            if len(stored.members) > turn.options.group_members_max:
                self._shrink(stored.group_id, turn)

    def _listed_one(self, group_id: str) -> ListedGroup:
        group = self._live.get(group_id)
        if group is not None:
            return ListedGroup(group_id, group.protocol_type or "", group.state, GroupType.CLASSIC)
        stored = self._image.groups.get(group_id)
        if stored is None:
            return ListedGroup(group_id, "", GroupState.EMPTY, GroupType.CLASSIC)
        state = GroupState.STABLE if stored.members else GroupState.EMPTY
        return ListedGroup(group_id, stored.protocol_type, state, GroupType.CLASSIC)

    def _shrink(self, group_id: str, turn: Turn) -> None:
        group = self.find(group_id)
        assert group is not None
        assert group.state is GroupState.STABLE
        # Members commit their offsets before they join again; the last to come are turned away.
        rebalance.prepare(group, turn, "the group is over its size limit")

    def _join(self, command: Join, turn: Turn) -> None:
        refusal = refusal_of(command, turn.options)
        if refusal is not None:
            turn.answer(command.ticket, refusal)
            return
        group = self.find(command.group_id) or ClassicGroup(command.group_id)
        join(group, command, turn)
        self._keep_or_release(group)

    def _keep_or_release(self, group: ClassicGroup) -> None:
        if group.is_idle:
            self._live.pop(group.group_id, None)
        else:
            self._live[group.group_id] = group


def _answer_stranger(command: Sync | Heartbeat | Leave, turn: Turn) -> None:
    if isinstance(command, Leave):
        strangers = (LeftMember(m.member_id, m.instance_id, Why.UNKNOWN_MEMBER) for m in command.members)
        turn.answer(command.ticket, Left(tuple(strangers)))
    else:
        turn.refuse(command.ticket, Why.UNKNOWN_MEMBER)
