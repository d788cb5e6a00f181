"""Load on queues and delays, by our own client on the Kafka port.

fill              publish records, batch by batch, several of them under way
receive_and_ack   workers lease records and acknowledge them, until all are done
delay             records that are published later, so many a second, and how late they are
"""

import asyncio
import struct
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.cli.bench.report import LoadResult
from penstock.client import ClientError
from penstock.client.cluster import (
    ClusterClient,
    ClusterError,
    DelayedPublish,
    LogReader,
    OutgoingRecord,
    Publisher,
    QueueClient,
)

BATCHES_AHEAD = 8
WAIT_MS = 200
EMPTY_MAX = 25
TURN_SECONDS = 0.005
DELAYS_AHEAD = 32
READ_RECORDS_MAX = 5_000
READ_BYTES_MAX = 4 << 20
READ_WAIT_MS = 250
_DUE = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """How many messages of how many bytes, how many at a time, and for how many workers."""

    messages: int
    batch: int = 500
    value_bytes: int = 200
    partitions: int = 2
    workers: int = 4
    seconds_max: float = 60


class _Measured:
    """Times of one run."""

    def __init__(self, seconds_max: float) -> None:
        self.latencies_ns: list[int] = []
        self._cpu = time.process_time_ns()
        self._began = time.perf_counter_ns()
        self._until = self._began + int(seconds_max * 1e9)

    @property
    def is_over(self) -> bool:
        return time.perf_counter_ns() > self._until

    def result(self, messages: int) -> LoadResult:
        elapsed_ns = time.perf_counter_ns() - self._began
        return LoadResult(messages, self.latencies_ns, elapsed_ns, time.process_time_ns() - self._cpu)


def fill(address: tuple[str, int], topic: str, load: QueueLoad) -> LoadResult:
    """Publish, and return when everything is acknowledged."""
    return _run(_fill(address, topic, load))


def receive_and_ack(address: tuple[str, int], topic: str, group: str, load: QueueLoad) -> LoadResult:
    """Receive and acknowledge so many messages; a latency is that of both together."""
    return _run(_receive_and_ack(address, topic, group, load))


def _run(work: Coroutine[Any, Any, LoadResult]) -> LoadResult:
    try:
        return asyncio.run(work)
    except* (ClusterError, ClientError) as failed:
        raise ClientError(str(failed.exceptions[0])) from None


async def _fill(address: tuple[str, int], topic: str, load: QueueLoad) -> LoadResult:
    cluster = ClusterClient([address])
    try:
        publisher = Publisher(cluster)
        await cluster.topic(topic, create=True)
        measured, room = _Measured(load.seconds_max), asyncio.Semaphore(BATCHES_AHEAD)
        sent = 0

        async def publish(records: list[OutgoingRecord]) -> None:
            began = time.perf_counter_ns()
            for result in await publisher.publish(topic, records):
                if isinstance(result, ClusterError):
                    raise result
            measured.latencies_ns.append(time.perf_counter_ns() - began)
            room.release()

        async with asyncio.TaskGroup() as tasks:
            while sent < load.messages and not measured.is_over:
                count = min(load.batch, load.messages - sent)
                partition = sent // load.batch % load.partitions
                records = [OutgoingRecord(None, b"x" * load.value_bytes, partition=partition)] * count
                await room.acquire()
                tasks.create_task(publish(records))
                sent += count
        return measured.result(sent)
    finally:
        await cluster.close()


async def _receive_and_ack(address: tuple[str, int], topic: str, group: str, load: QueueLoad) -> LoadResult:
    cluster = ClusterClient([address])
    try:
        queues, measured = QueueClient(cluster), _Measured(load.seconds_max)
        done = empty = 0

        async def work(consumer: str) -> None:
            nonlocal done, empty
            while done < load.messages and empty < EMPTY_MAX and not measured.is_over:
                began = time.perf_counter_ns()
                got = await queues.receive(group, consumer, [topic], records_max=load.batch, wait_ms=WAIT_MS)
                if not got.records:
                    empty += 1
                    continue
                for error in await queues.ack(group, got.records):
                    if error is not None:
                        raise error
                measured.latencies_ns.append(time.perf_counter_ns() - began)
                done += len(got.records)

        async with asyncio.TaskGroup() as workers:
            for number in range(load.workers):
                workers.create_task(work(f"worker-{number}"))
        return measured.result(done)
    finally:
        await cluster.close()


@dataclass(frozen=True, slots=True)
class DelayLoad:
    """How many messages, how many of them a second, and how much later each is to be published."""

    messages: int
    rate: int = 10_000
    delay_ms: int = 1_000
    value_bytes: int = 100
    seconds_max: float = 60


class DelayResult(NamedTuple):
    """How late each message was when it could be read; one that was early has a negative number."""

    load: LoadResult
    late_ns: list[int]
    # How much the sender was behind its rate at the end.
    sender_late_ns: int


def delay(address: tuple[str, int], topic: str, load: DelayLoad) -> DelayResult:
    """Have messages published later, and read them when they are."""
    found: list[DelayResult] = []

    async def run() -> LoadResult:
        found.append(await _delay(address, topic, load))
        return found[0].load

    _run(run())
    return found[0]


async def _delay(address: tuple[str, int], topic: str, load: DelayLoad) -> DelayResult:
    cluster = ClusterClient([address])
    try:
        await cluster.topic(topic, create=True)
        measured = _Measured(load.seconds_max)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(_read_delayed(LogReader(cluster), topic, load, measured))
            sending = tasks.create_task(_send_delayed(QueueClient(cluster), topic, load, measured))
        late_ns = reading.result()
        return DelayResult(measured.result(len(late_ns)), late_ns, sending.result())
    finally:
        await cluster.close()


async def _send_delayed(queues: QueueClient, topic: str, load: DelayLoad, measured: _Measured) -> int:
    """Send at the rate; returns how late the last message was sent."""
    room, began, sent = asyncio.Semaphore(DELAYS_AHEAD), time.perf_counter_ns(), 0
    padding = bytes(max(0, load.value_bytes - _DUE.size))

    async def send(count: int) -> None:
        due_ms = time.time_ns() // 1_000_000 + load.delay_ms
        value = _DUE.pack(due_ms) + padding
        asked_at = time.perf_counter_ns()
        for outcome in await queues.delay([DelayedPublish(topic, None, value, due_ms, partition=0)] * count):
            if isinstance(outcome, ClusterError):
                raise outcome
        measured.latencies_ns.append(time.perf_counter_ns() - asked_at)
        room.release()

    async with asyncio.TaskGroup() as tasks:
        while sent < load.messages and not measured.is_over:
            due = min(load.messages, (time.perf_counter_ns() - began) * load.rate // 1_000_000_000 + 1)
            if due > sent:
                await room.acquire()
                tasks.create_task(send(due - sent))
                sent = due
            await asyncio.sleep(TURN_SECONDS)
    return max(0, time.perf_counter_ns() - began - load.messages * 1_000_000_000 // load.rate)


async def _read_delayed(reader: LogReader, topic: str, load: DelayLoad, measured: _Measured) -> list[int]:
    late_ns: list[int] = []
    offset = 0
    while len(late_ns) < load.messages and not measured.is_over:
        read = await reader.read(
            topic, 0, offset, count=READ_RECORDS_MAX, bytes_max=READ_BYTES_MAX, wait_ms=READ_WAIT_MS
        )
        now_ns = time.time_ns()
        for record in read.records:
            assert record.value is not None
            late_ns.append(now_ns - _DUE.unpack_from(record.value)[0] * 1_000_000)
        offset = read.next_offset
    return late_ns
