"""Groups: members, polling, and what became of the messages.

In mode `queue` a poll leases messages, and their receipts are for `ack`, `nack` and `renew`. Whoever names
`topics` polls without joining: any `member_id` will do.

In mode `log` a poll returns what follows the last poll of the member on the same node, or what follows its
last commit: after a poll on another node, messages that were not committed come again. Where the log does not
reach there (any more), it goes on at the start of the log, as without a commit.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.client.cluster import ClusterError, QuotaExceeded
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.core.protocol.messages.list_groups import ListGroupsRequest
from penstock.core.protocol.messages.queue_settle import ACKNOWLEDGE, REJECT, RELEASE, RENEW
from penstock.observability import log
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.members import Place, PollingMember
from penstock.server.http.body import ClientGone, until_gone
from penstock.server.http.message_json import (
    INT32_MAX,
    INT64_MAX,
    MessageView,
    header_views,
    key_fields,
    value_fields,
)
from penstock.server.http.operations import (
    JSON,
    NoQuery,
    OperationTable,
    RestAnswer,
    RestRequest,
    RestStruct,
)
from penstock.server.http.problem import ProblemBody, failed, invalid

OPERATIONS = OperationTable("groups", "Groups: polling, commits, and leases of messages")
MAX_MAX = 10_000
WAIT_MS_MAX = 60_000
POLL_BYTES_MAX = 4 << 20
RECEIPTS_MAX = 10_000
TOPICS_MAX = 100
NAME_CHARS_MAX = 250
DELAY_MS_MAX = 43_200_000
# How long a receive whose client has gone may take to say what it has leased.
RECEIVE_SECONDS = 5.0

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
# What to do with messages that did not get to their client.
GiveBack = Callable[[], Awaitable[None]]
Topics = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=TOPICS_MAX)]


class JoinBody(RestStruct, frozen=True):
    """A member that says nothing for `session_timeout_ms` has left; the cluster has a setting for it."""

    topics: Topics
    mode: Literal["queue", "log"] = "queue"
    session_timeout_ms: Annotated[int, Meta(ge=1_000, le=3_600_000)] | None = None
    member_id: Name | None = None


class SubscribeBody(RestStruct, frozen=True):
    """A group, and the topics to read."""

    group: Name
    topics: Topics
    mode: Literal["queue", "log"] = "log"


class MemberBody(RestStruct, frozen=True):
    """Who speaks."""

    member_id: Name


class TopicAssignment(RestAnswer, frozen=True):
    """Partitions of a topic."""

    topic: str
    partitions: list[int]


class MembershipAnswer(RestAnswer, frozen=True):
    """The member and its partitions; `assigned_partitions` are those of all its topics."""

    assigned_partitions: list[int]
    member_id: str
    assignments: list[TopicAssignment]
    heartbeat_interval_ms: int


class PollQuery(RestStruct, frozen=True):
    """`topics`, with commas between them, is for a poll in queue mode without joining.

    `max` is what `groups.poll_records_max` says where it is left out: 500, unless it was set.
    """

    member_id: Name
    max: Annotated[int, Meta(ge=1, le=MAX_MAX)] | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0
    topics: str | None = None
    lease_ms: Annotated[int, Meta(ge=1, le=DELAY_MS_MAX)] | None = None


class PolledMessage(MessageView, frozen=True):
    """A message; in queue mode with the receipt of its lease, and the how-manieth delivery it is."""

    receipt: str | msgspec.UnsetType = msgspec.UNSET
    attempt: int | msgspec.UnsetType = msgspec.UNSET


class PollAnswer(RestAnswer, frozen=True):
    """Messages, and how long those in queue mode are leased, counted from the request."""

    messages: list[PolledMessage]
    lease_ms: int | msgspec.UnsetType = msgspec.UNSET
    is_paused: bool | msgspec.UnsetType = msgspec.UNSET


class CommittedPosition(RestStruct, frozen=True):
    """The offset of the next message to read."""

    topic: Name
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)]
    offset: Annotated[int, Meta(ge=0, le=INT64_MAX)]


class CommitBody(RestStruct, frozen=True):
    """How far a member has come; each offset is that of the next message to read."""

    member_id: Name
    offsets: Annotated[tuple[CommittedPosition, ...], Meta(min_length=1, max_length=1_000)]


class CommitAnswer(RestAnswer, frozen=True):
    """How many positions were stored."""

    committed: int


class ReceiptsBody(RestStruct, frozen=True):
    """Receipts of messages."""

    receipts: Annotated[
        tuple[Annotated[str, Meta(max_length=200)], ...], Meta(min_length=1, max_length=RECEIPTS_MAX)
    ]


class AckBody(ReceiptsBody, frozen=True):
    """The body may be the same as that of `nack` and `renew`: what is done has no use for `delay_ms`."""

    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] | None = None


class NackBody(ReceiptsBody, frozen=True):
    """`delay_ms` instead of the group's backoff; `reject` is for messages that nobody can process."""

    delay_ms: Annotated[int, Meta(ge=0, le=DELAY_MS_MAX)] | None = None
    reason: Annotated[str, Meta(max_length=250)] = ""
    reject: bool = False


