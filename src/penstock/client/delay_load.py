"""Delayed records at a rate: scheduled, read as they are published, and how late each of them was.

    schedule_at_rate   so many records a second, each due some time after it was sent
    await_due          reads what is committed, and compares the clock with what each record says
    probe              small requests all the time: how long the broker leaves one waiting
    measure            all three against one topic, each in a process of its own

A record says when it is due (milliseconds since 1970) and its number, in the first bytes of its value: one
that is early, missing or there twice is found. Every function is bounded in records and in time.
"""

import multiprocessing
import secrets
import struct
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.connection import BrokerConnection, connect
from penstock.client.delays import DelayAdmin, LaterRecord
from penstock.client.endpoint import ClientError, Endpoint
from penstock.client.load import open_connections
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.api_versions import ApiVersionsRequest
from penstock.core.protocol.messages.delay_records import DelayRecordsRequest, DelayRecordsRequestRecord
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.records import check_batches, read_records

# When a record is due, and its number.
_STAMP = struct.Struct(">qq")
# Requests whose answers are not there yet.
_AHEAD_MAX = 16
_FETCH_BYTES = 1 << 20
_FETCH_WAIT_MS = 100
_COMMITTED_ONLY = 1
_PROBE_SECONDS = 0.01
_GRACE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class DelayLoad:
    """So many records a second for so long, each due `delay_ms` after its turn."""

    rate: int
    seconds: float
    delay_ms: int = 2_000
    value_bytes: int = 100
    partitions: int = 4
    # Of one request.
    batch: int = 100

    @property
    def records(self) -> int:
        return int(self.rate * self.seconds) // self.batch * self.batch


class DelayArrivals(NamedTuple):
    """How late each record could be read, in milliseconds; negative: too early."""

    lateness_ms: list[float]
    duplicates: int


class DelayReport(NamedTuple):
    """What came of one load."""

    arrivals: DelayArrivals
    # By how much the last record was sent behind its turn.
    behind_ms: float
    # How long the broker left each small request waiting.
    waits_ms: list[float]


def schedule_at_rate(endpoint: Endpoint, topic: str, load: DelayLoad, start_ns: int) -> float:
    """Schedule the load from this time on (ns since 1970); by how many ms its last request was behind."""
    padding = b"x" * max(0, load.value_bytes - _STAMP.size)
    behind_ns = ahead = 0
    with closing(connect(endpoint)) as connection:
        for first in range(0, load.records, load.batch):
            turn_ns = start_ns + first * 1_000_000_000 // load.rate
            now_ns = time.time_ns()
            if now_ns < turn_ns:
                time.sleep((turn_ns - now_ns) / 1e9)
            behind_ns = max(0, now_ns - turn_ns)
            connection.send(DelayRecordsRequest(records=_rows(topic, load, start_ns, first, padding)))
            ahead += 1
            if ahead >= _AHEAD_MAX:
                _check(connection)
                ahead -= 1
        for _ in range(ahead):
            _check(connection)
    return behind_ns / 1e6


def _rows(
    topic: str, load: DelayLoad, start_ns: int, first: int, padding: bytes
) -> tuple[DelayRecordsRequestRecord, ...]:
    rows = []
    for number in range(first, first + load.batch):
        deliver_at_ms = start_ns // 1_000_000 + number * 1_000 // load.rate + load.delay_ms
        rows.append(
            DelayRecordsRequestRecord(
                topic=topic,
                partition=number % load.partitions,
                value=_STAMP.pack(deliver_at_ms, number) + padding,
                deliver_at_ms=deliver_at_ms,
                id=secrets.randbits(63),
            )
        )
    return tuple(rows)


def schedule_pending(
    endpoint: Endpoint, topic: str, records: int, value_bytes: int, delay_ms: int, batch: int = 1_000
) -> None:
    """Schedule so many records, as fast as they are taken; they are due within an hour after `delay_ms`."""
    value = b"x" * value_bytes
    base_ms = time.time_ns() // 1_000_000 + delay_ms
    ahead = 0
    with closing(connect(endpoint)) as connection:
        for first in range(0, records, batch):
            rows = tuple(
                DelayRecordsRequestRecord(
                    topic=topic,
                    value=value,
                    deliver_at_ms=base_ms + number * 3_600_000 // records,
                    id=secrets.randbits(63),
                )
                for number in range(first, min(records, first + batch))
            )
            connection.send(DelayRecordsRequest(records=rows))
            ahead += 1
            if ahead >= 4:
                _check(connection)
                ahead -= 1
        for _ in range(ahead):
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
    duplicates = 0
    deadline = time.perf_counter() + seconds_max
    # The first of the versions that it knows is one that names topics.
    with closing(open_connections(endpoint.addresses()[0], 1)[0]) as connection:
        while len(lateness) < records:
            if time.perf_counter() > deadline:
                raise ClientError(
                    f"{topic}: {len(lateness)} of {records} records came in {seconds_max:.0f} s"
                )
            answer = connection.ask(_fetch(topic, offsets))
            now_ns = clock_ns()
            for partition in answer.responses[0].partitions if answer.responses else ():
                if partition.error_code != ErrorCode.NONE:
                    raise ClientError(f"{topic}: Fetch failed with error {partition.error_code}")
                content, at = memoryview(partition.records or b""), 0
                for header in check_batches(content, compacted=True):
                    batch, at = content[at : at + header.size_bytes], at + header.size_bytes
                    offsets[partition.partition_index] = header.next_offset
                    for record in () if header.is_control else read_records(batch):
                        due_ms, number = _STAMP.unpack_from(record.value or b"")
                        if seen[number]:
                            duplicates += 1
                            continue
                        seen[number] = 1
                        lateness.append(now_ns / 1e6 - due_ms)
    return DelayArrivals(lateness, duplicates)


def _fetch(topic: str, offsets: dict[int, int]) -> FetchRequest:
    asked = tuple(
        FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        for index, offset in offsets.items()
    )
    return FetchRequest(
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES * len(offsets),
        isolation_level=_COMMITTED_ONLY,
        topics=(FetchRequestTopic(topic=topic, partitions=asked),),
    )


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


def measure(endpoint: Endpoint, topic: str, load: DelayLoad, lead_seconds: float = 2.0) -> DelayReport:
    """Put the load on a topic that is empty, read it, and probe, in three processes at once."""
    endpoint = picklable(endpoint)
    # The first delay that a cluster gets creates topics.
    admin = DelayAdmin(endpoint)
    admin.cancel(admin.schedule([LaterRecord(topic, time.time_ns() // 1_000_000 + 3_600_000, None)]))
    start_ns = time.time_ns() + int(lead_seconds * 1e9)
    whole_seconds = lead_seconds + load.seconds + load.delay_ms / 1e3
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        reading = pool.submit(
            await_due, endpoint, topic, load.partitions, load.records, whole_seconds + _GRACE_SECONDS
        )
        sending = pool.submit(schedule_at_rate, endpoint, topic, load, start_ns)
        probing = pool.submit(probe, endpoint, whole_seconds)
        behind_ms = sending.result()
        return DelayReport(reading.result(), behind_ms, probing.result())


def picklable(endpoint: Endpoint) -> Endpoint:
    """The same endpoint, for another process."""
    return Endpoint(endpoint.bootstrap, dict(endpoint.options))
