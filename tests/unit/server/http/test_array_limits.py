"""Arrays with more elements than they may have are refused before anything is made of them."""

import gc
import tracemalloc
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from penstock.server.http.array_limits import ArrayLimits
from penstock.server.http.message_json import PublishBody
from penstock.server.http.operations import decode_body
from penstock.server.http.problem import Problem
from penstock.server.http.routes.publish import BatchBody
from penstock.server.http.routes.topics import TopicBody
from penstock.server.http.websocket import _binary_frame, _text_frame

COUNT = 300_000
# Of a message that is made of an empty one it would be some 200 bytes.
BYTES_MAX = 24 << 20


class Ids(msgspec.Struct):
    """A document whose array may be absent."""

    ids: Annotated[tuple[int, ...], Meta(max_length=10)] | None = None


class Name(msgspec.Struct):
    """One without an array."""

    name: str


def refusal(decode: Any, content: Any, expected: type[Exception]) -> str:
    """Why it is refused, without having been kept."""
    tracemalloc.start()
    try:
        with pytest.raises(expected) as refused:
            decode(content)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < BYTES_MAX
    return str(refused.value)


def test_a_body_with_too_many_messages_is_refused_at_the_first_too_many() -> None:
    body = b'{"messages":[' + b",".join([b"{}"] * COUNT) + b"]}"

    def decode(content: bytes) -> BatchBody:
        return decode_body(content, BatchBody)

    assert "10000" in refusal(decode, body, Problem)


@pytest.mark.parametrize("field", ["messages", "topics"])
def test_a_text_frame_as_well(field: str) -> None:
    frame = '{"op":"enqueue","' + field + '":[' + ",".join(["{}"] * COUNT) + "]}"

    assert f"$.{field}" in refusal(_text_frame, frame, msgspec.ValidationError)


def test_and_a_binary_one() -> None:
    frame = msgspec.msgpack.encode({"op": "enqueue", "topic": "orders", "messages": [{}] * COUNT})

    assert "$.messages" in refusal(_binary_frame, frame, msgspec.ValidationError)


def test_large_documents_with_as_many_as_there_may_be_are_read() -> None:
    body = b'{"messages":[' + b",".join([b'{"value":"0123456789"}'] * 10_000) + b"]}"

    assert len(decode_body(body, BatchBody).messages) == 10_000


def test_other_errors_are_those_of_the_document() -> None:
    with pytest.raises(Problem, match=r"UTF-8"):
        decode_body(b'{"messages":[{"value":1,"key":"' + b"\xff" * 100_000 + b'"}]}', BatchBody)
    with pytest.raises(Problem, match="nested too deeply"):
        decode_body(b'{"messages":[{"headers":' + b'{"a":' * 100_000, BatchBody)


def test_a_document_that_was_refused_is_not_kept_until_the_next_collection() -> None:
    gc.collect()
    gc.disable()
    try:
        with suppress(msgspec.ValidationError):
            _text_frame('{"op":"enqueue","messages":[' + ",".join(["{}"] * COUNT) + "]}")
        assert not [each for each in gc.get_objects() if isinstance(each, msgspec.ValidationError)]
    finally:
        gc.enable()


def test_arrays_that_may_be_absent_count_as_well() -> None:
    limits = ArrayLimits(Ids)

    limits.check(b'{"ids":null' + b" " * 100_000 + b"}")
    with pytest.raises(msgspec.ValidationError):
        limits.check(b'{"ids":[' + b",".join([b"1"] * COUNT) + b"]}")


def test_documents_without_arrays_are_not_looked_at() -> None:
    ArrayLimits(Name).check(b"?" * 100_000)


HEADERS = b"{" + b",".join(b'"%x":""' % number for number in range(200_000)) + b"}"


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        (PublishBody, b'{"value":1,"headers":%b}', "headers"),
        (BatchBody, b'{"messages":[{"value":1},{"value":1,"headers":%b}]}', "messages[1].headers"),
        (TopicBody, b'{"name":"t","config":%b}', "config"),
    ],
)
def test_objects_of_very_many_names_are_refused_before_anything_is_made_of_them(
    kind: Any, body: bytes, field: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Problem) as refused:
            decode_body(body % HEADERS, kind)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert refused.value.body.field == field
    # Of the names themselves it would be ten megabytes more.
    assert most < 2 * len(HEADERS) + BYTES_MAX


@pytest.mark.parametrize("frame", ['"message":{"headers":%s}', '"messages":[{"headers":%s}]'])
def test_those_of_frames_as_well(frame: str) -> None:
    text = '{"op":"enqueue","topic":"t",' + frame % HEADERS.decode() + "}"

    assert "at most 1048576 bytes" in refusal(_text_frame, text, msgspec.ValidationError)


def test_a_large_value_is_no_object_of_names() -> None:
    body = b'{"value":%b,"headers":{"a":"b"}}' % HEADERS

    assert decode_body(body, PublishBody).headers == {"a": "b"}
