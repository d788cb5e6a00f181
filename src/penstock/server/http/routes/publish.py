"""Publishing: one message, a batch, or a stream of lines."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from penstock.client.cluster import ClusterError, DelayedPublish
from penstock.client.cluster.publisher import OutgoingRecord, PublishResult, RecordPosition
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.memory import MemoryUsedUp
from penstock.server.http.array_limits import CHECKED_BYTES, OBJECT_BYTES_MAX
from penstock.server.http.body import ClientGone, body_chunks, read_body
from penstock.server.http.message_json import (
    ACKS,
    Acks,
    BatchResult,
    MessageBody,
    ProduceBody,
    PublishAnswer,
    PublishBody,
    deliver_at_ms,
    outgoing,
    refused_field,
)
from penstock.server.http.operations import (
    JSON,
    MEMORY,
    OperationTable,
    RestAnswer,
    RestRequest,
    RestStruct,
    decode_body,
    parse_query,
)
from penstock.server.http.problem import Problem, failed, invalid, invalid_json, no_memory, not_utf_8

OPERATIONS = OperationTable("publish", "Publishing messages")
NDJSON = "application/x-ndjson"
STREAM_TYPES = (NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines")
BATCH_MAX = 10_000
# Of a batch, as many as one turn of the loop makes records of: they may have a thousand headers each.
MESSAGES_PER_TURN = 200
# A stream is published in groups, a few of them at a time.
GROUP_MESSAGES_MAX = 500
GROUPS_UNDER_WAY_MAX = 4
ERRORS_SHOWN_MAX = 100
_PUBLISH = msgspec.json.Decoder(PublishBody)
JSON_HEADER = (b"content-type", JSON.encode())


class PublishQuery(RestStruct, frozen=True):
    """`acks` may stand in the URL or in the body; the body's counts."""

    acks: Acks | None = None


class BatchQuery(PublishQuery, frozen=True):
    """`results` is for a stream: a line for each message, or one in all."""

    results: Literal["all", "summary"] = "all"


class BatchBody(RestStruct, frozen=True):
    """Messages that are published together, though not as a transaction.

    Those of one partition with the same `acks` keep their order.
    """

    messages: Annotated[tuple[PublishBody, ...], Meta(min_length=1, max_length=BATCH_MAX)]
    acks: Acks | None = None


class BatchAnswer(RestAnswer, frozen=True):
    """For each message where it was stored, or why not, in their order."""

    results: list[BatchResult]


class DelayedAnswer(msgspec.Struct, frozen=True):
    """A message that will be published later."""

    delay_id: str
    deliver_at: int


class DueRecord(NamedTuple):
    """A record, and when it is to be published."""

    record: OutgoingRecord
    due_ms: int


Outcome = RecordPosition | DelayedAnswer | ClusterError | Problem
# What a client sent: to be published now or later, or wrong.
IncomingRecord = OutgoingRecord | DueRecord | Problem


