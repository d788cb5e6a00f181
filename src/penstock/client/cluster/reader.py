"""`LogReader`: records of a partition by offset, without a group.

A read is one Fetch to the leader, on a connection of its own if it waits. Compressed batches are
unpacked; control batches, and with `is_committed` records of aborted transactions, are skipped, so that
a read may bring no records and yet a larger `next_offset`.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from penstock.client.backoff import Backoff
from penstock.client.cluster.client import (
    LEADER_CHANGES,
    REQUEST_SECONDS,
    ClusterClient,
)
from penstock.client.cluster.errors import ClusterError, QuotaExceeded, known_code
from penstock.client.visible_batches import shown_batches
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from penstock.core.records import HEADER_BYTES, BatchHeader, CorruptBatch, Record, read_header, read_records

LATEST, EARLIEST = -1, -2
COMMITTED, UNCOMMITTED = 1, 0
_OFFSET_END = 2**63 - 1


class ReadRecords(NamedTuple):
    """Records, where to go on, and the ends of the log as the leader has them."""

    records: list[Record]
    next_offset: int
    high_watermark: int
    log_start: int


class LogReader:
    """Reads for any number of callers of one event loop."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def read(  # noqa: PLR0913 - what a Fetch can be told
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        count: int = 500,
        bytes_max: int = 1 << 20,
        wait_ms: int = 0,
        is_committed: bool = True,
    ) -> ReadRecords:
        """Up to `count` records from `offset` on; waits up to `wait_ms` for the first one.

        At least one batch is read, however large. ClusterError OFFSET_OUT_OF_RANGE if the log does not
        reach there, QuotaExceeded if the caller has to wait.
        """
        place = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=bytes_max,
            isolation_level=COMMITTED if is_committed else UNCOMMITTED,
            topics=(FetchRequestTopic(topic=topic, partitions=(place,)),),
        )
        answer = await self._cluster.ask_leader(
            topic, partition, request, seconds=REQUEST_SECONDS + wait_ms / 1_000, waits=wait_ms > 0
        )
        assert isinstance(answer, FetchResponse)
        if answer.error_code != ErrorCode.NONE:
            raise ClusterError(answer.error_code)
        if not answer.responses:
            # Whoever is over its quota gets no records (KIP-219).
            raise QuotaExceeded(max(1, math.ceil(answer.throttle_time_ms / 1_000)))
        row = answer.responses[0].partitions[0]
        if row.error_code != ErrorCode.NONE:
            raise _refused(topic, partition, offset, row.error_code)
        try:
            return _read(row, offset, count, is_committed)
        except CorruptBatch as broken:
            raise ClusterError(ErrorCode.CORRUPT_MESSAGE, f"{topic}/{partition}: {broken}") from None

    async def read_on(
        self, topic: str, partition: int, offset: int, *, reset: int = EARLIEST, **limits: Any
    ) -> ReadRecords:
        """`read`, for a consumer: where the log does not reach its position, it goes on at `reset`.

        That is its start or its end, as `auto.offset.reset` of Kafka's consumers says. Retention may have
        passed the position, or the log may have lost it.
        """
        try:
            return await self.read(topic, partition, offset, **limits)
        except ClusterError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        start = await self.offset_at(topic, partition, reset)
        return await self.read(topic, partition, start, **limits)

    async def first_ready(
        self, positions: Mapping[tuple[str, int], int], wait_ms: int
    ) -> tuple[str, int] | None:
        """Wait until one of these partitions has something at its position; None if nothing comes.

        One request to each leader waits. What is there may turn out to be no records (of transactions that
        were aborted), or an error: whoever reads there learns it.
        """
        backoff, loop = Backoff(50), asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1_000
        while (left_ms := int((until - loop.time()) * 1_000)) > 0:
            try:
                return await self._wait_once(positions, left_ms)
            except ClusterError as error:
                if not error.is_retriable or self._cluster.is_closed:
                    raise
            for topic, _ in positions:
                self._cluster.forget_topic(topic)
            await asyncio.sleep(backoff.next_seconds())
        return None

    async def _wait_once(
        self, positions: Mapping[tuple[str, int], int], wait_ms: int
    ) -> tuple[str, int] | None:
        by_leader: dict[int, list[tuple[str, int]]] = {}
        for place in positions:
            by_leader.setdefault(await self._cluster.leader(*place), []).append(place)
        loop = asyncio.get_running_loop()
        left = {
            loop.create_task(self._wait_at(node, {place: positions[place] for place in places}, wait_ms))
            for node, places in by_leader.items()
        }
        waiting = list(left)
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (ready := task.result()) is not None:
                        return ready
            return None
        finally:
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)

    async def _wait_at(
        self, node: int, positions: Mapping[tuple[str, int], int], wait_ms: int
    ) -> tuple[str, int] | None:
        topics: dict[str, list[FetchRequestPartition]] = {}
        for (topic, partition), offset in positions.items():
            row = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1)
            topics.setdefault(topic, []).append(row)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1,
            isolation_level=COMMITTED,
            topics=tuple(
                FetchRequestTopic(topic=name, partitions=tuple(rows)) for name, rows in topics.items()
            ),
        )
        seconds = REQUEST_SECONDS + wait_ms / 1_000
        answer = await self._cluster.ask(request, node=node, seconds=seconds, waits=True)
        if answer.error_code != ErrorCode.NONE:
            raise ClusterError(answer.error_code)
        for found in answer.responses:
            for row in found.partitions:
                if row.error_code in LEADER_CHANGES:
                    raise ClusterError(row.error_code)
                if row.error_code != ErrorCode.NONE or row.records:
                    return found.topic, row.partition_index
        if not answer.responses:
            await asyncio.sleep(min(wait_ms, answer.throttle_time_ms) / 1_000)
        return None

    async def read_one(self, topic: str, partition: int, offset: int) -> Record | None:
        """The record at an offset; None if there is none (any more, or yet), or it was aborted."""
        try:
            found = await self.read(topic, partition, offset, count=1, bytes_max=1)
        except ClusterError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return None
            raise
        return found.records[0] if found.records and found.records[0].offset == offset else None

    async def offsets(self, topic: str, partition: int, *, is_committed: bool = True) -> tuple[int, int]:
        """Where the log starts, and its end for a reader."""
        start = await self.offset_at(topic, partition, EARLIEST, is_committed=is_committed)
        return start, await self.offset_at(topic, partition, LATEST, is_committed=is_committed)

    async def offset_at(
        self, topic: str, partition: int, timestamp_ms: int, *, is_committed: bool = True
    ) -> int:
        """The first offset at or after a time (or EARLIEST, LATEST); -1 if there is none."""
        row = ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp_ms)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=COMMITTED if is_committed else UNCOMMITTED,
            topics=(ListOffsetsRequestTopic(name=topic, partitions=(row,)),),
        )
        answer = await self._cluster.ask_leader(topic, partition, request)
        assert isinstance(answer, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise _refused(topic, partition, timestamp_ms, found.error_code)
        return found.offset


def _refused(topic: str, partition: int, offset: int, code: int) -> ClusterError:
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return ClusterError(code, f"offset {offset} is not in partition {partition} of {topic}")
    return ClusterError(code, f"{topic}/{partition}: {known_code(code).name.lower().replace('_', ' ')}")


def _read(row: FetchResponsePartition, offset: int, count: int, is_committed: bool) -> ReadRecords:
    octets = row.records if isinstance(row.records, memoryview) else memoryview(b"")
    headers = list(_whole_headers(octets))
    aborted = (row.aborted_transactions or ()) if is_committed else ()
    records: list[Record] = []
    for _, batch in shown_batches(octets, headers, aborted, _OFFSET_END):
        for record in read_records(batch):
            if record.offset < offset:
                continue
            if len(records) == count:
                return _result(row, records, record.offset)
            records.append(record)
    return _result(row, records, max(offset, headers[-1].next_offset) if headers else offset)


def _whole_headers(octets: memoryview) -> Iterator[BatchHeader]:
    """The headers of the batches that came whole; the last one is often cut off."""
    start, end = 0, len(octets)
    while end - start >= HEADER_BYTES:
        header = read_header(octets, start)
        start += header.size_bytes
        if start > end:
            return
        yield header


def _result(row: FetchResponsePartition, records: list[Record], next_offset: int) -> ReadRecords:
    return ReadRecords(records, next_offset, row.high_watermark, row.log_start_offset)
