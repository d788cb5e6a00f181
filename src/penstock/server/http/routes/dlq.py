"""Dead letters of a topic: what queues have given up, and the way back."""

import asyncio
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from penstock.client.cluster import ClusterError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.queue_redrive import QueueRedriveRequest, QueueRedriveRequestPartition
from penstock.core.queues import REDRIVE_GROUP
from penstock.core.queues.record_headers import (
    ATTEMPTS,
    ERROR,
    FIRST_FAILURE,
    LAST_FAILURE,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
)
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.http.body import unless_gone
from penstock.server.http.message_json import INT64_MAX, MessageView, header_views
from penstock.server.http.operations import OperationTable, RestAnswer, RestRequest, RestStruct
from penstock.server.http.problem import ProblemBody, failed, invalid
from penstock.server.http.routes.groups import message_fields

OPERATIONS = OperationTable("dead letters", "Messages that queues have given up")
SUFFIX = ".dlq"
COUNT_DEFAULT = 100
COUNT_MAX = 1_000
REDRIVEN_MAX = 100_000
REDRIVE_SECONDS_MAX = 3_600
PER_REQUEST = 200
IDS_MAX = 1_000
SHOWN_MAX = 1_000


class DeadLetterQuery(RestStruct, frozen=True):
    """How many; `after` is the id of the last one of the page before."""

    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = COUNT_DEFAULT
    after: str | None = None


class DeadLetterView(MessageView, frozen=True):
    """A dead letter: the message, where it was, how often it was tried, and why it was given up."""

    origin: str | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    first_failure: int | UnsetType = UNSET
    last_failure: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class DeadLetterPage(RestAnswer, frozen=True):
    """Dead letters that were not redriven."""

    dead_letters: list[DeadLetterView]


class RedriveBody(RestStruct, frozen=True):
    """Which dead letters: those with these ids, the oldest ones up to `max`, or all; all without a body, too.

    Each goes to the topic it came from, unless `to_topic` names another. `rate_per_second` spreads them: the
    response comes when all are moved, or after an hour, with what was moved until then. Nothing more is moved
    for a client that has gone.
    """

    ids: Annotated[tuple[str, ...], Meta(max_length=IDS_MAX)] = ()
    to_topic: str | None = None
    dry_run: bool = False
    max: Annotated[int, Meta(ge=1, le=REDRIVEN_MAX)] | None = None
    rate_per_second: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None


class RedrivenView(RestAnswer, frozen=True, omit_defaults=True):
    """A dead letter, and the partition it went to, or would go to; or why it stays."""

    id: str
    to: str | None = None
    error: ProblemBody | None = None


class RedriveAnswer(RestAnswer, frozen=True):
    """How many were moved, or would be; the first of them."""

    moved: int
    refused: int
    dry_run: bool
    results: list[RedrivenView]


@OPERATIONS.add(
    "GET", "/v1/topics/{topic}/dlq", "Dead letters of a topic", query=DeadLetterQuery, answer=DeadLetterPage
)
async def dead_letters(
    backend: GatewayBackend, request: RestRequest[DeadLetterQuery, None]
) -> DeadLetterPage:
    topic, query = request.path["topic"] + SUFFIX, request.query
    partition, offset = (0, -1) if query.after is None else _place(query.after, topic, "after")
    found: list[DeadLetterView] = []
    partitions = await _partitions(backend, request.path["topic"])
    for index in range(partition, partitions):
        start: int = offset + 1 if index == partition else 0
        while start >= 0 and len(found) < query.count:
            answer = await backend.queues.peek(
                REDRIVE_GROUP, topic, index, from_offset=start, count=query.count - len(found)
            )
            found += [_view(topic, index, record) for record in answer.records]
            start = answer.next_offset
    return DeadLetterPage(dead_letters=found)


@OPERATIONS.add(
    "POST", "/v1/topics/{topic}/dlq/redrive", "Move dead letters back",
    body=RedriveBody, may_lack_body=True, answer=RedriveAnswer,
)  # fmt: skip
async def redrive(backend: GatewayBackend, request: RestRequest[Any, RedriveBody]) -> RedriveAnswer:
    topic, body = request.path["topic"] + SUFFIX, request.body
    chosen: dict[int, list[int]] = {}
    for number, each in enumerate(body.ids):
        partition, offset = _place(each, topic, f"ids[{number}]")
        chosen.setdefault(partition, []).append(offset)
    partitions = await _partitions(backend, request.path["topic"])
    for partition in chosen:
        if partition >= partitions:
            raise invalid("ids", f"{topic} has no partition {partition}")
    if not body.ids:
        chosen = {partition: [] for partition in range(partitions)}
    results = _Results(topic, body)
    await unless_gone(request.receive, _redrive(backend, results, chosen))
    return RedriveAnswer(
        moved=results.moved, refused=results.refused, dry_run=body.dry_run, results=results.shown
    )


