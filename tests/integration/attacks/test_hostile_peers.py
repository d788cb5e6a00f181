"""Frames that are well-formed and hostile, of every kind, to the peer port of a live node without TLS."""

import dataclasses
import enum
import random  # noqa: TID251 - seeded, and printed with a failure
import socket
import struct
import types
import typing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Union, get_args, get_origin
from uuid import UUID

import msgspec
import pytest
from confluent_kafka import Consumer, Producer

from penstock.broker.cluster.raft_codec import MESSAGES as RAFT_MESSAGES
from penstock.broker.cluster.raft_codec import encode_message
from penstock.broker.cluster.rpc import MESSAGES, RpcFrame, encode_frame
from penstock.broker.replication.protocol import ReplicationFrameKind
from penstock.core.metadata import Command
from penstock.core.model import NodeId
from penstock.runtime import NodeIdentity
from penstock.runtime.peer_handshake import NO_CLUSTER, Hello, write_hello
from tests.support.nodes import NodeProcess

INTEGERS = (0, 1, 2, 7, 1_000, -1, 2**20 + 5, 2**30, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "x", "orders", "__consumer_offsets", "../../etc", "\0", "ü" * 300)
BLOBS = (b"", b"\0", b"\xff" * 61, b"\x93\x01\x02\x03")
RAFT, CONTROL, REPLICATION = 1, 2, 3
NIL = UUID(int=0)
SEEDS = range(3)
ROUNDS = 6


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


PORT = _free_port()


def value_of(hint: Any, rng: random.Random, topic_ids: tuple[UUID, ...], depth: int = 0) -> Any:  # noqa: C901, PLR0912 - one case per type
    """Some value of a type, as far from sense as the type allows."""
    hint = getattr(hint, "__supertype__", hint)
    origin = get_origin(hint)
    if hint is Any or hint is None or hint is type(None):
        return None
    if origin is typing.Annotated:
        return value_of(get_args(hint)[0], rng, topic_ids, depth)
    if origin in (Union, types.UnionType):
        return value_of(rng.choice(get_args(hint)), rng, topic_ids, depth)
    if origin is tuple:
        items = get_args(hint)
        if len(items) == 2 and items[1] is ...:
            return tuple(value_of(items[0], rng, topic_ids, depth + 1) for _ in range(rng.choice((0, 1, 3))))
        return tuple(value_of(item, rng, topic_ids, depth + 1) for item in items)
    if origin is dict:
        key, item = get_args(hint)
        return {
            value_of(key, rng, topic_ids): value_of(item, rng, topic_ids) for _ in range(rng.choice((0, 2)))
        }
    if hint is bool:
        return rng.random() < 0.5
    if hint is int or hint is float:
        return hint(rng.choice(INTEGERS))
    if hint is str:
        return rng.choice(TEXTS)
    if hint is bytes:
        return rng.choice(BLOBS)
    if hint is UUID:
        return rng.choice((*topic_ids, NIL, UUID(int=rng.getrandbits(128))))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return rng.choice(list(hint))
    hints = typing.get_type_hints(hint, include_extras=True)
    names: tuple[str, ...]
    if dataclasses.is_dataclass(hint):
        names = tuple(field.name for field in dataclasses.fields(hint))
    else:
        names = getattr(hint, "__struct_fields__", ()) or getattr(hint, "_fields", ())
    return hint(**{name: value_of(hints[name], rng, topic_ids, depth + 1) for name in names})


def hostile_frames(rng: random.Random, topic_ids: tuple[UUID, ...]) -> Iterator[bytes]:
    """Every kind of every channel."""
    for kind in RAFT_MESSAGES:
        with suppress(OverflowError):
            yield bytes((RAFT,)) + encode_message(value_of(kind, rng, topic_ids))
    for message in MESSAGES:
        filled = value_of(message, rng, topic_ids)
        with suppress(OverflowError):
            yield bytes((CONTROL,)) + encode_frame(RpcFrame(rng.random() < 0.2, rng.getrandbits(40), filled))
    for command in get_args(Command):
        content = msgspec.msgpack.encode(value_of(command, rng, topic_ids))
        submit = msgspec.structs.replace(
            value_of(MESSAGES[5], rng, topic_ids), name=command.__name__, content=content
        )
        yield bytes((CONTROL,)) + encode_frame(RpcFrame(False, rng.getrandbits(40), submit))
    for frame in ReplicationFrameKind:
        key = rng.choice(topic_ids).bytes + struct.pack("<i", rng.choice((0, 1, -1)))
        numbers = b"".join(struct.pack("<q", rng.choice(INTEGERS)) for _ in range(8))
        yield bytes((REPLICATION, frame)) + key + numbers[: rng.choice((4, 8, 12, 20, 28))]
    yield bytes((REPLICATION,)) + a_fetch(rng, topic_ids)
    yield bytes((rng.choice((0, 4, 255)),)) + rng.randbytes(50)


def a_fetch(rng: random.Random, topic_ids: tuple[UUID, ...]) -> bytes:
    big = (0, 1, 2**31 - 1, 2**62, 2**63 - 1)
    rows = [
        struct.pack(
            "<20siqiqq",
            rng.choice(topic_ids).bytes + struct.pack("<i", 0),
            rng.choice((0, 1, 2**31 - 1, -1)),
            rng.choice(big),
            rng.choice((-1, 0, 2**31 - 1)),
            rng.choice(big),
            rng.choice(big),
        )
        for _ in range(3)
    ]
    return struct.pack("<BqIIII", 8, rng.choice(big), 0, 0, len(rows), 0) + b"".join(rows)


def speak(address: tuple[str, int], node_id: int, directory: UUID, frame: bytes) -> None:
    """Say hello as this node, send a frame, and wait until the node has ended the link."""
    hello = write_hello(Hello(NodeIdentity(NO_CLUSTER, NodeId(node_id), directory)))
    with socket.create_connection(address, timeout=30) as link, suppress(ConnectionError):
        link.sendall(struct.pack(">I", len(hello)) + hello)
        assert link.recv(4_096), "it says hello"
        link.sendall(struct.pack(">I", len(frame)) + frame)
        link.shutdown(socket.SHUT_WR)
        while link.recv(65_536):
            pass


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    root: Path = tmp_path_factory.mktemp("hostile")
    running = NodeProcess(root / "node", f"listen.peer=127.0.0.1:{PORT}", "rest.enabled=false")
    running.start()
    # Before the attack: without proof a stranger may register as a broker, and get replicas of new topics.
    producer = Producer({"bootstrap.servers": running.kafka})
    for seed in SEEDS:
        for number in range(20):
            producer.produce(f"orders-{seed}", b"%d" % number)
    assert producer.flush(60) == 0
    yield running
    running.kill()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_lives_serves_and_keeps_its_records(node: NodeProcess, seed: int) -> None:
    topic = f"orders-{seed}"
    producer = Producer({"bootstrap.servers": node.kafka})
    rng = random.Random(seed)

    directory = UUID(int=rng.getrandbits(128))
    for _ in range(ROUNDS):
        for frame in hostile_frames(rng, (NIL,)):
            # As strangers, and under the id of the node itself.
            speak(("127.0.0.1", PORT), rng.choice((1, 2, 77)), directory, frame)

    assert node.is_running, node.said()
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < 20:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    assert sorted(found) == sorted(b"%d" % number for number in range(20))
    producer.produce(topic, b"after")
    assert producer.flush(30) == 0