class RenewBody(ReceiptsBody, frozen=True):
    """`delay_ms` is how long the leases last from now on; as long as before without it."""

    delay_ms: Annotated[int, Meta(ge=1, le=DELAY_MS_MAX)] | None = None


class SettledReceipt(RestAnswer, frozen=True, omit_defaults=True):
    """What became of a receipt."""

    receipt: str
    error: ProblemBody | None = None


class SettleAnswer(RestAnswer, frozen=True):
    """For each receipt whether it counted, in their order."""

    settled: int
    results: list[SettledReceipt]


class GroupRow(RestAnswer, frozen=True):
    """A group; `type` is queue, share, consumer or classic."""

    group: str
    type: str
    state: str


class GroupList(RestAnswer, frozen=True):
    """Every group of the cluster."""

    groups: list[GroupRow]


class QueueRow(RestAnswer, frozen=True):
    """What a group has to do of one partition, as a queue."""

    topic: str
    partition: int
    end: int
    finished_below: int
    ready: int
    blocked: int
    delayed: int
    leased: int
    moving: int
    is_paused: bool


class OffsetRow(RestAnswer, frozen=True):
    """A position that a group has stored."""

    topic: str
    partition: int
    offset: int


class MemberRow(RestAnswer, frozen=True):
    """A member of a group, and what it is assigned."""

    member_id: str
    client_id: str
    topics: list[str]
    assignments: list[TopicAssignment]


class GroupView(RestAnswer, frozen=True):
    """A group: who is in it, its queues, and the positions it has committed.

    One that is used without joining has type `queue`, no state and no members.
    """

    group: str
    type: str
    state: str
    members: list[MemberRow]
    queues: list[QueueRow]
    offsets: list[OffsetRow]


@OPERATIONS.add("POST", "/v1/groups/{group}/join", "Join a group", body=JoinBody, answer=MembershipAnswer)
async def join(backend: GatewayBackend, request: RestRequest[NoQuery, JoinBody]) -> MembershipAnswer:
    body = request.body
    member_id = body.member_id or _new_member_id()
    try:
        joined = await backend.members.join(
            group_of(request), member_id, body.mode, body.topics, body.session_timeout_ms
        )
    except ClusterError as error:
        if error.code is not ErrorCode.INVALID_SESSION_TIMEOUT:
            raise
        raise failed(error.code, error.detail, "session_timeout_ms") from None
    return _membership(joined)


@OPERATIONS.add(
    "POST", "/subscribe", "Join a group that reads the log", body=SubscribeBody, answer=MembershipAnswer
)
async def subscribe(
    backend: GatewayBackend, request: RestRequest[NoQuery, SubscribeBody]
) -> MembershipAnswer:
    body = request.body
    return _membership(await backend.members.join(body.group, _new_member_id(), body.mode, body.topics, None))


@OPERATIONS.add("POST", "/v1/groups/{group}/leave", "Leave a group", body=MemberBody, status=204)
async def leave(backend: GatewayBackend, request: RestRequest[NoQuery, MemberBody]) -> Response:
    await backend.members.leave(group_of(request), request.body.member_id)
    return Response(status_code=204)


@OPERATIONS.add(
    "POST", "/v1/groups/{group}/heartbeat", "Stay in a group", body=MemberBody, answer=MembershipAnswer
)
async def heartbeat(backend: GatewayBackend, request: RestRequest[NoQuery, MemberBody]) -> MembershipAnswer:
    return _membership(await backend.members.heartbeat(group_of(request), request.body.member_id))