@OPERATIONS.add(
    "POST", "/v1/topics/{topic}/publish", "Publish a message",
    query=PublishQuery, body=PublishBody, answer=PublishAnswer, is_asgi=True,
)  # fmt: skip
async def publish(backend: GatewayBackend, scope: Scope, receive: Receive, send: Send) -> None:
    """Without the objects that other operations are given: this one is called thousands of times a second."""
    limits = backend.limits
    seconds = limits.body_timeout_ms / 1_000
    content = await read_body(receive, limits.body_bytes_max, seconds, scope[MEMORY])
    try:
        # One that is large is looked at first.
        body = _PUBLISH.decode(content) if len(content) < CHECKED_BYTES else decode_body(content, PublishBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = decode_body(content, PublishBody)
    query = scope["query_string"]
    acks = body.acks or (parse_query(PublishQuery, query).acks if query else None) or "all"
    status, answer = await _publish_one(backend, scope["path_params"]["topic"], body, ACKS[acks])
    headers = [(b"content-length", b"%d" % len(answer)), JSON_HEADER]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def publish_soon(
    backend: GatewayBackend, topic: str, content: bytes, respond: Callable[[int, bytes], None]
) -> bool:
    """Publish the message of a body, and respond when it is stored, or is not.

    False if nothing was done. Only what is plain is done here: whatever else a request may be, `publish`
    knows better.
    """
    if len(content) >= OBJECT_BYTES_MAX:
        return False
    try:
        body = _PUBLISH.decode(content)
        if body.delay_ms is not None or body.deliver_at is not None:
            return False
        record = outgoing(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Problem):
        return False

    def done(outcome: PublishResult) -> None:
        if isinstance(outcome, ClusterError):
            problem = failed(outcome.code, outcome.detail, refused_field(outcome))
            respond(problem.status, msgspec.json.encode(problem.body))
        else:
            respond(200, _stored(topic, outcome))

    return backend.publisher.publish_soon(topic, record, ACKS[body.acks or "all"], done)


@OPERATIONS.add(
    "POST", "/produce", "Publish a message to the topic that the body names",
    query=PublishQuery, body=ProduceBody, answer=PublishAnswer,
)  # fmt: skip
async def produce(backend: GatewayBackend, request: RestRequest[PublishQuery, ProduceBody]) -> Response:
    topic = topic_or_default(backend, request.body.topic)
    acks = ACKS[request.body.acks or request.query.acks or "all"]
    status, answer = await _publish_one(backend, topic, request.body, acks)
    return Response(answer, status, media_type=JSON)


def topic_or_default(backend: GatewayBackend, topic: str | None) -> str:
    """The topic that a request names, or the one that is set for those that name none."""
    found = topic or backend.limits.default_topic
    if not found:
        raise invalid("topic", "a topic is needed: rest.default_topic is not set")
    return found


async def _publish_one(
    backend: GatewayBackend, topic: str, message: MessageBody, acks: int
) -> tuple[int, bytes]:
    """The status and the body of the response."""
    record, due = outgoing(message), deliver_at_ms(message)
    outcome: Outcome
    if due is None:
        (outcome,) = await backend.publisher.publish(topic, (record,), acks=acks)
    else:
        (outcome,) = await _delay(backend, topic, [DueRecord(record, due)])
    if isinstance(outcome, ClusterError):
        raise failed(outcome.code, outcome.detail, refused_field(outcome))
    return (200 if due is None else 202), _outcome(topic, outcome)


@OPERATIONS.add(
    "POST", "/v1/topics/{topic}/batch", "Publish messages: an object, or one JSON object per line",
    query=BatchQuery, body=BatchBody, answer=BatchAnswer, is_streamed=True, takes=(NDJSON,),
)  # fmt: skip
async def publish_batch(backend: GatewayBackend, request: RestRequest[BatchQuery, None]) -> Response:
    topic = request.path["topic"]
    content_type = request.headers.get(b"content-type", b"").decode("latin-1")
    if content_type.partition(";")[0].strip().lower() in STREAM_TYPES:
        return PublishStream(backend, topic, request)
    limits = backend.limits
    seconds = limits.body_timeout_ms / 1_000
    content = await read_body(request.receive, limits.body_bytes_max, seconds, request.memory)
    body = decode_body(content, BatchBody)
    records: list[IncomingRecord] = []
    for index, message in enumerate(body.messages):
        # All or none are accepted; whether each is stored is another question.
        if index % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
            await asyncio.sleep(0)
        try:
            records.append(_incoming(message))
        except Problem as problem:
            raise problem.within(f"messages[{index}].") from None
    acks, own_acks = body.acks or request.query.acks or "all", [message.acks for message in body.messages]
    # Not kept while the records are stored: memory that is used again at once is in the processor's cache.
    del body, message
    outcomes = await store_each(backend, topic, records, own_acks, acks)
    first = outcomes[0]
    if isinstance(first, ClusterError) and all(
        isinstance(one, ClusterError) and one.code == first.code for one in outcomes
    ):
        raise failed(first.code, first.detail, refused_field(first))
    return Response(b'{"results":[' + b",".join(_outcomes(topic, outcomes)) + b"]}", media_type=JSON)


def _incoming(message: MessageBody) -> OutgoingRecord | DueRecord:
    record = outgoing(message)
    if message.delay_ms is None and message.deliver_at is None:
        return record
    due_ms = deliver_at_ms(message)
    assert due_ms is not None
    return DueRecord(record, due_ms)


async def store_each(
    backend: GatewayBackend,
    topic: str,
    records: Sequence[IncomingRecord],
    own_acks: Sequence[Acks | None],
    acks: Acks,
) -> list[Outcome]:
    """The same as `store`, for records that may have `acks` of their own: each such level by itself."""
    if not any(own_acks):
        return await store(backend, topic, records, ACKS[acks])
    levels: dict[Acks, list[int]] = {}
    for index, own in enumerate(own_acks):
        levels.setdefault(own or acks, []).append(index)
    found: dict[int, Outcome] = {}
    for level, indexes in levels.items():
        outcomes = await store(backend, topic, [records[index] for index in indexes], ACKS[level])
        found.update(zip(indexes, outcomes, strict=True))
    return [found[index] for index in range(len(records))]


async def store(
    backend: GatewayBackend, topic: str, records: Sequence[IncomingRecord], acks: int
) -> list[Outcome]:
    """Publish records now, or have them published later; what became of each, in their order."""
    now = [one for one in records if type(one) is OutgoingRecord]
    stored: list[PublishResult] = []
    if now:
        stored = await backend.publisher.publish(topic, now, acks=acks)
        if len(now) == len(records):
            return stored  # type: ignore[return-value]  # of the same kinds
    later = [one for one in records if isinstance(one, DueRecord)]
    next_stored = iter(stored)
    next_delayed = iter(await _delay(backend, topic, later) if later else [])
    return [
        one
        if isinstance(one, Problem)
        else next(next_delayed)
        if isinstance(one, DueRecord)
        else next(next_stored)
        for one in records
    ]


async def _delay(
    backend: GatewayBackend, topic: str, records: Sequence[DueRecord]
) -> list[DelayedAnswer | ClusterError]:
    asked = [
        DelayedPublish(
            topic=topic,
            deliver_at_ms=due,
            key=record.key,
            value=record.value,
            headers=record.headers,
            partition=record.partition,
        )
        for record, due in records
    ]
    try:
        delayed = await backend.queues.delay(asked)
    except ClusterError as error:
        return [error] * len(records)
    return [
        one if isinstance(one, ClusterError) else DelayedAnswer(one, due)
        for one, (_, due) in zip(delayed, records, strict=True)
    ]


def _stored(topic: str, position: RecordPosition) -> bytes:
    """By hand: it is written for every message, and a topic that took one has a plain name."""
    partition, offset, timestamp_ms = position
    if offset < 0:
        return b'{"partition":%d,"offset":null,"timestamp":%d}' % (partition, timestamp_ms)
    return b'{"partition":%d,"offset":%d,"timestamp":%d,"id":"%s/%d/%d"}' % (
        partition, offset, timestamp_ms, topic.encode(), partition, offset,
    )  # fmt: skip


def _outcomes(topic: str, outcomes: Sequence[Outcome]) -> list[bytes]:
    """What became of each message, as JSON. Those of a batch differ in their offsets alone."""
    found: list[bytes] = []
    template, last = b"", (-1, -1)
    for outcome in outcomes:
        if type(outcome) is RecordPosition and outcome[1] >= 0:
            partition, offset, timestamp_ms = outcome
            if (partition, timestamp_ms) != last:
                last = partition, timestamp_ms
                template = b'{"partition":%d,"offset":%%d,"timestamp":%d,"id":"%b/%d/%%d"}' % (
                    partition, timestamp_ms, topic.encode(), partition,
                )  # fmt: skip
            found.append(template % (offset, offset))
        else:
            found.append(_outcome(topic, outcome))
    return found


def _outcome(topic: str, outcome: Outcome) -> bytes:
    if isinstance(outcome, RecordPosition):
        return _stored(topic, outcome)
    if isinstance(outcome, DelayedAnswer):
        return msgspec.json.encode(outcome)
    if isinstance(outcome, ClusterError):
        outcome = failed(outcome.code, outcome.detail, refused_field(outcome))
    return msgspec.json.encode(BatchResult(error=outcome.body))


class _Lines(NamedTuple):
    """Lines of a stream that have messages, by number from 1 on, and the bytes that were read with them."""

    numbers: list[int]
    size_bytes: int


class PublishStream(Response):
    """Takes one JSON message per line and responds with one result per line, as both come.

    A client that reads no results is not read from for long either: what is under way is bounded.
    """

    def __init__(self, backend: GatewayBackend, topic: str, request: RestRequest[BatchQuery, None]) -> None:
        super().__init__(media_type=NDJSON)
        del self.headers["content-length"]
        self._backend = backend
        self._memory = request.memory
        self._topic = topic
        self._acks: Acks = request.query.acks or "all"
        self._is_summary = request.query.results == "summary"
        self._has_begun = False
        self._lines_read = self._published = 0
        self._errors: list[tuple[int, Problem | ClusterError]] = []
        self._failed = 0

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        under_way: deque[tuple[asyncio.Task[list[Outcome]], _Lines]] = deque()
        end: Problem | None = None
        async with asyncio.TaskGroup() as tasks:
            try:
                async for group, lines in self._groups(receive):
                    if len(under_way) == GROUPS_UNDER_WAY_MAX:
                        await self._finish_group(*under_way.popleft(), send)
                    records, own_acks = zip(*group, strict=True)
                    stored = store_each(self._backend, self._topic, records, own_acks, self._acks)
                    under_way.append((tasks.create_task(stored), lines))
            except Problem as problem:
                end = problem
            except ClientGone:
                # What has come is published all the same: a connection that is lost takes nothing back.
                return
            while under_way:
                await self._finish_group(*under_way.popleft(), send)
        if end is not None:
            if not self._has_begun and not self._is_summary:
                raise end
            await self._respond([end], [self._lines_read + 1], send)
        await self._finish(send)

    async def _groups(
        self, receive: Receive
    ) -> AsyncIterator[tuple[list[tuple[IncomingRecord, Acks | None]], "_Lines"]]:
        """The messages of some lines, and these, whose bytes count until the group is finished."""
        limits = self._backend.limits
        rest = b""
        async for chunk in body_chunks(receive, limits.body_timeout_ms / 1_000):
            try:
                self._memory.take(len(chunk))
            except MemoryUsedUp as error:
                raise no_memory(error) from None
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > limits.body_bytes_max:
                raise Problem(413, "Body too large", f"a line may have {limits.body_bytes_max} bytes")
            for start in range(0, len(lines), GROUP_MESSAGES_MAX):
                some = lines[start : start + GROUP_MESSAGES_MAX]
                size = sum(map(len, some)) + len(some)
                first = self._lines_read + 1
                self._lines_read += len(some)
                numbers = [first + at for at, line in enumerate(some) if line.strip()]
                if numbers:
                    yield [_message(some[number - first]) for number in numbers], _Lines(numbers, size)
                else:
                    self._memory.give_back(size)
        if rest.strip():
            yield [_message(rest)], _Lines([self._lines_read + 1], len(rest))

    async def _finish_group(
        self, publishing: "asyncio.Task[list[Outcome]]", lines: "_Lines", send: Send
    ) -> None:
        await self._respond(await publishing, lines.numbers, send)
        self._memory.give_back(lines.size_bytes)

    async def _respond(self, outcomes: list[Outcome], numbers: list[int], send: Send) -> None:
        for number, outcome in zip(numbers, outcomes, strict=True):
            if isinstance(outcome, ClusterError | Problem):
                self._failed += 1
                if len(self._errors) < ERRORS_SHOWN_MAX:
                    self._errors.append((number, outcome))
            else:
                self._published += 1
        if not self._is_summary:
            await self._begin(send)
            lines = b"\n".join([*_outcomes(self._topic, outcomes), b""])
            await send({"type": "http.response.body", "body": lines, "more_body": True})

    async def _begin(self, send: Send) -> None:
        if not self._has_begun:
            self._has_begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

    async def _finish(self, send: Send) -> None:
        await self._begin(send)
        last = b""
        if self._is_summary:
            errors = [
                {"line": line, **msgspec.json.decode(_outcome(self._topic, error))}
                for line, error in self._errors
            ]
            last = (
                msgspec.json.encode({"published": self._published, "failed": self._failed, "errors": errors})
                + b"\n"
            )
        await send({"type": "http.response.body", "body": last})


def _message(line: bytes) -> tuple[IncomingRecord, Acks | None]:
    try:
        is_large = len(line) >= OBJECT_BYTES_MAX
        message = decode_body(line, PublishBody) if is_large else _PUBLISH.decode(line)
        return _incoming(message), message.acks
    except Problem as problem:
        return problem, None
    except msgspec.DecodeError as error:
        return invalid_json(error), None
    except UnicodeDecodeError as error:
        return not_utf_8(error), None
    except RecursionError:
        return invalid(None, "this JSON is nested too deeply"), None
