"""Members of groups that clients of a gateway are: they join, heartbeat, poll and leave.

`GroupMembership` speaks for them, and their coordinator has all that matters, so that every node serves every
member. Here is what polls of a member at this gateway need beside that: where they are in the log, and when a
heartbeat was last sent, since polling is one too.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from penstock.client.cluster import ClusterClient, ClusterError, GroupMembership, Membership, MembershipMode
from penstock.core.protocol import ErrorCode

KNOWN_MAX = 10_000
Place = tuple[str, int]


class PollingMember:
    """A member, and its polls here; nothing depends on them."""

    def __init__(self, membership: Membership) -> None:
        self.membership = membership
        self.heard_at = 0.0
        # In log mode: what follows the last poll here.
        self.positions: dict[Place, int] = {}
        self.turn = 0

    @property
    def group(self) -> str:
        return self.membership.group

    @property
    def member_id(self) -> str:
        return self.membership.member_id

    @property
    def mode(self) -> MembershipMode:
        return self.membership.mode

    @property
    def topics(self) -> tuple[str, ...]:
        return self.membership.topics

    @property
    def heartbeat_ms(self) -> int:
        return self.membership.heartbeat_interval_ms

    @property
    def assigned(self) -> Mapping[str, tuple[int, ...]]:
        return self.membership.assignment

    @property
    def places(self) -> list[Place]:
        return sorted(self.membership.partitions)

    def update(self, membership: Membership) -> None:
        """Positions in partitions that it has no more are forgotten."""
        self.membership = membership
        places = dict.fromkeys(membership.partitions)
        self.positions = {place: at for place, at in self.positions.items() if place in places}


class GroupMembers:
    """The members that clients of this gateway speak of; used inside one event loop."""

    def __init__(self, cluster: ClusterClient, groups: GroupMembership) -> None:
        self._cluster = cluster
        self._groups = groups
        self._known: OrderedDict[tuple[str, str], PollingMember] = OrderedDict()
        self._loop = asyncio.get_running_loop()

    async def join(
        self,
        group: str,
        member_id: str,
        mode: MembershipMode,
        topics: Sequence[str],
        session_timeout_ms: int | None,
    ) -> PollingMember:
        """A new member, or one that is known by this id, with these topics."""
        for topic in topics:
            await self._cluster.topic(topic)
        timeout_ms = -1 if session_timeout_ms is None else session_timeout_ms
        joined = await self._groups.join(
            group, topics, mode=mode, session_timeout_ms=timeout_ms, member_id=member_id
        )
        member = PollingMember(joined)
        member.heard_at = self._loop.time()
        self._keep(member)
        return member

    async def leave(self, group: str, member_id: str) -> None:
        self._known.pop((group, member_id), None)
        await self._groups.leave(group, member_id)

    async def heartbeat(self, group: str, member_id: str) -> PollingMember:
        member = await self.find(group, member_id)
        await self._stay(member)
        return member

    async def keep_alive(self, member: PollingMember) -> None:
        """A heartbeat, unless there was one a moment ago."""
        if self._loop.time() - member.heard_at > member.heartbeat_ms / 2_000:
            await self._stay(member)

    async def find(self, group: str, member_id: str) -> PollingMember:
        """A member that joined on any node; ClusterError UNKNOWN_MEMBER_ID if there is none."""
        found = await self._groups.member(group, member_id)
        known = self._known.get((group, member_id))
        if known is None:
            known = PollingMember(found)
        else:
            known.update(found)
        self._keep(known)
        return known

    async def _stay(self, member: PollingMember) -> None:
        try:
            member.update(await self._groups.heartbeat(member.group, member.member_id))
        except ClusterError as error:
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._known.pop((member.group, member.member_id), None)
            raise
        member.heard_at = self._loop.time()

    def _keep(self, member: PollingMember) -> None:
        place = member.group, member.member_id
        self._known[place] = member
        self._known.move_to_end(place)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
