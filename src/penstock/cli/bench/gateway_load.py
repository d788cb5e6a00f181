"""Load on the servers of a gateway: REST, WebSocket and gRPC.

    publish_rest          keep-alive connections, one request at a time on each
    enqueue_websocket     frames of many messages, several of them ahead of their replies
    dequeue_websocket     messages are leased and acknowledged, as many as a frame takes
    publish_grpc          PublishStream with many messages in a request, several ahead

The server is to be measured, not the client: requests are made once, as bytes, and written to raw sockets;
of responses is looked at what says that every message was taken. gRPC has its own client, which is given
bytes as well.
"""

import asyncio
import json
import os
import selectors
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.cli.bench.report import LoadResult
from penstock.client import ClientError, Endpoint

CONNECT_SECONDS = 10
READ_BYTES = 1 << 18
TURN_SECONDS = 0.5
DEQUEUE_WAIT_MS = 1_000
LEASE_MS = 60_000
# Bits of the first two bytes of a WebSocket frame.
FINAL, BINARY, MASKED = 0x80, 0x2, 0x80
SIZE_16, SIZE_64 = 126, 127
CLOSE = 0x8
PUBLISH_STREAM = "/penstock.v1.Penstock/PublishStream"


@dataclass(frozen=True, slots=True)
class GatewayLoad:
    """How many messages, how many of them in a request, and how many requests at once."""

    messages: int
    batch: int = 1
    value_bytes: int = 100
    connections: int = 32
    # Requests that a connection has under way; REST has one.
    ahead: int = 1
    seconds_max: float = 60
    # Messages a second, evenly; 0 is as many as there can be.
    rate: int = 0

    @property
    def requests(self) -> int:
        return -(-self.messages // self.batch)


@dataclass(frozen=True, slots=True)
class GatewayServer:
    """Where a server of a gateway is, and as whom it is called."""

    host: str
    port: int
    # The value of the header `Authorization`; none is nobody.
    authorization: str = ""
    has_tls: bool = False
    # The file with the authority of its certificate; by default those that the machine trusts.
    authority: str = ""

    @classmethod
    def at(cls, url: str, authorization: str = "", authority: str = "") -> "GatewayServer":
        """The server of `http://host:port`, `https://host:port` or `host:port`."""
        scheme, separator, rest = url.rstrip("/").rpartition("://")
        if scheme not in ("", "http", "https"):
            raise ClientError(f"{url}: expected http://host:port or https://host:port")
        ((host, port), *_) = Endpoint(rest if separator else url).addresses()
        return cls(host, port, authorization, scheme == "https", authority)

    @property
    def name(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self) -> socket.socket:
        try:
            connected = socket.create_connection((self.host, self.port), CONNECT_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.has_tls:
                context = ssl.create_default_context(cafile=self.authority or None)
                return context.wrap_socket(connected, server_hostname=self.host)
        except OSError as error:
            raise ClientError(f"{self.name}: {error.strerror or error}") from None
        return connected

    @property
    def headers(self) -> str:
        """The lines of a request's head that say who is asking."""
        return f"Authorization: {self.authorization}\r\n" if self.authorization else ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The same for gRPC."""
        return (("authorization", self.authorization),) if self.authorization else ()

    def channel(self, kinds: Any) -> Any:
        """A gRPC channel of `grpc` or `grpc.aio`."""
        if not self.has_tls:
            return kinds.insecure_channel(self.name)
        import grpc

        roots = Path(self.authority).read_bytes() if self.authority else None
        return kinds.secure_channel(self.name, grpc.ssl_channel_credentials(roots))


class _Turns:
    """Counts requests out and responses in, until all are done or the time is over."""

    def __init__(self, load: GatewayLoad) -> None:
        self._left = load.requests
        self._pause_ns = load.batch * 1_000_000_000 // load.rate if load.rate else 0
        self._next_ns = 0
        self.under_way = 0
        self.latencies_ns: list[int] = []
        self._cpu = time.process_time_ns()
        # The end is the last response with something in it: behind it others may wait in vain.
        self._began = self._ended = time.perf_counter_ns()
        self._until = self._began + int(load.seconds_max * 1e9)

    def take(self) -> bool:
        """Whether there is another request to send; where there is a rate, when its time has come."""
        now = time.perf_counter_ns()
        if self._left <= 0 or now > self._until:
            return False
        if self._pause_ns:
            # Meanwhile no response is read: with a rate, the load counts and not its latencies.
            time.sleep(max(0, self._next_ns - now) / 1e9)
            self._next_ns = max(self._next_ns, now) + self._pause_ns
        self._left -= 1
        self.under_way += 1
        return True

    def done(self, sent_at_ns: int) -> None:
        self.under_way -= 1
        self._ended = time.perf_counter_ns()
        self.latencies_ns.append(self._ended - sent_at_ns)

    def stop(self) -> None:
        """Nothing more is to be sent."""
        self._left = 0

    def result(self, messages: int) -> LoadResult:
        return LoadResult(
            messages,
            self.latencies_ns,
            self._ended - self._began,
            time.process_time_ns() - self._cpu,
        )


class _Connection:
    """A socket, and what has come of the next response."""

    def __init__(self, server: GatewayServer) -> None:
        self.socket = server.connect()
        self.received = bytearray()
        self.sent_at: deque[int] = deque()

    def send(self, request: bytes) -> None:
        self.sent_at.append(time.perf_counter_ns())
        self.socket.sendall(request)

    def receive(self) -> None:
        content = self.socket.recv(READ_BYTES)
        if not content:
            raise ClientError("the server closed the connection")
        self.received += content
        # What TLS has decrypted already makes no socket readable.
        while isinstance(self.socket, ssl.SSLSocket) and self.socket.pending():
            self.received += self.socket.recv(READ_BYTES)

    def close(self) -> None:
        self.socket.close()


def _serve(connections: Sequence[Any], turns: _Turns, on_readable: Callable[[Any], None]) -> None:
    """Call `on_readable` for every connection that has something, until no response is missing."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        silence = 0.0
        while turns.under_way:
            ready = selector.select(TURN_SECONDS)
            silence = 0.0 if ready else silence + TURN_SECONDS
            if silence > CONNECT_SECONDS:
                raise ClientError(f"there was no response for {CONNECT_SECONDS} s")
            for key, _ in ready:
                on_readable(key.data)


# REST.


def rest_request(server: GatewayServer, method: str, path: str, content: object = None) -> bytes:
    """A request with a JSON body."""
    body = b"" if content is None else json.dumps(content).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{server.headers}"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def ask_rest(server: GatewayServer, method: str, path: str, content: object = None) -> Any:
    """One request on a connection of its own; its response, or ClientError."""
    connection = _Connection(server)
    try:
        connection.send(rest_request(server, method, path, content))
        while (body := _rest_response(connection)) is None:
            connection.receive()
    finally:
        connection.close()
    return json.loads(body) if body else None


def _rest_response(connection: _Connection) -> bytes | None:
    """The body of a response that is complete; ClientError if it says that something failed."""
    head_end = connection.received.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    head = bytes(connection.received[:head_end]).lower()
    length = head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0]
    end = head_end + 4 + int(length or 0)
    if len(connection.received) < end:
        return None
    body = bytes(connection.received[head_end + 4 : end])
    del connection.received[:end]
    if not head.startswith(b"http/1.1 20"):
        status = head.splitlines()[0].decode()
        raise ClientError(f"{status}: {body.decode(errors='replace')}")
    return body


@contextmanager
def rest_topic(server: GatewayServer, partitions: int) -> Iterator[str]:
    """A topic for one measurement, made and deleted over REST."""
    name = f"penstock-bench-{os.urandom(6).hex()}"
    ask_rest(server, "POST", "/v1/topics", {"name": name, "partitions": partitions})
    try:
        yield name
    finally:
        ask_rest(server, "DELETE", f"/v1/topics/{name}")


def publish_rest(server: GatewayServer, topic: str, load: GatewayLoad) -> LoadResult:
    """Publish over REST: one message in a request, or a batch of them."""
    connections = [_Connection(server) for _ in range(load.connections)]
    requests = {
        connection: _rest_publish(server, topic, f"device-{number}", load)
        for number, connection in enumerate(connections)
    }
    turns = _Turns(load)

    def on_readable(connection: _Connection) -> None:
        connection.receive()
        body = _rest_response(connection)
        if body is None:
            return
        turns.done(connection.sent_at.popleft())
        if b'"error"' in body:
            raise ClientError(f"a message was refused: {body[:500].decode()}")
        if turns.take():
            connection.send(requests[connection])

    try:
        for connection in connections:
            if turns.take():
                connection.send(requests[connection])
        _serve(connections, turns, on_readable)
    finally:
        for connection in connections:
            connection.close()
    return turns.result(len(turns.latencies_ns) * load.batch)


def _rest_publish(server: GatewayServer, topic: str, key: str, load: GatewayLoad) -> bytes:
    value = {"sensor": "a-17", "temperature": 21.5, "note": ""}
    value["note"] = "x" * max(0, load.value_bytes - len(json.dumps(value)))
    message = {"key": key, "value": value}
    if load.batch == 1:
        return rest_request(server, "POST", f"/v1/topics/{topic}/publish", message)
    return rest_request(server, "POST", f"/v1/topics/{topic}/batch", {"messages": [message] * load.batch})


# WebSocket.


class _Delivered(msgspec.Struct):
    """Of a message, what acknowledges it."""

    receipt: str


class _Reply(msgspec.Struct):
    """What a client must know of a reply."""

    op: str
    id: int | None = None
    detail: str = ""
    messages: list[_Delivered] = []
    settled: int = 0
    errors: list[msgspec.Raw] = []


_reply = msgspec.msgpack.Decoder(_Reply)
_packed = msgspec.msgpack.Encoder().encode


class _WebSocket(_Connection):
    """A WebSocket connection that sends and receives binary frames."""

    def __init__(self, server: GatewayServer) -> None:
        super().__init__(server)
        # Of operations, by their ids.
        self.began_at: dict[int, int] = {}
        self._last_id = 0
        self.socket.sendall(
            b"GET /v1/ws HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            + server.headers.encode()
            + b"\r\n"
        )
        while (end := self.received.find(b"\r\n\r\n")) < 0:
            self.receive()
        if not self.received.startswith(b"HTTP/1.1 101"):
            raise ClientError(f"no WebSocket: {self.received[:200].decode(errors='replace')}")
        del self.received[: end + 4]
        # The welcome, which is text.
        while (welcome := self.next_frame()) is None:
            self.receive()
        if b'"welcome"' not in welcome:
            raise ClientError(welcome.decode(errors="replace"))

    def ask(self, operation: str, began_at: int | None = None, **fields: object) -> None:
        self._last_id += 1
        self.ask_with(self._last_id, _packed({"op": operation, "id": self._last_id, **fields}), began_at)

    def ask_with(self, operation_id: int, packed: bytes, began_at: int | None = None) -> None:
        self.began_at[operation_id] = time.perf_counter_ns() if began_at is None else began_at
        self.socket.sendall(frame(packed))

    def next_frame(self) -> bytes | None:
        """The payload of the next frame, if it has come."""
        received = self.received
        if len(received) < 2:
            return None
        size, start = received[1], 2
        if size == SIZE_16:
            size, start = int.from_bytes(received[2:4], "big"), 4
        elif size == SIZE_64:
            size, start = int.from_bytes(received[2:10], "big"), 10
        if len(received) < start + size:
            return None
        payload = bytes(memoryview(received)[start : start + size])
        if received[0] & 0x0F == CLOSE:
            raise ClientError(f"the server closed the WebSocket: {payload[2:].decode(errors='replace')}")
        del received[: start + size]
        return payload

    def replies(self) -> "list[_Reply]":
        """Every reply that has come whole."""
        self.receive()
        found = []
        while (payload := self.next_frame()) is not None:
            reply = _reply.decode(payload)
            if reply.op == "error" or reply.errors or b"\xa5error" in payload:
                raise ClientError(f"an operation was refused: {reply.detail or payload[:500]!r}")
            found.append(reply)
        return found


def frame(payload: bytes) -> bytes:
    """A binary frame of a client. Its mask is zero, which leaves the payload as it is."""
    size = len(payload)
    if size < SIZE_16:
        head = bytes([FINAL | BINARY, MASKED | size])
    elif size < 1 << 16:
        head = bytes([FINAL | BINARY, MASKED | SIZE_16]) + size.to_bytes(2, "big")
    else:
        head = bytes([FINAL | BINARY, MASKED | SIZE_64]) + size.to_bytes(8, "big")
    return head + bytes(4) + payload


class _SocketLoad(ABC):
    """Operations on several WebSockets, each of which has some under way."""

    def __init__(self, server: GatewayServer, load: GatewayLoad, turns: _Turns) -> None:
        self._load = load
        self._turns = turns
        self._sockets = [_WebSocket(server) for _ in range(load.connections)]

    def run(self) -> None:
        """Until everything is done, or the time is over."""
        try:
            for slot in range(self._load.ahead):
                for one in self._sockets:
                    self.begin(one, slot)
            _serve(self._sockets, self._turns, self._on_readable)
        finally:
            for one in self._sockets:
                one.close()

    def _on_readable(self, one: _WebSocket) -> None:
        for reply in one.replies():
            assert reply.id is not None
            self.on_reply(one, reply, one.began_at.pop(reply.id))

    @abstractmethod
    def begin(self, one: _WebSocket, slot: int) -> None:
        """The first request of a slot."""

    @abstractmethod
    def on_reply(self, one: _WebSocket, reply: _Reply, began_at: int) -> None:
        """A response has come."""


class _Enqueue(_SocketLoad):
    """The id of an operation is that of a slot, of which a socket has `ahead`: so frames are made once."""

    def __init__(self, server: GatewayServer, topic: str, load: GatewayLoad, turns: _Turns) -> None:
        super().__init__(server, load, turns)
        value = os.urandom(load.value_bytes)
        self._operations = [
            _packed({
                "op": "enqueue", "id": slot, "topic": topic,
                "messages": [{"key": b"device-%d" % slot, "value": value}] * load.batch,
            })
            for slot in range(load.ahead)
        ]  # fmt: skip

    def begin(self, one: _WebSocket, slot: int) -> None:
        if self._turns.take():
            one.ask_with(slot, self._operations[slot])

    def on_reply(self, one: _WebSocket, reply: _Reply, began_at: int) -> None:
        self._turns.done(began_at)
        assert reply.id is not None
        self.begin(one, reply.id)


class _Dequeue(_SocketLoad):
    """Leases messages and acknowledges them, until so many are done or none are left."""

    def __init__(
        self, server: GatewayServer, place: tuple[str, str], load: GatewayLoad, turns: _Turns
    ) -> None:
        super().__init__(server, load, turns)
        topic, self._group = place
        self._asked: dict[str, Any] = {
            "topic": topic, "group": self._group, "max": load.batch,
            "wait_ms": DEQUEUE_WAIT_MS, "lease_ms": LEASE_MS,
        }  # fmt: skip
        self.acknowledged = self._empty = 0

    def begin(self, one: _WebSocket, slot: int = 0) -> None:  # noqa: ARG002 - all are alike
        is_over = self.acknowledged >= self._load.messages
        if is_over or self._empty > self._load.connections * self._load.ahead:
            self._turns.stop()
        if self._turns.take():
            one.ask("dequeue", **self._asked)

    def on_reply(self, one: _WebSocket, reply: _Reply, began_at: int) -> None:
        if reply.messages:
            one.ask("ack", began_at, group=self._group, receipts=[each.receipt for each in reply.messages])
            return
        if reply.op == "messages":
            self._turns.under_way -= 1
            self._empty += 1
        else:
            self._turns.done(began_at)
            self.acknowledged += reply.settled
        self.begin(one)


def enqueue_websocket(server: GatewayServer, topic: str, load: GatewayLoad) -> LoadResult:
    """Publish over WebSocket, so many messages in a frame."""
    turns = _Turns(load)
    _Enqueue(server, topic, load, turns).run()
    return turns.result(len(turns.latencies_ns) * load.batch)


def dequeue_websocket(server: GatewayServer, topic: str, group: str, load: GatewayLoad) -> LoadResult:
    """Lease and acknowledge messages over WebSocket; a latency is that of both together."""
    # What is asked for may come in parts: the end is when everything is acknowledged.
    turns = _Turns(
        GatewayLoad(messages=1 << 40, batch=load.batch, seconds_max=load.seconds_max, rate=load.rate)
    )
    work = _Dequeue(server, (topic, group), load, turns)
    work.run()
    return turns.result(work.acknowledged)


# gRPC.


@contextmanager
def grpc_topic(server: GatewayServer, partitions: int) -> Iterator[str]:
    """A topic for one measurement, made and deleted over gRPC."""
    import grpc

    from penstock.v1 import penstock_pb2 as proto
    from penstock.v1.penstock_pb2_grpc import PenstockStub

    name = f"penstock-bench-{os.urandom(6).hex()}"
    with server.channel(grpc) as channel:
        stub = PenstockStub(channel)  # type: ignore[no-untyped-call]  # is generated
        try:
            created = proto.CreateTopicRequest(name=name, partitions=partitions)
            stub.CreateTopic(created, timeout=CONNECT_SECONDS, metadata=server.metadata)
        except grpc.RpcError as error:
            raise ClientError(f"{server.name}: {error.details()}") from None
        try:
            yield name
        finally:
            deleted = proto.DeleteTopicRequest(name=name)
            stub.DeleteTopic(deleted, timeout=CONNECT_SECONDS, metadata=server.metadata)


def publish_grpc(server: GatewayServer, topic: str, load: GatewayLoad) -> LoadResult:
    """Publish with PublishStream; `connections` is how many streams there are."""
    return asyncio.run(_publish_grpc(server, topic, load))


async def _publish_grpc(server: GatewayServer, topic: str, load: GatewayLoad) -> LoadResult:
    import grpc

    async with server.channel(grpc.aio) as channel:
        turns = _Turns(load)
        try:
            async with asyncio.TaskGroup() as streams:
                for number in range(load.connections):
                    begun = channel.stream_stream(PUBLISH_STREAM)(metadata=server.metadata)
                    streams.create_task(_stream(begun, _grpc_request(topic, number, load), turns, load))
        except* (grpc.aio.AioRpcError, ClientError) as failed:
            raise ClientError(_grpc_reason(failed.exceptions[0])) from None
    return turns.result(len(turns.latencies_ns) * load.batch)


def _grpc_reason(error: BaseException) -> str:
    """What the server says, without what gRPC wraps around it."""
    details = getattr(error, "details", None)
    return str(details() if callable(details) else error)


async def _stream(call: Any, request: bytes, turns: _Turns, load: GatewayLoad) -> None:
    from penstock.v1 import penstock_pb2 as proto

    sent_at: deque[int] = deque()

    async def send() -> bool:
        if not turns.take():
            return False
        sent_at.append(time.perf_counter_ns())
        await call.write(request)
        return True

    for _ in range(load.ahead):
        await send()
    while sent_at:
        response = proto.PublishResponse.FromString(await call.read())
        turns.done(sent_at.popleft())
        offsets = [result.offset for result in response.results] or [response.offset]
        if len(offsets) != load.batch or min(offsets) < 0:
            raise ClientError(f"a message was refused: {str(response)[:500]}")
        await send()
    await call.done_writing()


def _grpc_request(topic: str, number: int, load: GatewayLoad) -> bytes:
    from penstock.v1 import penstock_pb2 as proto

    key, value = b"device-%d" % number, os.urandom(load.value_bytes)
    request = proto.PublishRequest(topic=topic)
    if load.batch == 1:
        request.key, request.value = key, value
    else:
        request.messages.extend([proto.OutgoingMessage(key=key, value=value)] * load.batch)
    packed: bytes = request.SerializeToString()
    return packed
