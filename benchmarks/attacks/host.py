"""What happens without anybody's will: a process stands still, a disk is full, a file is damaged."""

import contextlib
import os
import signal
import time
from pathlib import Path
from uuid import uuid4

from benchmarks.attacks.attack import Attacker, AttackTable
from benchmarks.attacks.batches import plain_batch, produce
from benchmarks.attacks.nodes import NodeSetup
from penstock.client.connection import BrokerConnection
from penstock.core.model import NodeId
from penstock.core.protocol import ZERO_UUID
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.runtime.peer_handshake import NO_CLUSTER, Hello, write_hello
from penstock.runtime.port import NodeIdentity

STALL_SECONDS = 3.0
FULL_SECONDS = 5.0
host = AttackTable("host")


@host.attack("stalled", is_alone=True, outage_seconds=STALL_SECONDS)
def stalled(attacker: Attacker) -> None:
    """The first node is stopped for three seconds, and goes on; what comes after counts."""
    pid = attacker.target.pids[0]
    for _ in attacker.rounds():
        os.kill(pid, signal.SIGSTOP)
        attacker.pause(STALL_SECONDS)
        os.kill(pid, signal.SIGCONT)
        attacker.counts["stalls"] += 1
        attacker.pause(STALL_SECONDS)


@host.attack("few-descriptors", setup=NodeSetup(descriptors_max=256), is_alone=True)
def few_descriptors(attacker: Attacker) -> None:
    """256 descriptors, 500 topics that are asked for, and as many connections as there may be."""
    for number in range(500):
        if attacker.is_over:
            break
        with contextlib.suppress(OSError):
            attacker.create_topic(f"narrow-{number}")
            attacker.counts["asked"] += 1
    held = attacker.sockets(500)
    while not attacker.is_over:
        attacker.pause(0.5)
    for one in held:
        one.close()


def _topic(attacker: Attacker) -> None:
    attacker.create_topic("large", partitions=3)


@host.attack(
    "full-disk",
    setup=NodeSetup(disk_megabytes=96),
    prepare=_topic,
    is_alone=True,
    outage_seconds=FULL_SECONDS,
)
def full_disk(attacker: Attacker) -> None:
    """Another client fills the disk for some seconds, then its topic is deleted."""
    batch = plain_batch(value_bytes=1_000_000)
    full_since = 0.0

    def step(connection: BrokerConnection) -> None:
        nonlocal full_since
        if full_since and time.monotonic() > full_since + FULL_SECONDS - 1:
            topic = DeleteTopicsRequestTopic(name="large", topic_id=ZERO_UUID)
            attacker.ask(connection, DeleteTopicsRequest(topics=(topic,), timeout_ms=10_000))
            attacker.deadline = time.monotonic()
        elif produce(attacker, connection, "large", batch, attacker.counts["requests"] % 3):
            full_since = full_since or time.monotonic()
            attacker.pause(0.1)

    attacker.insist(step)


def _damage(data_dirs: list[Path]) -> None:
    """Zero what says which partition a directory is, of a topic that nobody else keeps."""
    damaged = [path for data_dir in data_dirs for path in data_dir.glob("logs/large/*/partition.metadata")]
    assert damaged, f"there is no partition of the topic in {data_dirs}"
    for path in damaged:
        path.write_bytes(b"\x00" * path.stat().st_size)


@host.attack("damaged-identity", prepare=_topic, while_stopped=_damage, is_alone=True)
def damaged_identity(attacker: Attacker) -> None:
    """`partition.metadata` of a topic is zeroed while the node is down."""
    batch = plain_batch(value_bytes=1_000)

    def step(connection: BrokerConnection) -> None:
        produce(attacker, connection, "large", batch)
        attacker.pause(0.1)

    attacker.insist(step)


@host.attack("peer-links", setup=NodeSetup(has_peer_listener=True))
def peer_links(attacker: Attacker) -> None:
    """300 links of nodes that do not exist, each of which announces a frame and sends half of it."""
    peers = attacker.target.peers
    held = []
    for number in range(300):
        with contextlib.suppress(OSError):
            held.append(attacker.open(peers[number % len(peers)]))
            hello = write_hello(Hello(NodeIdentity(NO_CLUSTER, NodeId(1_000 + number), uuid4())))
            held[-1].sendall(len(hello).to_bytes(4, "big") + hello)
            held[-1].sendall((64 << 20).to_bytes(4, "big") + bytes(1 << 16))
    attacker.counts["links"] = len(held)
    while not attacker.is_over:
        attacker.pause(0.5)
    for one in held:
        one.close()
