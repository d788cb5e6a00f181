"""Delayed records at a rate: scheduled, read as they are published, and how late each of them was.

    schedule_at_rate   so many records a second, each due some time after its turn
    await_due          reads what is committed, and compares the clock with what each record says
    probe              small requests all the time: how long the broker leaves one waiting
    measure            all three against one topic at once, each in a process of its own
    schedule_pending   records for tomorrow, as fast as they are taken

A record says when it is due (milliseconds since 1970) and its number, in the first bytes of its value: one
that is early, missing or there twice is found. In one process the sender would hold up the reader, and the
lateness would be that of the load. Every function is bounded in records and in time.
"""

import multiprocessing
import secrets
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import NamedTuple, TypeVar

from penstock.client import ClientError, Endpoint
from penstock.client.connection import BrokerConnection, connect, security_of
from penstock.client.delays import DelayAdmin, LaterRecord
from penstock.client.load import open_connections
from penstock.core.delays import ID_BYTES, choose_ids, slot_at
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest
from penstock.core.protocol.messages.delay_records import DelayRecordsRequest, DelayRecordsRequestRecord
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.records import check_batches, read_records

# When a record is due, and its number; -1: it is not part of the load.
_STAMP = struct.Struct(">qq")
STAMP_BYTES = _STAMP.size
_UNNUMBERED = -1
# Requests whose answers are not there yet.
_AHEAD_MAX = 16
_FETCH_BYTES = 1 << 20
_FETCH_WAIT_MS = 100
_COMMITTED_ONLY = 1
_PROBE_SECONDS = 0.01
_START_SECONDS = 60.0
_GRACE_SECONDS = 30.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DelayLoad:
    """So many records, so many a second, each due `delay_ms` after its turn."""

    records: int
    rate: int = 10_000
    delay_ms: int = 1_000
    value_bytes: int = 100
    partitions: int = 4
    # Of one request.
    batch: int = 100

    @property
    def seconds(self) -> float:
        """From the first turn until the last record is due."""
        return self.records / self.rate + self.delay_ms / 1e3


class DelaysSent(NamedTuple):
    """By how much the last request was behind its turn, and what sending has cost."""

    behind_ms: float
    cpu_ns: int


class DelayArrivals(NamedTuple):
    """How late each record could be read, in milliseconds; negative: too early."""

    lateness_ms: list[float]
    duplicates: int
    cpu_ns: int


class DelayReport(NamedTuple):
    """What came of one load."""

    arrivals: DelayArrivals
    sent: DelaysSent
    # How long the broker left each small request waiting.
    waits_ms: list[float]


def schedule_at_rate(endpoint: Endpoint, topic: str, load: DelayLoad) -> DelaysSent:
    """Schedule the load, from now on."""
    padding = b"x" * max(0, load.value_bytes - STAMP_BYTES)
    behind_ns, cpu_ns, waiting = 0, time.process_time_ns(), 0
    with closing(connect(endpoint)) as connection:
        start_ns = time.time_ns()
        for first in range(0, load.records, load.batch):
            turn_ns = start_ns + first * 1_000_000_000 // load.rate
            now_ns = time.time_ns()
            if now_ns < turn_ns:
                time.sleep((turn_ns - now_ns) / 1e9)
            behind_ns = max(0, now_ns - turn_ns)
            connection.send(_request(topic, load, start_ns, first, padding))
            waiting += 1
            if waiting >= _AHEAD_MAX:
                _check(connection)
                waiting -= 1
        for _ in range(waiting):
            _check(connection)
    return DelaysSent(behind_ns / 1e6, time.process_time_ns() - cpu_ns)


