"""Load on queues, by our own client on the Kafka port.

fill              publish records, batch by batch, several of them under way
receive_and_ack   workers lease records and acknowledge them, until all are done
"""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from penstock.cli.bench.report import LoadResult
from penstock.client import ClientError, Endpoint
from penstock.client.cluster import (
    ClusterClient,
    ClusterError,
    OutgoingRecord,
    Publisher,
    QueueClient,
    cluster_security,
)

BATCHES_AHEAD = 8
WAIT_MS = 200
EMPTY_MAX = 25


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


def fill(endpoint: Endpoint, topic: str, load: QueueLoad) -> LoadResult:
    """Publish, and return when everything is acknowledged."""
    return _run(_fill(endpoint, topic, load))


def receive_and_ack(endpoint: Endpoint, topic: str, group: str, load: QueueLoad) -> LoadResult:
    """Receive and acknowledge so many messages; a latency is that of both together."""
    return _run(_receive_and_ack(endpoint, topic, group, load))


def _run(work: Coroutine[Any, Any, LoadResult]) -> LoadResult:
    try:
        return asyncio.run(work)
    except* (ClusterError, ClientError) as failed:
        raise ClientError(str(failed.exceptions[0])) from None


async def _fill(endpoint: Endpoint, topic: str, load: QueueLoad) -> LoadResult:
    cluster = ClusterClient(endpoint.addresses(), security=cluster_security(endpoint))
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


async def _receive_and_ack(endpoint: Endpoint, topic: str, group: str, load: QueueLoad) -> LoadResult:
    cluster = ClusterClient(endpoint.addresses(), security=cluster_security(endpoint))
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