class _Results:
    """What was moved so far, and how fast that may go on."""

    def __init__(self, topic: str, body: RedriveBody) -> None:
        self.topic = topic
        self.body = body
        self.moved = 0
        self.refused = 0
        self.shown: list[RedrivenView] = []
        self._begun = asyncio.get_running_loop().time()

    @property
    def left(self) -> int:
        """How many more, as far as one request is concerned."""
        return PER_REQUEST if self.body.max is None else self.body.max - self.moved - self.refused

    @property
    def per_request(self) -> int:
        """A tenth of a second's worth at a time, where the rate is limited."""
        rate = self._rate
        return max(1, min(PER_REQUEST, self.left, PER_REQUEST if rate is None else int(rate / 10)))

    async def pace(self) -> None:
        if self._rate is not None and self.moved:
            due = min(self._begun + self.moved / self._rate, self._ends)
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

    @property
    def is_overdue(self) -> bool:
        """Whether a request may not take longer."""
        return asyncio.get_running_loop().time() >= self._ends

    @property
    def _ends(self) -> float:
        return self._begun + REDRIVE_SECONDS_MAX

    @property
    def _rate(self) -> float | None:
        return None if self.body.dry_run else self.body.rate_per_second

    def add(self, partition: int, row: Any) -> None:
        view_id = f"{self.topic}/{partition}/{row.offset}"
        if row.error_code == ErrorCode.NONE:
            self.moved += 1
            view = RedrivenView(id=view_id, to=f"{row.to_topic}/{row.to_partition}")
        else:
            self.refused += 1
            view = RedrivenView(id=view_id, error=failed(row.error_code, row.error_message or "").body)
        if len(self.shown) < SHOWN_MAX:
            self.shown.append(view)


async def _redrive(backend: GatewayBackend, results: _Results, chosen: dict[int, list[int]]) -> None:
    for partition, offsets in chosen.items():
        await _redrive_partition(backend, results, partition, offsets)


async def _redrive_partition(
    backend: GatewayBackend, results: _Results, partition: int, offsets: list[int]
) -> None:
    """Until nothing is left to move; what cannot be moved would come again and again.

    A dry run goes on behind what it has seen.
    """
    body, chosen, start = results.body, list(offsets), 0
    while results.left > 0 and not backend.stopping.is_set():
        await results.pace()
        if results.is_overdue:
            return
        portion = chosen[: results.per_request]
        answer = await backend.cluster.ask(
            QueueRedriveRequest(
                topic=results.topic,
                partitions=(
                    QueueRedriveRequestPartition(
                        partition=partition, offsets=tuple(portion), from_offset=start
                    ),
                ),
                to_topic=body.to_topic,
                is_dry_run=body.dry_run,
                records_max=results.per_request,
            )
        )
        if answer.error_code != ErrorCode.NONE:
            raise ClusterError(answer.error_code, answer.error_message)
        (row,) = answer.partitions
        if row.error_code != ErrorCode.NONE:
            raise ClusterError(row.error_code, row.error_message)
        for each in row.records:
            results.add(partition, each)
        chosen = chosen[len(portion) :]
        start = row.next_offset
        is_refused = any(each.error_code != ErrorCode.NONE for each in row.records)
        is_stuck = start < 0 if body.dry_run else not row.records or is_refused
        if not chosen if offsets else is_stuck:
            return
        start = max(0, start)


async def _partitions(backend: GatewayBackend, topic: str) -> int:
    """Of the dead-letter topic: none while nothing was given up."""
    try:
        return len((await backend.cluster.topic(topic + SUFFIX)).partitions)
    except ClusterError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        await backend.cluster.topic(topic)
        return 0


def _place(message_id: str, topic: str, field: str) -> tuple[int, int]:
    """The partition and offset that the id of a dead letter says."""
    name, _, rest = message_id.partition("/")
    partition, _, offset = rest.partition("/")
    is_number = partition.isdecimal() and offset.isdecimal() and partition.isascii() and offset.isascii()
    if name != topic or not is_number or len(partition) > 9 or len(offset) > 18 or int(offset) > INT64_MAX:
        raise invalid(field, f"the id of a dead letter is {topic}/partition/offset")
    return int(partition), int(offset)


def _view(topic: str, partition: int, record: Any) -> DeadLetterView:
    headers = header_views([(header.key, header.value) for header in record.headers])
    fields = message_fields(topic, partition, record, headers)
    extra: dict[str, Any] = {}
    if all(isinstance(headers.get(name), str) for name in (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET)):
        extra["origin"] = f"{headers[ORIGIN_TOPIC]}/{headers[ORIGIN_PARTITION]}/{headers[ORIGIN_OFFSET]}"
    for field, name in (
        ("attempts", ATTEMPTS),
        ("first_failure", FIRST_FAILURE),
        ("last_failure", LAST_FAILURE),
    ):
        text = headers.get(name)
        if isinstance(text, str) and text.isdecimal() and len(text) < 18:
            extra[field] = int(text)
    if isinstance(headers.get(ERROR), str):
        extra["reason"] = headers[ERROR]
    return DeadLetterView(**fields, **extra)