def _request(topic: str, load: DelayLoad, start_ns: int, first: int, padding: bytes) -> DelayRecordsRequest:
    numbers = range(first, min(load.records, first + load.batch))
    dues = [start_ns // 1_000_000 + number * 1_000 // load.rate + load.delay_ms for number in numbers]
    rows = [
        DelayRecordsRequestRecord(
            topic=topic,
            partition=number % load.partitions,
            value=_STAMP.pack(due_ms, number) + padding,
            deliver_at_ms=due_ms,
            id=delay_id,
        )
        for number, due_ms, delay_id in zip(numbers, dues, _ids(len(numbers)), strict=True)
    ]
    return DelayRecordsRequest(records=tuple(rows))


def _ids(count: int) -> tuple[int, ...]:
    return choose_ids(secrets.token_bytes(ID_BYTES * count), slot_at(0, time.time_ns() // 1_000_000))


def schedule_pending(
    endpoint: Endpoint, topic: str, records: int, value_bytes: int, delay_ms: int, batch: int = 1_000
) -> None:
    """Schedule so many records, as fast as they are taken; they are due within an hour after `delay_ms`."""
    value = b"x" * value_bytes
    base_ms = time.time_ns() // 1_000_000 + delay_ms
    waiting = 0
    with closing(connect(endpoint)) as connection:
        for first in range(0, records, batch):
            numbers = range(first, min(records, first + batch))
            rows = [
                DelayRecordsRequestRecord(
                    topic=topic,
                    value=value,
                    deliver_at_ms=base_ms + number * 3_600_000 // records,
                    id=delay_id,
                )
                for number, delay_id in zip(numbers, _ids(len(numbers)), strict=True)
            ]
            connection.send(DelayRecordsRequest(records=tuple(rows)))
            waiting += 1
            if waiting >= 4:
                _check(connection)
                waiting -= 1
        for _ in range(waiting):
            _check(connection)


def _check(connection: BrokerConnection) -> None:
    answer = connection.receive()
    for code in (answer.error_code, *(row.error_code for row in answer.results)):
        if code != ErrorCode.NONE:
            raise ClientError(f"a record was not delayed: error {code}")


def await_due(
    endpoint: Endpoint,
    topic: str,
    partitions: int,
    records: int,
    seconds_max: float,
    clock_ns: Callable[[], int] = time.time_ns,
) -> DelayArrivals:
    """Read from the start of the topic until each of the numbered records was there."""
    offsets = dict.fromkeys(range(partitions), 0)
    seen = bytearray(records)
    lateness: list[float] = []
    duplicates, cpu_ns = 0, time.process_time_ns()
    deadline = time.perf_counter() + seconds_max
    # The first of the versions that it knows is one that names topics.
    with closing(open_connections(endpoint.addresses()[0], 1, security_of(endpoint))[0]) as connection:
        while len(lateness) < records:
            if time.perf_counter() > deadline:
                raise ClientError(
                    f"{topic}: {len(lateness)} of {records} records came in {seconds_max:.0f} s"
                )
            stamps = _fetch(connection, topic, offsets)
            now_ns = clock_ns()
            for due_ms, number in stamps:
                if number == _UNNUMBERED:
                    continue
                if seen[number]:
                    duplicates += 1
                    continue
                seen[number] = 1
                lateness.append(now_ns / 1e6 - due_ms)
    return DelayArrivals(lateness, duplicates, time.process_time_ns() - cpu_ns)


def _fetch(connection: BrokerConnection, topic: str, offsets: dict[int, int]) -> Sequence[tuple[int, int]]:
    """What records at these offsets say; moves the offsets on."""
    asked = tuple(
        FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        for index, offset in offsets.items()
    )
    request = FetchRequest(
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES * len(offsets),
        isolation_level=_COMMITTED_ONLY,
        topics=(FetchRequestTopic(topic=topic, partitions=asked),),
    )
    answer = connection.ask(request)
    stamps: list[tuple[int, int]] = []
    for partition in answer.responses[0].partitions if answer.responses else ():
        if partition.error_code != ErrorCode.NONE:
            raise ClientError(f"{topic}: Fetch failed with error {partition.error_code}")
        content, at = memoryview(partition.records or b""), 0
        for header in check_batches(content, compacted=True):
            batch, at = content[at : at + header.size_bytes], at + header.size_bytes
            offsets[partition.partition_index] = header.next_offset
            if not header.is_control:
                stamps += [_STAMP.unpack_from(record.value or b"") for record in read_records(batch)]
    return stamps


def probe(endpoint: Endpoint, seconds: float, is_over: Callable[[], bool] = bool) -> list[float]:
    """Ask for nothing much every 10 ms; how many ms each answer took, the time in between left out."""
    waits: deque[float] = deque(maxlen=1_000_000)
    deadline = time.perf_counter() + seconds
    with closing(connect(endpoint)) as connection:
        frame = connection.frame(ApiVersionsRequest())
        while time.perf_counter() < deadline and not is_over():
            began = time.perf_counter()
            connection.exchange(frame)
            waits.append((time.perf_counter() - began) * 1e3)
            time.sleep(_PROBE_SECONDS)
    return list(waits)


def warm_up(endpoint: Endpoint, topic: str, load: DelayLoad) -> None:
    """Have a record published to every partition: the first that a cluster ever publishes creates topics."""
    value = _STAMP.pack(0, _UNNUMBERED)
    now_ms = time.time_ns() // 1_000_000
    DelayAdmin(endpoint).schedule(
        [LaterRecord(topic, now_ms, value, partition=index) for index in range(load.partitions)]
    )
    offsets = dict.fromkeys(range(load.partitions), 0)
    deadline = time.perf_counter() + _START_SECONDS
    with closing(open_connections(endpoint.addresses()[0], 1, security_of(endpoint))[0]) as connection:
        while not all(offsets.values()):
            if time.perf_counter() > deadline:
                raise ClientError(f"{topic}: no record was published in {_START_SECONDS:.0f} s")
            _fetch(connection, topic, offsets)


def measure(
    endpoint: Endpoint, topic: str, load: DelayLoad, begin: Callable[[], None] = lambda: None
) -> DelayReport:
    """Put the load on a topic that is empty, read it, and probe, in three processes at once.

    `begin` is called when all of them are ready.
    """
    endpoint = picklable(endpoint)
    warm_up(endpoint, topic, load)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(4)
    seconds_max = load.seconds + _GRACE_SECONDS
    with ProcessPoolExecutor(3, context, _take_part, (start,)) as pool:
        reading = pool.submit(
            _together, await_due, endpoint, topic, load.partitions, load.records, seconds_max
        )
        sending = pool.submit(_together, schedule_at_rate, endpoint, topic, load)
        probing = pool.submit(_together, probe, endpoint, load.seconds)
        start.wait(_START_SECONDS)
        begin()
        return DelayReport(reading.result(), sending.result(), probing.result())


_start: list[Barrier] = []


def _take_part(start: Barrier) -> None:
    _start.append(start)


def _together(work: Callable[..., T], *given: object) -> T:
    """Do the work when the others are ready to do theirs: a process takes a second to start."""
    _start[0].wait(_START_SECONDS)
    return work(*given)


def picklable(endpoint: Endpoint) -> Endpoint:
    """The same endpoint, for another process."""
    return Endpoint(endpoint.bootstrap, dict(endpoint.options))
