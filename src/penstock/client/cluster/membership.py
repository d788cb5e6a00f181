"""`GroupMembership`: members of groups that somebody else speaks for, by their ids alone.

    member = await groups.join("workers", ["emails"], mode=QUEUE)
    member = await groups.heartbeat("workers", member.member_id)
    await groups.leave("workers", member.member_id)

A queue member is a member of a share group (KIP-932), a log member of a consumer group (KIP-848).
Sessions live in the group coordinator. What is kept here, epoch and assignment, is only kept for speed:
a member that another process has let join, or this one before a restart, is described by the
coordinator. So any gateway serves any member.

A log member that is given partitions, or loses some, says so at once with another heartbeat, so that others
need not wait for what it gives up: nobody here holds records of it.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from penstock.client.cluster.client import ClusterClient
from penstock.client.cluster.errors import ClusterError, expect
from penstock.core.groups.embedded_protocol import read_assignment, read_subscription
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.core.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from penstock.core.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.core.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

MembershipMode: TypeAlias = Literal["queue", "log"]
QUEUE: MembershipMode = "queue"
LOG: MembershipMode = "log"
GROUP_KEY = 0
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
MEMBERS_MAX = 10_000
REBALANCE_MS = 60_000
# A member gets what others give up with heartbeats of its own; the first ones follow at once.
HEARTBEATS_AT_JOIN = 3
CONFIRMATIONS_MAX = 2
_WRONG_EPOCH = frozenset({
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
})  # fmt: skip
_NO_SUCH_GROUP = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID})


class Membership(NamedTuple):
    """A member as its coordinator knows it; `assignment` are partitions by topic."""

    group: str
    member_id: str
    mode: MembershipMode
    epoch: int
    heartbeat_interval_ms: int
    topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The assignment as one list."""
        return [(topic, partition) for topic, indexes in self.assignment.items() for partition in indexes]


class MemberDetails(NamedTuple):
    """A member of a group of any type."""

    member_id: str
    client_id: str
    topics: tuple[str, ...]
    assignment: Mapping[str, tuple[int, ...]]


class GroupDetails(NamedTuple):
    """A group as its coordinator has it; `type` is share, consumer or classic."""

    type: str
    state: str
    members: tuple[MemberDetails, ...]


