"""REST, WebSocket and gRPC: bodies that are huge, deep, slow or many."""

import base64
import contextlib
import json
import os
import struct

from benchmarks.attacks.attack import Attacker, AttackTable
from benchmarks.attacks.nodes import NodeSetup

WITH_GATEWAY = NodeSetup(has_gateway=True)
gateway = AttackTable("gateway")
PUBLISH = "/v1/topics/gateway/publish"
BATCH = "/v1/topics/gateway/batch"


def _topic(attacker: Attacker) -> None:
    attacker.create_topic("gateway", partitions=6)


def _head(path: str, length: int, *headers: str, method: str = "POST") -> bytes:
    lines = (
        f"{method} {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {length}",
        *headers,
    )
    return "\r\n".join((*lines, "", "")).encode()


def _exchange(attacker: Attacker, request: bytes) -> None:
    """One request on a connection of its own; its status is counted."""
    address = attacker.target.http[attacker.number % len(attacker.target.http)]
    try:
        with attacker.open(address) as one:
            with contextlib.suppress(OSError):
                one.sendall(request)
            status = one.recv(64).split(b" ")[1:2]
            attacker.counts[f"status {status[0].decode() if status else 'none'}"] += 1
    except OSError:
        attacker.counts["disconnected"] += 1
        attacker.pause()


def _repeat(attacker: Attacker, *requests: bytes) -> None:
    attacker.start()
    for number in attacker.rounds():
        _exchange(attacker, requests[number % len(requests)])


@gateway.attack("rest-huge-json", setup=WITH_GATEWAY, prepare=_topic, processes=2)
def rest_huge_json(attacker: Attacker) -> None:
    """A JSON value of 9 MB in a publish."""
    body = json.dumps({"value": ["x"] * 2_000_000}).encode()
    _repeat(attacker, _head(PUBLISH, len(body)) + body)


@gateway.attack("rest-deep-json", setup=WITH_GATEWAY, prepare=_topic)
def rest_deep_json(attacker: Attacker) -> None:
    """JSON that is nested 1,000,000 deep, with and without an end."""
    deep = b'{"value": ' + b"[" * 1_000_000
    closed = deep + b"]" * 1_000_000 + b"}"
    _repeat(attacker, *(_head(PUBLISH, len(body)) + body for body in (deep, closed)))


@gateway.attack("rest-batches", setup=WITH_GATEWAY, prepare=_topic, processes=2)
def rest_batches(attacker: Attacker) -> None:
    """Batches of 100,000 messages of one byte."""
    body = json.dumps({"messages": [{"value": "x"}] * 100_000}).encode()
    _repeat(attacker, _head(BATCH, len(body)) + body)


@gateway.attack("rest-headers", setup=WITH_GATEWAY, prepare=_topic)
def rest_headers(attacker: Attacker) -> None:
    """Requests with thousands of headers, or with one of a megabyte."""
    many = [f"x-{number}: {number}" for number in range(10_000)]
    _repeat(attacker, _head(PUBLISH, 0, *many), _head(PUBLISH, 0, "x-large: " + "x" * (1 << 20)))


@gateway.attack("rest-slow-bodies", setup=WITH_GATEWAY, prepare=_topic)
def rest_slow_bodies(attacker: Attacker) -> None:
    """1,000 connections that announce 9 MB and send a byte every second."""
    addresses = attacker.target.http
    held = []
    for number in range(1_000):
        with contextlib.suppress(OSError):
            held.append(attacker.open(addresses[number % len(addresses)]))
            held[-1].sendall(_head(PUBLISH, 9 << 20))
    attacker.counts["connections"] = len(held)
    while not attacker.is_over:
        for one in held:
            with contextlib.suppress(OSError):
                one.sendall(b" ")
        attacker.pause(1)
    for one in held:
        one.close()


@gateway.attack("rest-floods", setup=WITH_GATEWAY, prepare=_topic, processes=2)
def rest_floods(attacker: Attacker) -> None:
    """Small requests on many connections: publish, topics, messages, and paths that are none."""
    body = b'{"value": "x"}'
    _repeat(
        attacker,
        _head(PUBLISH, len(body)) + body,
        _head("/v1/topics", 0, method="GET"),
        _head("/v1/topics/gateway/partitions/0/messages?limit=10000", 0, method="GET"),
        _head("/" + "x" * 8_000, 0, method="GET"),
    )


