"""A span as a run of Fetch answers.

While the caller takes one answer apart, the broker prepares the next: the question for it is sent
as soon as the headers of the batches say where it starts.
"""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from penstock.client import Disconnected
from penstock.core.protocol import ZERO_UUID, ErrorCode
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponsePartition,
)
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from penstock.core.records import HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.reading.cluster import Cluster, Leader, Unavailable
from penstock.pipeline.reading.options import MIB, ReaderOptions
from penstock.pipeline.reading.spans import Span
from penstock.pipeline.reading.trouble import Trouble

_EARLIEST = -2
_LATEST = -1
_CONSUMER = -1
_TOPIC_IDS_FROM = 13
# A first question is modest: nobody knows yet how long the records are.
_FIRST_BYTES = MIB
_SPARE_BYTES = 64 << 10
_BATCH_BYTES_MAX = 256 * MIB


class Fetched(NamedTuple):
    """Whole batches from one answer; `records` is valid until the next one is asked for."""

    position: int
    records: memoryview
    headers: list[BatchHeader]
    aborted: tuple[FetchResponseAbortedTransaction, ...]


class SpanFetch:
    """Reads one span."""

    def __init__(self, cluster: Cluster, span: Span, options: ReaderOptions) -> None:
        self._cluster = cluster
        self._span = span
        self._options = options
        self._trouble = Trouble(span, options.timeout_ms)
        self._position = span.start
        self._bytes = min(_FIRST_BYTES, options.fetch_bytes_max)
        self._topic_id: UUID | None = None
        self._ahead: Leader | None = None
        self._nothing_seen = 0

    def answers(self) -> Iterator[Fetched]:
        """Answers in order, until the span is covered."""
        while self._position < self._span.end:
            fetched = self._next()
            if fetched is not None:
                yield fetched

    def _next(self) -> Fetched | None:
        try:
            partition = self._ask()
            if partition is None:
                return None
            if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._find_out_what_is_lost()
                return None
            if partition.error_code != ErrorCode.NONE:
                raise Unavailable(partition.error_code)
            return self._take(partition)
        except Disconnected as error:
            self._start_over()
            self._trouble.away(self._position, str(error))
        except Unavailable as error:
            self._start_over()
            self._trouble.refused(self._position, error.code)
        return None

    def _start_over(self) -> None:
        self._ahead = None
        self._cluster.close()

    def _take(self, partition: FetchResponsePartition) -> Fetched | None:
        position = self._position
        records = partition.records if isinstance(partition.records, memoryview) else memoryview(b"")
        headers = self._headers(records)
        if not headers:
            self._nothing_came(partition, len(records))
            return None
        self._trouble.passed()
        self._nothing_seen = 0
        self._position = headers[-1].next_offset
        if self._position < self._span.end:
            self._look_ahead(len(records), self._position - position)
        return Fetched(position, records, headers, partition.aborted_transactions or ())

    def _headers(self, records: memoryview) -> list[BatchHeader]:
        """The headers of the batches that came whole; the last one is often cut off."""
        headers: list[BatchHeader] = []
        start, end = 0, len(records)
        following = self._position
        try:
            while end - start >= HEADER_BYTES:
                header = read_header(records, start)
                start += header.size_bytes
                if start > end:
                    break
                if header.base_offset < following and (headers or header.next_offset <= following):
                    raise CorruptBatch(f"the batch at offset {header.base_offset} comes after {following}")
                following = header.next_offset
                headers.append(header)
        except CorruptBatch as broken:
            raise PipelineError(f"{self._span}: no record batch after offset {following}: {broken}") from None
        return headers

    def _nothing_came(self, partition: FetchResponsePartition, received_bytes: int) -> None:
        if received_bytes:
            # Brokers send a first batch whole however large; this one did not.
            if self._bytes >= _BATCH_BYTES_MAX:
                raise PipelineError(f"{self._span}: the batch at offset {self._position} is too large")
            self._bytes *= 2
            return
        stable = partition.last_stable_offset if self._options.committed_only else partition.high_watermark
        if partition.high_watermark < self._span.end:
            self._trouble.short(self._position)
        elif 0 <= stable < self._span.end:
            self._trouble.away(self._position, f"a transaction that began at or before {stable} is open")
        elif self._nothing_seen:
            # The log goes on behind the span, and twice it had nothing to show up to there:
            # the last records of the span fell to compaction.
            self._position = self._span.end
        else:
            self._nothing_seen += 1

    def _ask(self) -> FetchResponsePartition | None:
        """The answer for where the span stands; None where the broker asks for patience."""
        leader, self._ahead = self._ahead, None
        if leader is None:
            leader = self._leader()
            self._send(leader)
        answer: FetchResponse = leader.connection.receive()
        if answer.error_code != ErrorCode.NONE:
            raise Unavailable(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                return partition
        self._trouble.away(self._position, f"throttled for {answer.throttle_time_ms} ms")
        return None

    def _leader(self) -> Leader:
        leader = self._cluster.leader(self._span.topic, self._span.partition)
        if self._topic_id is None:
            self._topic_id = leader.topic_id
        elif self._topic_id != leader.topic_id:
            # A topic of the same name, whose offsets mean other records.
            raise self._trouble.lost(self._position, self._span.end)
        return leader

    def _look_ahead(self, received_bytes: int, offsets: int) -> None:
        """Ask for as much as the rest of the span will take, judging by what came."""
        wanted = (self._span.end - self._position) * received_bytes // max(offsets, 1) + _SPARE_BYTES
        self._bytes = min(max(wanted, _SPARE_BYTES), self._options.fetch_bytes_max)
        leader = self._leader()
        try:
            self._send(leader)
        except Disconnected:
            # What came already is good; the next question will find out about this.
            self._cluster.close()
        else:
            self._ahead = leader

    def _send(self, leader: Leader) -> None:
        options = self._options
        version = leader.connection.version(FetchRequest)
        if leader.topic_id == ZERO_UUID:
            version = min(version, _TOPIC_IDS_FROM - 1)
        partition = FetchRequestPartition(
            partition=self._span.partition, fetch_offset=self._position, partition_max_bytes=self._bytes
        )
        topic = FetchRequestTopic(topic_id=leader.topic_id, topic=self._span.topic, partitions=(partition,))
        request = FetchRequest(
            max_wait_ms=options.wait_ms,
            min_bytes=1,
            max_bytes=max(self._bytes, options.fetch_bytes_max),
            isolation_level=int(options.committed_only),
            topics=(topic,),
        )
        leader.connection.send(request, version)

    def _find_out_what_is_lost(self) -> None:
        leader = self._leader()
        start, end = (self._listed(leader, timestamp) for timestamp in (_EARLIEST, _LATEST))
        if self._position < start:
            raise self._trouble.lost(self._position, start)
        self._start_over()
        if self._position > end:
            self._trouble.short(self._position)
        else:
            # The one who answered does not agree with itself: a moment later it may.
            self._trouble.away(self._position, "the offset is out of range, though the log holds it")

    def _listed(self, leader: Leader, timestamp: int) -> int:
        partition = ListOffsetsRequestPartition(partition_index=self._span.partition, timestamp=timestamp)
        topic = ListOffsetsRequestTopic(name=self._span.topic, partitions=(partition,))
        answer = leader.connection.ask(ListOffsetsRequest(replica_id=_CONSUMER, topics=(topic,)))
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise Unavailable(found.error_code)
        return int(found.offset)
