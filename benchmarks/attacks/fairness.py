"""Many small requests: nobody may get more of the loop because he asks more often, or on more connections."""

import contextlib
import itertools
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import closing
from typing import cast

from benchmarks.attacks.attack import Attacker, AttackTable
from benchmarks.attacks.batches import plain_batch, produce, produce_frame
from benchmarks.attacks.state import fetch_frame, rows
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import RequestHeader, request_frame
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.registry import APIS

AHEAD = 50
SMALL_API = 18
NAME_CHARS_MAX, NAMES_OF_A_CONNECTION = 32_000, 10_000
fairness = AttackTable("fairness")


class FloodConnection:
    """One socket on which requests are sent as fast as they are taken, many ahead of their responses."""

    def __init__(self, flooding: socket.socket, requests: bytes) -> None:
        self._socket = flooding
        self._socket.settimeout(0)
        self._requests = requests
        # Half a frame followed by another one would be noise.
        self._rest = requests

    def turn(self, events: int, counts: Counter[str]) -> None:
        """Receive what there is, and send what the node takes."""
        if events & selectors.EVENT_READ:
            received = len(self._socket.recv(1 << 20))
            if not received:
                raise ConnectionResetError
            counts["received_bytes"] += received
        if events & selectors.EVENT_WRITE:
            self._rest = self._rest[self._socket.send(self._rest) :] or self._requests
            counts["floods"] += self._rest is self._requests


def flood(attacker: Attacker, connections: int, requests: bytes) -> None:
    """Send the same requests over and over on many connections at once."""
    selector = selectors.DefaultSelector()
    for one in attacker.sockets(connections):
        selector.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE, FloodConnection(one, requests))
    while not attacker.is_over and selector.get_map():
        for key, events in selector.select(0.1):
            try:
                key.data.turn(events, attacker.counts)
            except BlockingIOError:
                continue
            except OSError:
                attacker.counts["disconnected"] += 1
                selector.unregister(key.fileobj)
                cast(socket.socket, key.fileobj).close()
    for key in list(selector.get_map().values()):
        cast(socket.socket, key.fileobj).close()
    selector.close()


def _api_versions(attacker: Attacker) -> bytes:
    connection = attacker.connect()
    try:
        return bytes(connection.frame(ApiVersionsRequest())) * AHEAD
    finally:
        connection.close()


@fairness.attack("api-versions-20")
def api_versions_20(attacker: Attacker) -> None:
    """ApiVersions in a loop on 20 connections."""
    flood(attacker, 20, _api_versions(attacker))


@fairness.attack("api-versions-400")
def api_versions_400(attacker: Attacker) -> None:
    """ApiVersions in a loop on 400 connections."""
    flood(attacker, 400, _api_versions(attacker))


def _wide_topic(attacker: Attacker) -> None:
    attacker.create_topic("wide", partitions=100)


@fairness.attack("long-polls", prepare=_wide_topic)
def long_polls(attacker: Attacker) -> None:
    """20 long polls of 10,000 rows each, beside appends to the partitions that they wait for."""
    frame = fetch_frame(rows("wide", 10_000, 100, fetch_offset=1 << 40), 2_000)
    quiet = fetch_frame(rows("wide", 10_000, 100, fetch_offset=0), 2_000, min_bytes=1 << 30)
    polling = attacker.sockets(20)
    for number, one in enumerate(polling):
        one.sendall(quiet if number % 2 else frame)
        one.settimeout(0)
    batch = plain_batch(10)

    def step(connection: BrokerConnection) -> None:
        for index in range(100):
            produce(attacker, connection, "wide", batch, index)
        for number, one in enumerate(polling):
            with contextlib.suppress(BlockingIOError):
                if one.recv(1 << 20):
                    attacker.counts["received"] += 1
                one.settimeout(1)
                one.sendall(quiet if number % 2 else frame)
                one.settimeout(0)

    attacker.insist(step)
    for one in polling:
        one.close()


