"""Batch commit over HTTP, from the bytes of a request to those of its response."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.core.model import ApiError, ErrorKind, Instant
from penstock.core.transactions import BatchDone, BatchMember
from penstock.runtime.tcp import Part
from penstock.server.http import (
    BATCHES_PREFIX,
    BatchResource,
    HttpLimits,
    HttpRequest,
    HttpResponse,
    HttpServer,
)
from penstock.server.http.server import HttpConnection
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime

BODY = b'{"transactions": [{"transactional_id": "s#0", "producer_id": 4, "producer_epoch": 2}]}'


class Pipe:
    """A connection whose bytes stay here."""

    pending_bytes = 0

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, parts: list[Part]) -> None:
        for part in parts:
            assert isinstance(part, bytes | bytearray | memoryview)
            self.written += part

    def pause(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """A server whose batches are committed by the test."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, list[BatchMember]]] = []
        self.waiting: list[Callable[[BatchDone | ApiError], None]] = []
        self.timers = HandTimers()
        pages = {"/health": lambda: HttpResponse(200, b"ok\n")}
        resources = {BATCHES_PREFIX: BatchResource(self._commit)}
        self.server = HttpServer(
            hand_runtime(self.timers, HandSyncs()), pages, HttpLimits(body_bytes_max=200), resources
        )
        self.pipe = Pipe()

    def _commit(
        self,
        sink: str,
        batch: str,
        members: Sequence[BatchMember],
        done: Callable[[BatchDone | ApiError], None],
    ) -> None:
        self.asked.append((sink, batch, list(members)))
        self.waiting.append(done)

    def send(self, content: bytes, portion: int = 7) -> HttpConnection:
        timer = self.timers.at(Instant(10**12), self.pipe.close)
        connection = HttpConnection(self.pipe, self.server, timer)  # type: ignore[arg-type]
        while content and not self.pipe.written:
            buffer = connection.get_buffer()
            count = min(portion, len(content), len(buffer))
            buffer[:count] = content[:count]
            content = content[count:]
            connection.buffer_updated(count)
        return connection

    def put(self, path: str, body: bytes = BODY, outcome: BatchDone | ApiError | None = None) -> Any:
        self.send(f"PUT {path} HTTP/1.1\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        if outcome is not None:
            self.waiting.pop()(outcome)
        head, _, content = self.pipe.written.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(content)


def test_a_batch_is_committed_when_its_outcome_is_known() -> None:
    stage = Stage()

    stage.send(b"PUT /v1/batches/s/7 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)

    assert stage.asked == [("s", "7", [BatchMember("s#0", 4, 2)])]  # type: ignore[arg-type]
    assert stage.pipe.written == b""
    stage.waiting.pop()(BatchDone(is_repeat=False))
    assert stage.pipe.written.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    assert stage.pipe.written.endswith(b'{"status":"committed"}\n')
    assert stage.pipe.is_closed


@pytest.mark.parametrize(
    ("outcome", "status", "word"),
    [
        (BatchDone(is_repeat=True), 200, "done"),
        (ApiError(ErrorKind.PRODUCER_FENCED, "s#0"), 409, "refused"),
        (ApiError(ErrorKind.INVALID_REQUEST), 400, "invalid"),
        (ApiError(ErrorKind.COORDINATOR_LOADING), 503, "unknown"),
    ],
)
def test_every_outcome_has_a_status(outcome: BatchDone | ApiError, status: int, word: str) -> None:
    found, content = Stage().put("/v1/batches/s/7", outcome=outcome)

    assert (found, content["status"]) == (status, word)


def test_names_are_decoded() -> None:
    stage = Stage()
    stage.put("/v1/batches/a%2Fb/run%207", outcome=BatchDone(is_repeat=False))

    assert stage.asked[0][:2] == ("a/b", "run 7")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/batches/s", BODY),
        ("/v1/batches/s/7/8", BODY),
        ("/v1/batches/%ff/7", BODY),
        ("/v1/batches/s/7", b""),
        ("/v1/batches/s/7", b"[]"),
        ("/v1/batches/s/7", BODY.replace(b"4", b"-4")),
        ("/v1/batches/s/7", BODY.replace(b"2}", b"99999}")),
        ("/v1/batches/s/7", BODY.replace(b"s#0", b"\\ud800")),
    ],
)
def test_what_cannot_be_understood_is_refused(path: str, body: bytes) -> None:
    stage = Stage()

    assert stage.put(path, body)[0] == 400
    assert stage.asked == []


def test_a_body_that_is_nested_deeply_is_refused() -> None:
    responses: list[HttpResponse] = []
    resource = BatchResource(lambda *_: pytest.fail("it was committed"))

    resource(HttpRequest("s/7", b'{"x":' + b"[" * 100_000), responses.append)

    assert [response.status for response in responses] == [400]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"PUT /v1/batches/s/7 HTTP/1.1\r\n\r\n", b"411"),
        (b"PUT /v1/batches/s/7 HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"411"),
        (b"PUT /v1/batches/s/7 HTTP/1.1\r\nContent-Length: 201\r\n\r\n", b"413"),
        (b"PUT /v1/batches/s/7 HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n", b"411"),
        (b"PUT /health HTTP/1.1\r\nContent-Length: 1\r\n\r\n", b"405"),
        (b"GET /v1/batches/s/7 HTTP/1.1\r\n\r\n", b"404"),
        (b"PUT\r\n\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_heads_that_are_answered_at_once(head: bytes, status: bytes) -> None:
    stage = Stage()
    stage.send(head)

    assert stage.pipe.written.split(b" ")[1] == status


def test_a_client_that_left_gets_nothing() -> None:
    stage = Stage()
    connection = stage.send(b"PUT /v1/batches/s/7 HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY)
    connection.closed()

    stage.waiting.pop()(BatchDone(is_repeat=False))

    assert stage.pipe.written == b""