@OPERATIONS.add("GET", "/v1/groups/{group}/poll", "Wait for messages", query=PollQuery, answer=PollAnswer)
async def poll(backend: GatewayBackend, request: RestRequest[PollQuery, None]) -> Response:
    loop = asyncio.get_running_loop()
    gone = loop.create_task(until_gone(request.receive))
    wait = loop.create_task(_polled(backend, group_of(request), request.query))
    try:
        await asyncio.wait([gone, wait], return_when=asyncio.FIRST_COMPLETED)
        if not wait.done():
            raise ClientGone
        return _PollResponse(*wait.result(), gone)
    except BaseException:
        gone.cancel()
        raise
    finally:
        if not wait.done():
            wait.cancel()
            await asyncio.wait([wait])


class _PollResponse(Response):
    """Messages for a client: those of one that has gone are given back."""

    def __init__(self, answer: PollAnswer, give_back: GiveBack, gone: "asyncio.Task[None]") -> None:
        super().__init__(msgspec.json.encode(answer), media_type=JSON)
        self._give_back = give_back
        self._gone = gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_sent = False
        try:
            if not self._gone.done():
                await super().__call__(scope, receive, send)
                # A server need not say that a response was not sent.
                is_sent = not self._gone.done()
        finally:
            self._gone.cancel()
            if not is_sent:
                await self._give_back()