def _upgrade() -> bytes:
    """What begins a WebSocket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET /v1/ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n"
    ).encode()


@gateway.attack("websocket-floods", setup=WITH_GATEWAY, prepare=_topic, processes=2)
def websocket_floods(attacker: Attacker) -> None:
    """WebSockets that send huge frames, endless fragments and pings."""
    mask = bytes(4)
    huge = b"\x81\xff" + struct.pack(">Q", 64 << 20) + mask + bytes(1 << 20)
    fragments = b"".join(b"\x00\xfe" + struct.pack(">H", 1_000) + mask + bytes(1_000) for _ in range(500))
    pings = b"".join(b"\x89\xfd" + mask + bytes(125) for _ in range(1_000))
    deep = b'{"op": ' + b"[" * 60_000
    text = b"\x81\xfe" + struct.pack(">H", len(deep)) + mask + deep
    floods = (huge, b"\x01\x80" + mask + fragments, pings, text)
    address = attacker.target.http[attacker.number % len(attacker.target.http)]
    for number in attacker.rounds():
        try:
            with attacker.open(address) as one:
                one.settimeout(2)
                one.sendall(_upgrade())
                one.recv(4_096)
                for _ in range(20):
                    one.sendall(floods[number % len(floods)])
                attacker.counts["floods"] += 1
        except OSError:
            attacker.counts["disconnected"] += 1
            attacker.pause()


@gateway.attack("websocket-empty-messages", setup=WITH_GATEWAY, prepare=_topic, processes=2)
def websocket_empty_messages(attacker: Attacker) -> None:
    """Frames of 10 MB with three million empty messages."""
    content = b'{"op":"enqueue","topic":"gateway","messages":[' + b",".join([b"{}"] * 3_300_000) + b"]}"
    frame = b"\x81\xff" + struct.pack(">Q", len(content)) + bytes(4) + content
    address = attacker.target.http[attacker.number % len(attacker.target.http)]
    attacker.start()
    for _ in attacker.rounds():
        try:
            with attacker.open(address) as one:
                one.sendall(_upgrade())
                one.recv(4_096)
                one.sendall(frame)
                attacker.counts["frames"] += 1
                one.recv(4_096)
        except OSError:
            attacker.counts["disconnected"] += 1
            attacker.pause()


@gateway.attack("rest-long-polls", setup=WITH_GATEWAY, prepare=_topic)
def rest_long_polls(attacker: Attacker) -> None:
    """2,500 connections that poll an empty topic, each for a minute."""
    addresses = attacker.target.http
    held = attacker.sockets(2_500, lambda number: addresses[number % len(addresses)])
    path = "/v1/groups/patient/poll?topics=gateway&wait_ms=60000"
    for one in held:
        with contextlib.suppress(OSError):
            one.sendall(_head(path, 0, method="GET"))
    while not attacker.is_over:
        attacker.pause(1)
    for one in held:
        one.close()


def _grpc_head(method: str) -> bytes:
    """The headers of a call, each literal and without an index."""
    names = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/penstock.v1.Penstock/{method}",
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(
        b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in names.items()
    )


@gateway.attack("grpc-half-calls", setup=WITH_GATEWAY, prepare=_topic)
def grpc_half_calls(attacker: Attacker) -> None:
    """Calls without a message, a thousand on each of four connections, and messages that never end."""
    host, _, port = attacker.target.grpc[attacker.number % len(attacker.target.grpc)].rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _http2(4, 0, 0, b"")
    head = _grpc_head("Publish")
    # A message of 9 MB is announced, and what the window of a connection lets through of it.
    begun = b"\x00" + struct.pack(">I", 9 << 20) + bytes(16_000)
    held = attacker.sockets(4, lambda _: (host, int(port)))
    for number, one in enumerate(held):
        with contextlib.suppress(OSError):
            one.sendall(preface)
            for stream in range(1, 2_001, 2):
                one.sendall(_http2(1, 4, stream, head))
                if number % 2 and stream < 8:
                    one.sendall(_http2(0, 0, stream, begun))
                attacker.counts["calls"] += 1
    while not attacker.is_over:
        attacker.pause(1)
    for one in held:
        one.close()


@gateway.attack("grpc-floods", setup=WITH_GATEWAY, prepare=_topic)
def grpc_floods(attacker: Attacker) -> None:
    """HTTP/2 on the gRPC port: streams that are opened and reset, and frames of settings and pings."""
    host, _, port = attacker.target.grpc[attacker.number % len(attacker.target.grpc)].rpartition(":")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _http2(4, 0, 0, b"")
    # :method POST, :scheme http, :path /, which are in HPACK's static table.
    headers = b"\x83\x86\x84"
    for _ in attacker.rounds():
        try:
            with attacker.open((host, int(port))) as one:
                one.settimeout(2)
                one.sendall(preface)
                for stream in range(1, 2_001, 2):
                    one.sendall(_http2(1, 4, stream, headers) + _http2(3, 0, stream, struct.pack(">I", 8)))
                one.sendall(_http2(6, 0, 0, bytes(8)) * 1_000)
                attacker.counts["streams"] += 1_000
        except OSError:
            attacker.counts["disconnected"] += 1
            attacker.pause()


def _http2(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame: length of three bytes, kind, flags, stream, payload."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