def _read_topic(attacker: Attacker) -> None:
    """A topic with 50 MB in it."""
    attacker.create_topic("read")
    connection = attacker.connect()
    batch = plain_batch(value_bytes=1_000_000)
    for _ in range(50):
        produce(attacker, connection, "read", batch)
    connection.close()


@fairness.attack("slow-readers", prepare=_read_topic)
def slow_readers(attacker: Attacker) -> None:
    """200 connections that ask for 50 MB each and never read."""
    frame = fetch_frame(rows("read", 1, 1, partition_max_bytes=1 << 30), 100, max_bytes=(1 << 31) - 1)
    held = attacker.sockets(200)
    for one in held:
        one.settimeout(1)
        with contextlib.suppress(OSError):
            one.sendall(frame * 20)
            attacker.counts["asked"] += 1
    while not attacker.is_over:
        attacker.pause(0.5)
    for one in held:
        one.close()


@fairness.attack("large-fetches", prepare=_read_topic, processes=2)
def large_fetches(attacker: Attacker) -> None:
    """Fetch of everything with the largest max_bytes there is, as fast as it comes."""
    frame = fetch_frame(rows("read", 1, 1, partition_max_bytes=1 << 30), 100, max_bytes=(1 << 31) - 1)
    flood(attacker, 4, frame)


@fairness.attack("list-offsets", prepare=_wide_topic)
def list_offsets(attacker: Attacker) -> None:
    """ListOffsets by time of 5,000 rows, over and over."""
    partitions = tuple(
        ListOffsetsRequestPartition(partition_index=row % 100, timestamp=1) for row in range(5_000)
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=(ListOffsetsRequestTopic(name="wide", partitions=partitions),)
    )
    attacker.repeat_frame(lambda connection: connection.frame(request))


@fairness.attack("empty-fetches", prepare=_wide_topic)
def empty_fetches(attacker: Attacker) -> None:
    """Fetch of 100 partitions at their end without waiting, 50 ahead on 20 connections."""
    flood(attacker, 20, fetch_frame(rows("wide", 100, 100, fetch_offset=0), 0) * AHEAD)


@fairness.attack("many-producers", prepare=_wide_topic)
def many_producers(attacker: Attacker) -> None:
    """Small records with acks=all on 100 connections, 10 ahead on each."""
    frame = bytes(produce_frame("wide", plain_batch(10)))
    flood(attacker, 100, frame * 10)


@fairness.attack("client-names")
def client_names(attacker: Attacker) -> None:
    """A small request with another client id of 32 KB each time, on one connection."""
    api = APIS[SMALL_API]
    numbers = itertools.takewhile(lambda _: not attacker.is_over, itertools.count())
    while not attacker.is_over:
        with closing(attacker.open()) as one:
            for number in itertools.islice(numbers, NAMES_OF_A_CONNECTION):
                name = f"{number} ".ljust(NAME_CHARS_MAX, "x")
                header = RequestHeader(api.key, 0, number, name)
                one.sendall(request_frame(api, header, ApiVersionsRequest()))
                (size,) = struct.unpack(">i", one.recv(4, socket.MSG_WAITALL))
                one.recv(size, socket.MSG_WAITALL)
                attacker.counts["requests"] += 1


@fairness.attack("large-requests")
def large_requests(attacker: Attacker) -> None:
    """Metadata of 40,000 topics over and over on 20 connections, beside a client that asks for 500."""
    modest = attacker.connect()
    asked = _metadata_of(500)
    large = bytes(modest.frame(_metadata_of(40_000)))
    greedy = threading.Thread(target=flood, args=(attacker, 20, large))
    greedy.start()
    longest_s = 0.0
    while not attacker.is_over:
        began_s = time.monotonic()
        attacker.ask(modest, asked)
        longest_s = max(longest_s, time.monotonic() - began_s)
        attacker.pause(0.02)
    attacker.counts["longest_ms"] = round(longest_s * 1_000)
    greedy.join()
    modest.close()


def _metadata_of(count: int) -> MetadataRequest:
    topics = tuple(MetadataRequestTopic(name=f"none-{number}") for number in range(count))
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)