async def _polled(backend: GatewayBackend, group: str, query: PollQuery) -> tuple[PollAnswer, GiveBack]:
    if query.topics is not None:
        topics = [name for name in query.topics.split(",") if name]
        if not 0 < len(topics) <= TOPICS_MAX:
            raise invalid("topics", f"1 to {TOPICS_MAX} topics, with commas between them")
        return await _receive(backend, group, query, topics, query.wait_ms)
    member = await backend.members.find(group, query.member_id)
    loop = asyncio.get_running_loop()
    until = loop.time() + query.wait_ms / 1_000
    while True:
        # A poll that waits long is a member that lives, and may be given other partitions meanwhile.
        await backend.members.keep_alive(member)
        left_ms = max(0, int((until - loop.time()) * 1_000))
        wait_ms = min(left_ms, member.heartbeat_ms // 2)
        if member.mode == "queue":
            answer, give_back = await _receive(backend, group, query, member.topics, wait_ms)
        else:
            answer, give_back = await _read(backend, member, _count(backend, query), wait_ms)
        if answer.messages or left_ms == 0 or backend.stopping.is_set():
            return answer, give_back


@OPERATIONS.add("POST", "/v1/groups/{group}/commit", "Commit positions", body=CommitBody, answer=CommitAnswer)
async def commit(backend: GatewayBackend, request: RestRequest[NoQuery, CommitBody]) -> CommitAnswer:
    member = await backend.members.find(group_of(request), request.body.member_id)
    if member.mode != "log":
        raise invalid("member_id", "this member receives from queues: it acknowledges receipts")
    offsets: dict[Place, int] = {(each.topic, each.partition): each.offset for each in request.body.offsets}
    stored = await backend.membership.commit(member.group, offsets, member_id=member.member_id)
    for (topic, partition), error in stored.items():
        if error is not None:
            index = list(offsets).index((topic, partition))
            raise failed(
                error.code, f"the position in {topic}/{partition} was not stored", f"offsets[{index}]"
            )
    for place, offset in offsets.items():
        if place in member.positions:
            member.positions[place] = max(member.positions[place], offset)
    return CommitAnswer(committed=len(offsets))


@OPERATIONS.add("POST", "/v1/groups/{group}/ack", "Messages are done", body=AckBody, answer=SettleAnswer)
async def ack(backend: GatewayBackend, request: RestRequest[NoQuery, AckBody]) -> Response:
    return await _settle(backend, group_of(request), ACKNOWLEDGE, request.body.receipts)


@OPERATIONS.add(
    "POST", "/v1/groups/{group}/nack", "Messages failed: deliver them again, or not",
    body=NackBody, answer=SettleAnswer,
)  # fmt: skip
async def nack(backend: GatewayBackend, request: RestRequest[NoQuery, NackBody]) -> Response:
    body = request.body
    return await _settle(
        backend,
        group_of(request),
        REJECT if body.reject else RELEASE,
        body.receipts,
        delay_ms=-1 if body.delay_ms is None else body.delay_ms,
        reason=body.reason,
    )


@OPERATIONS.add(
    "POST", "/v1/groups/{group}/renew", "Messages take longer", body=RenewBody, answer=SettleAnswer
)
async def renew(backend: GatewayBackend, request: RestRequest[NoQuery, RenewBody]) -> Response:
    lease_ms = -1 if request.body.delay_ms is None else request.body.delay_ms
    return await _settle(backend, group_of(request), RENEW, request.body.receipts, lease_ms=lease_ms)


@OPERATIONS.add("GET", "/v1/groups", "Every group", answer=GroupList)
async def list_groups(backend: GatewayBackend, _: RestRequest[NoQuery, None]) -> GroupList:
    rows: dict[str, GroupRow] = {}
    for queue in await backend.queues.describe():
        rows[queue.group_id] = GroupRow(group=queue.group_id, type="queue", state="")
    cluster = await backend.cluster.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
    for broker in cluster.brokers:
        answer = await backend.cluster.ask(ListGroupsRequest(), node=broker.broker_id)
        _expect(answer)
        for group in answer.groups:
            rows[group.group_id] = GroupRow(
                group=group.group_id, type=group.group_type.lower(), state=group.group_state
            )
    return GroupList(groups=[rows[name] for name in sorted(rows)])


@OPERATIONS.add("GET", "/v1/groups/{group}", "One group", answer=GroupView)
async def describe_group(backend: GatewayBackend, request: RestRequest[NoQuery, None]) -> GroupView:
    group = group_of(request)
    queues = [
        QueueRow(
            topic=each.topic,
            partition=each.partition,
            end=each.end,
            finished_below=each.finished_below,
            ready=each.ready,
            blocked=each.blocked,
            delayed=each.delayed,
            leased=each.leased,
            moving=each.moving,
            is_paused=each.is_paused,
        )
        for each in await backend.queues.describe([group])
        if each.error_code == ErrorCode.NONE
    ]
    try:
        committed = await backend.membership.committed(group)
    except ClusterError as error:
        # Share groups have none.
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        committed = {}
    offsets = [
        OffsetRow(topic=topic, partition=partition, offset=offset)
        for (topic, partition), offset in sorted(committed.items())
        if offset is not None
    ]
    described = await backend.membership.describe(group)
    if described is None and not queues and not offsets:
        raise failed(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}", "group")
    members = () if described is None else described.members
    return GroupView(
        group=group,
        type="queue" if described is None else described.type,
        state="" if described is None else described.state,
        members=[
            MemberRow(
                member_id=each.member_id,
                client_id=each.client_id,
                topics=sorted(each.topics),
                assignments=_assignments(each.assignment),
            )
            for each in members
        ],
        queues=queues,
        offsets=offsets,
    )


def group_of(request: RestRequest[Any, Any]) -> str:
    """The group in the path."""
    group = request.path["group"]
    if not 0 < len(group) <= NAME_CHARS_MAX:
        raise invalid("group", f"a group's name has 1 to {NAME_CHARS_MAX} characters")
    return group


def _new_member_id() -> str:
    return secrets.token_urlsafe(16)


def _count(backend: GatewayBackend, query: PollQuery) -> int:
    return query.max or min(backend.limits.poll_records_max, MAX_MAX)


def _assignments(partitions: Mapping[str, Sequence[int]]) -> list[TopicAssignment]:
    return [
        TopicAssignment(topic=topic, partitions=sorted(partitions[topic])) for topic in sorted(partitions)
    ]


def _membership(member: PollingMember) -> MembershipAnswer:
    assignments = _assignments(member.assigned)
    return MembershipAnswer(
        assigned_partitions=[each for row in assignments for each in row.partitions],
        member_id=member.member_id,
        assignments=assignments,
        heartbeat_interval_ms=member.heartbeat_ms,
    )


async def _receive(
    backend: GatewayBackend, group: str, query: PollQuery, topics: Sequence[str], wait_ms: int
) -> tuple[PollAnswer, GiveBack]:
    asked = backend.queues.receive(
        group,
        query.member_id,
        topics,
        records_max=_count(backend, query),
        bytes_max=POLL_BYTES_MAX,
        wait_ms=wait_ms,
        lease_ms=-1 if query.lease_ms is None else query.lease_ms,
    )
    receiving = asyncio.get_running_loop().create_task(asked)
    try:
        answer = await asyncio.shield(receiving)
    except asyncio.CancelledError:
        # What is leased at once must be heard of to be released. One that still waits then has a connection
        # of its own, which ends with it; of any other the response comes.
        await asyncio.wait([receiving], timeout=RECEIVE_SECONDS if wait_ms else None)
        receiving.cancel()
        await asyncio.wait([receiving])
        if not receiving.cancelled() and receiving.exception() is None:
            await _release(backend, group, receiving.result().records)
        raise
    messages = [
        PolledMessage(
            **message_fields(each.topic, each.partition, each),
            receipt=each.receipt,
            attempt=each.attempt,
        )
        for each in answer.records
    ]
    polled = PollAnswer(messages=messages, lease_ms=answer.lease_ms, is_paused=answer.is_paused)
    return polled, partial(_release, backend, group, answer.records)


async def _release(backend: GatewayBackend, group: str, records: Sequence[Any]) -> None:
    # If that fails, the leases end by themselves.
    with suppress(ClusterError):
        await backend.queues.give_back(group, [each.receipt for each in records])


async def _read(
    backend: GatewayBackend, member: PollingMember, count: int, wait_ms: int
) -> tuple[PollAnswer, GiveBack]:
    records: list[tuple[Place, Any]] = []
    if member.places:
        records = await read_assigned(backend, member, member.places, count, wait_ms)
    else:
        await asyncio.sleep(wait_ms / 1_000)

    async def give_back() -> None:
        _step_back(member, records)

    messages = [PolledMessage(**message_fields(*place, record)) for place, record in records]
    return PollAnswer(messages=messages), give_back


def _step_back(member: PollingMember, records: Sequence[tuple[Place, Any]]) -> None:
    """The next poll returns these again."""
    for place, record in records:
        if place in member.positions:
            member.positions[place] = min(member.positions[place], record.offset)


def message_fields(
    topic: str, partition: int, record: Any, headers: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What a message has in JSON, of a record that was received or read; its headers, if they are known."""
    offset = record.offset
    return {
        "id": f"{topic}/{partition}/{offset}",
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": record.timestamp,
        "headers": header_views(record.headers) if headers is None else headers,
        **key_fields(record.key),
        **value_fields(record.value),
    }


async def read_assigned(
    backend: GatewayBackend, member: PollingMember, places: list[Place], count: int, wait_ms: int
) -> list[tuple[Place, Any]]:
    """Records that follow in some partitions of a member, another partition first each time."""
    missing = [place for place in places if place not in member.positions]
    if missing:
        committed = await backend.membership.committed(member.group, missing)
        for place in missing:
            at = committed.get(place)
            start = (await backend.reader.offsets(*place))[0] if at is None else at
            member.positions.setdefault(place, start)
    member.turn += 1
    first = member.turn % len(places)
    places = places[first:] + places[:first]
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_ms / 1_000
    records = await _read_places(backend, member, places, count)
    while not records and (left_ms := int((until - loop.time()) * 1_000)) > 0:
        positions = {place: member.positions[place] for place in places if place in member.positions}
        ready = await backend.reader.first_ready(positions, left_ms)
        if ready is None:
            break
        records = await _read_places(backend, member, [ready], count)
    return records


async def _read_places(
    backend: GatewayBackend, member: PollingMember, places: Sequence[Place], count: int
) -> list[tuple[Place, Any]]:
    records: list[tuple[Place, Any]] = []
    try:
        for place in places:
            if len(records) >= count or place not in member.positions:
                break
            start = member.positions[place]
            found = await backend.reader.read_on(
                *place, start, count=count - len(records), bytes_max=POLL_BYTES_MAX
            )
            if found.log_start > start:
                log.warning(
                    "groups.position_reset", group=member.group, topic=place[0], partition=place[1],
                    position=start, to=found.log_start,
                )  # fmt: skip
            # Two polls of a member at once must not return the same, nor skip what neither returned.
            if member.positions.get(place) == start:
                member.positions[place] = found.next_offset
                records += [(place, record) for record in found.records]
    except QuotaExceeded:
        # What was read is charged already.
        if not records:
            raise
    except BaseException:
        _step_back(member, records)
        raise
    return records


async def _settle(
    backend: GatewayBackend, group: str, action: int, receipts: Sequence[str], **details: Any
) -> Response:
    errors = await backend.queues.settle(group, action, receipts, **details)
    results = []
    for index, (receipt, error) in enumerate(zip(receipts, errors, strict=True)):
        problem = None if error is None else failed(error.code, error.detail, f"receipts[{index}]")
        if problem is not None and len(receipts) == 1:
            raise problem
        results.append(SettledReceipt(receipt=receipt, error=None if problem is None else problem.body))
    settled = sum(error is None for error in errors)
    answer = SettleAnswer(settled=settled, results=results)
    # Whoever looks at the status alone must see that nothing was done.
    return Response(msgspec.json.encode(answer), 200 if settled else 409, media_type=JSON)


def _expect(answer: Any) -> None:
    if answer.error_code != ErrorCode.NONE:
        raise ClusterError(answer.error_code, getattr(answer, "error_message", None))
