"""Reading the log: a range of messages, or one by its offset or id."""

from typing import Annotated, Literal

from msgspec import Meta

from penstock.server.gateway.backend import GatewayBackend
from penstock.server.http.message_json import INT32_MAX, INT64_MAX, MessageView, message_view
from penstock.server.http.operations import (
    NoQuery,
    OperationTable,
    RestAnswer,
    RestRequest,
    RestStruct,
)
from penstock.server.http.problem import Problem, invalid
from penstock.server.http.routes.publish import topic_or_default

OPERATIONS = OperationTable("messages", "Reading messages")
COUNT_DEFAULT = 500
COUNT_MAX = 10_000
WAIT_MS_MAX = 60_000
READ_BYTES_MAX = 4 << 20
DIGITS_MAX = 19

StartOffset = Annotated[int, Meta(ge=0, le=INT64_MAX)] | Literal["earliest", "latest"]


class RangeQuery(RestStruct, frozen=True):
    """From where, how many at most, and how long to wait if there is none yet."""

    offset: StartOffset = "earliest"
    count: Annotated[int, Meta(ge=1, le=COUNT_MAX)] = COUNT_DEFAULT
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] = 0


class ConsumeQuery(RangeQuery, frozen=True):
    """The same, with the partition; the topic may be left out where `rest.default_topic` is set."""

    topic: str | None = None
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0


class MessageRange(RestAnswer, frozen=True):
    """Messages in the order of the log, and where to go on."""

    messages: list[MessageView]
    next_offset: int


@OPERATIONS.add(
    "GET", "/v1/topics/{topic}/partitions/{partition}/messages", "Messages of a partition",
    query=RangeQuery, answer=MessageRange,
)  # fmt: skip
async def read_messages(backend: GatewayBackend, request: RestRequest[RangeQuery, None]) -> MessageRange:
    partition = path_number(request, "partition", INT32_MAX)
    return await _range(backend, request.path["topic"], partition, request.query)


@OPERATIONS.add(
    "GET", "/consume", "Messages of a partition of the topic that the URL names",
    query=ConsumeQuery, answer=MessageRange,
)  # fmt: skip
async def consume(backend: GatewayBackend, request: RestRequest[ConsumeQuery, None]) -> MessageRange:
    topic = topic_or_default(backend, request.query.topic)
    return await _range(backend, topic, request.query.partition, request.query)


@OPERATIONS.add(
    "GET", "/v1/topics/{topic}/partitions/{partition}/messages/{offset}", "One message", answer=MessageView
)
@OPERATIONS.add(
    "GET", "/v1/messages/{topic}/{partition}/{offset}", "One message by its id", answer=MessageView
)
async def read_message(backend: GatewayBackend, request: RestRequest[NoQuery, None]) -> MessageView:
    topic = request.path["topic"]
    partition = path_number(request, "partition", INT32_MAX)
    offset = path_number(request, "offset", INT64_MAX)
    record = await backend.reader.read_one(topic, partition, offset)
    if record is None:
        raise Problem(404, "Not found", f"there is no message {topic}/{partition}/{offset}")
    return message_view(topic, partition, record)


async def _range(backend: GatewayBackend, topic: str, partition: int, query: RangeQuery) -> MessageRange:
    if isinstance(query.offset, int):
        offset = query.offset
    else:
        start, end = await backend.reader.offsets(topic, partition)
        offset = start if query.offset == "earliest" else end
    read = await backend.reader.read(
        topic, partition, offset, count=query.count, bytes_max=READ_BYTES_MAX, wait_ms=query.wait_ms
    )
    messages = [message_view(topic, partition, record) for record in read.records]
    return MessageRange(messages=messages, next_offset=read.next_offset)


def path_number(
    request: RestRequest[NoQuery, None] | RestRequest[RangeQuery, None], name: str, most: int
) -> int:
    """A number in the path."""
    text = request.path[name]
    if not text.isascii() or not text.isdigit() or len(text) > DIGITS_MAX or int(text) > most:
        raise invalid(name, f"a number from 0 to {most} belongs here")
    return int(text)