class GroupMembership:
    """Speaks for any number of members inside one event loop."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._members: dict[tuple[str, str], Membership] = {}

    async def join(
        self,
        group: str,
        topics: Sequence[str],
        *,
        mode: MembershipMode = QUEUE,
        session_timeout_ms: int = -1,
        member_id: str | None = None,
    ) -> Membership:
        """Let a new member join; a session timeout of -1 is that of the group."""
        member = Membership(group, member_id or _new_id(), mode, JOIN_EPOCH, 0, tuple(topics), {})
        member = await self._beat(member, is_join=True, session_timeout_ms=session_timeout_ms)
        for _ in range(HEARTBEATS_AT_JOIN):
            if member.assignment:
                break
            member = await self._beat(member)
        return await self._confirmed(member, {})

    async def heartbeat(self, group: str, member_id: str) -> Membership:
        """Keep a member alive, and return what it is assigned now; UNKNOWN_MEMBER_ID if it is gone."""
        known = self._members.get((group, member_id))
        if known is not None:
            try:
                return await self._confirmed(await self._beat(known), known.assignment)
            except ClusterError as error:
                if error.code not in _WRONG_EPOCH:
                    raise
                # Another process has spoken for it meanwhile, or it is gone.
                self._members.pop((group, member_id), None)
        known = await self._described(group, member_id)
        return await self._confirmed(await self._beat(known), known.assignment)

    async def member(self, group: str, member_id: str) -> Membership:
        """A member as it was last heard of; UNKNOWN_MEMBER_ID if there is none."""
        known = self._members.get((group, member_id))
        return known if known is not None else await self._described(group, member_id)

    async def leave(self, group: str, member_id: str) -> None:
        """End a member; its partitions, and what it holds of queues, go to others."""
        member = await self.member(group, member_id)
        self._members.pop((group, member_id), None)
        answer = await self._cluster.ask_coordinator(GROUP_KEY, group, _leave_request(member))
        if answer.error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            expect(answer.error_code, answer.error_message)

    async def commit(
        self, group: str, offsets: Mapping[tuple[str, int], int], *, member_id: str | None = None
    ) -> dict[tuple[str, int], ClusterError | None]:
        """Store positions, as a log member or from outside; for each None, or why it was refused."""
        if not offsets:
            return {}
        epoch = -1
        if member_id is not None:
            epoch = (await self.member(group, member_id)).epoch
        found = await self._commit(group, offsets, member_id or "", epoch)
        if member_id is not None and any(error and error.code in _WRONG_EPOCH for error in found.values()):
            self._members.pop((group, member_id), None)
            epoch = (await self.member(group, member_id)).epoch
            found = await self._commit(group, offsets, member_id, epoch)
        return found

    async def committed(
        self, group: str, partitions: Iterable[tuple[str, int]] | None = None
    ) -> dict[tuple[str, int], int | None]:
        """Stored positions of partitions, None where there is none; without partitions, all there are."""
        topics = None
        if partitions is not None:
            topics = tuple(
                OffsetFetchRequestGroupTopic(name=topic, partition_indexes=tuple(indexes))
                for topic, indexes in _by_topic((place, None) for place in partitions).items()
            )
        row = OffsetFetchRequestGroup(group_id=group, topics=topics)
        request = OffsetFetchRequest(groups=(row,), require_stable=True)
        answer = await self._cluster.ask_coordinator(GROUP_KEY, group, request)
        (found,) = answer.groups
        expect(found.error_code)
        stored: dict[tuple[str, int], int | None] = {}
        for topic in found.topics:
            for one in topic.partitions:
                expect(one.error_code)
                offset = one.committed_offset
                stored[topic.name, one.partition_index] = offset if offset >= 0 else None
        return stored

    async def describe(self, group: str) -> GroupDetails | None:
        """Who is in a group; None if its coordinator has none of this name."""
        for kind, mode in (("share", QUEUE), ("consumer", LOG)):
            row = await self._group_row(group, mode)
            if row is not None:
                members = tuple(
                    MemberDetails(
                        one.member_id,
                        one.client_id,
                        tuple(one.subscribed_topic_names),
                        {each.topic_name: tuple(each.partitions) for each in one.assignment.topic_partitions},
                    )
                    for one in row.members
                )
                return GroupDetails(kind, row.group_state, members)
        request = DescribeGroupsRequest(groups=(group,))
        (row,) = (await self._cluster.ask_coordinator(GROUP_KEY, group, request)).groups
        if row.error_code in _NO_SUCH_GROUP:
            return None
        expect(row.error_code, row.error_message)
        members = tuple(
            MemberDetails(
                one.member_id,
                one.client_id,
                subscribed.topics if (subscribed := read_subscription(bytes(one.member_metadata))) else (),
                dict(read_assignment(bytes(one.member_assignment)) or ()),
            )
            for one in row.members
        )
        return None if row.group_state == "Dead" else GroupDetails("classic", row.group_state, members)

    async def _commit(
        self, group: str, offsets: Mapping[tuple[str, int], int], member_id: str, epoch: int
    ) -> dict[tuple[str, int], ClusterError | None]:
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=tuple(
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=None
                        )
                        for partition, offset in positions.items()
                    ),
                )
                for topic, positions in _by_topic(offsets.items()).items()
            ),
        )
        answer = await self._cluster.ask_coordinator(GROUP_KEY, group, request)
        return {
            (topic.name, one.partition_index): None
            if one.error_code == ErrorCode.NONE
            else ClusterError(one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }

    async def _beat(
        self, member: Membership, *, is_join: bool = False, session_timeout_ms: int = -1
    ) -> Membership:
        topics = member.topics if is_join else None
        request: ShareGroupHeartbeatRequest | ConsumerGroupHeartbeatRequest
        if member.mode == QUEUE:
            request = ShareGroupHeartbeatRequest(
                group_id=member.group,
                member_id=member.member_id,
                member_epoch=member.epoch,
                subscribed_topic_names=topics,
                session_timeout_ms=session_timeout_ms,
            )
        else:
            request = ConsumerGroupHeartbeatRequest(
                group_id=member.group,
                member_id=member.member_id,
                member_epoch=member.epoch,
                rebalance_timeout_ms=REBALANCE_MS if is_join else -1,
                subscribed_topic_names=topics,
                topic_partitions=await self._owned(member),
                session_timeout_ms=session_timeout_ms,
            )
        answer = await self._cluster.ask_coordinator(GROUP_KEY, member.group, request)
        expect(answer.error_code, answer.error_message)
        member = member._replace(
            epoch=answer.member_epoch, heartbeat_interval_ms=answer.heartbeat_interval_ms
        )
        if answer.assignment is not None:
            member = member._replace(assignment=await self._named(answer.assignment.topic_partitions))
        self._remember(member)
        return member

    async def _confirmed(self, member: Membership, before: Mapping[str, tuple[int, ...]]) -> Membership:
        """Say that a log member has taken what it was given, and gives up what it was not."""
        for _ in range(CONFIRMATIONS_MAX):
            if member.mode == QUEUE or member.assignment == before:
                break
            before = member.assignment
            member = await self._beat(member)
        return member

    async def _owned(self, member: Membership) -> tuple[ConsumerGroupHeartbeatRequestTopicPartitions, ...]:
        """What a member has, as the request wants it: all that it was assigned."""
        return tuple(
            [
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=(await self._cluster.topic(topic)).topic_id, partitions=partitions
                )
                for topic, partitions in member.assignment.items()
            ]
        )

    async def _named(self, rows: Sequence[Any]) -> dict[str, tuple[int, ...]]:
        """An assignment with names for the ids of topics; a topic that is gone is left out."""
        found: dict[str, tuple[int, ...]] = {}
        for row in rows:
            name = await self._name_of(row.topic_id)
            if name is not None:
                found[name] = tuple(sorted(row.partitions))
        return dict(sorted(found.items()))

    async def _name_of(self, topic_id: UUID) -> str | None:
        name = self._cluster.topic_name(topic_id)
        if name is None:
            await self._cluster.topics()
            name = self._cluster.topic_name(topic_id)
        return name

    async def _described(self, group: str, member_id: str) -> Membership:
        """What the coordinator knows of a member that was not heard of here."""
        for mode in (QUEUE, LOG):
            row = await self._group_row(group, mode)
            for one in () if row is None else row.members:
                if one.member_id == member_id:
                    return self._restored(group, mode, one)
        raise ClusterError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of {group!r}: it has to join first"
        )

    async def _group_row(self, group: str, mode: MembershipMode) -> Any:
        """A share or consumer group as its coordinator describes it; None if it has none."""
        request = (
            ShareGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
            if mode == QUEUE
            else ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
        )
        try:
            answer = await self._cluster.ask_coordinator(GROUP_KEY, group, request)
        except ClusterError as error:
            # A broker without share groups has none.
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise
        (row,) = answer.groups
        if row.error_code in _NO_SUCH_GROUP:
            return None
        expect(row.error_code, row.error_message)
        return row

    def _restored(self, group: str, mode: MembershipMode, row: Any) -> Membership:
        assignment = {
            one.topic_name: tuple(one.partitions)
            for one in sorted(row.assignment.topic_partitions, key=lambda one: str(one.topic_name))
        }
        member = Membership(
            group, row.member_id, mode, row.member_epoch, 0, tuple(row.subscribed_topic_names), assignment
        )
        self._remember(member)
        return member

    def _remember(self, member: Membership) -> None:
        place = member.group, member.member_id
        self._members.pop(place, None)
        if len(self._members) >= MEMBERS_MAX:
            # The one that was silent for longest; if it speaks again, it is described.
            del self._members[next(iter(self._members))]
        self._members[place] = member


def _leave_request(member: Membership) -> ShareGroupHeartbeatRequest | ConsumerGroupHeartbeatRequest:
    if member.mode == QUEUE:
        return ShareGroupHeartbeatRequest(
            group_id=member.group, member_id=member.member_id, member_epoch=LEAVE_EPOCH
        )
    return ConsumerGroupHeartbeatRequest(
        group_id=member.group,
        member_id=member.member_id,
        member_epoch=LEAVE_EPOCH,
        topic_partitions=None,
    )


def _by_topic(rows: Iterable[tuple[tuple[str, int], Any]]) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for (topic, partition), value in rows:
        found.setdefault(topic, {})[partition] = value
    return found


def _new_id() -> str:
    return str(UUID(bytes=os.urandom(16), version=4))
