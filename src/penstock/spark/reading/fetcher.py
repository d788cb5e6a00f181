"""A span as a run of Fetch responses.

While the caller decodes one response, the broker prepares the next: the request for it is sent
as soon as the headers of the batches say where it starts.

`RetryPolicy` decides what happens when a read makes no progress. A broker that is away or busy gets
the whole of `timeout_ms`. A log that seems to be gone or too short gets a few seconds, for that can be
the view of a broker that has just become leader. Any other error is final.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.client import ClientError, Disconnected, Endpoint
from penstock.client.connection import BrokerAddress, BrokerConnection
from penstock.client.connection_security import ConnectionSecurity
from penstock.core.model import MILLISECOND
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
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.core.records import HEADER_BYTES, BatchHeader, CorruptBatch, read_header
from penstock.runtime.loop import MachineClock
from penstock.spark.errors import DataLost, PipelineError
from penstock.spark.reading.spans import MIB, OffsetRange, ReaderOptions

SETTLE_MS = 5_000
_PAUSE_SECONDS_MIN = 0.05
# Asking twice a second costs nobody much, and a new leader is found at most so late.
_PAUSE_SECONDS_MAX = 0.5
_MISSING = frozenset({
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip
_BUSY = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR})
_EARLIEST = -2
_LATEST = -1
_CONSUMER = -1
_TOPIC_IDS_FROM = 13
# The first request is small: the length of the records is not known yet.
_FIRST_BYTES = MIB
_SPARE_BYTES = 64 << 10
_BATCH_BYTES_MAX = 256 * MIB


class BrokerError(Exception):
    """A partition cannot be asked about now; `code` says why."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class LeaderConnection:
    """Where a partition is served, and which topic of that name it belongs to."""

    connection: BrokerConnection
    topic_id: UUID


class BrokerDirectory:
    """The brokers and leaders that the last Metadata response named."""

    def __init__(
        self, bootstrap: str, options: ReaderOptions, security: ConnectionSecurity | None = None
    ) -> None:
        self._bootstrap = Endpoint(bootstrap).addresses()
        self._options = options
        self._security = security
        self._connections: dict[BrokerAddress, BrokerConnection] = {}
        self._leaders: dict[tuple[str, int], LeaderConnection] = {}
        # The bootstrap addresses may be those of a broker that is away.
        self._seen: dict[BrokerAddress, None] = {}

    def close(self) -> None:
        """Close all connections, and forget who leads what, but not where brokers are."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()

    def leader(self, topic: str, partition: int) -> LeaderConnection:
        """The leader of a partition; BrokerError or Disconnected where there is none."""
        found = self._leaders.get((topic, partition))
        if found is not None and found.connection.is_waiting:
            # A reader stopped half way: the response does not belong to the next request.
            self.close()
            found = None
        if found is None:
            found = self._leaders[topic, partition] = self._find(topic, partition)
        return found

    def _find(self, topic: str, partition: int) -> LeaderConnection:
        answer = self._metadata(topic)
        (about,) = answer.topics
        if about.error_code != ErrorCode.NONE:
            raise BrokerError(about.error_code)
        for one in about.partitions:
            if one.partition_index == partition:
                break
        else:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._seen = dict.fromkeys(addresses.values())
        address = addresses.get(one.leader_id)
        if address is None:
            raise BrokerError(one.error_code or ErrorCode.LEADER_NOT_AVAILABLE)
        return LeaderConnection(self._connect(address), about.topic_id)

    def _metadata(self, topic: str) -> MetadataResponse:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        failure: Disconnected | None = None
        for address in dict.fromkeys((*self._connections, *self._bootstrap, *self._seen)):
            try:
                answer: MetadataResponse = self._connect(address).ask(request)
            except Disconnected as error:
                failure = error
                self._drop(address)
            else:
                return answer
        raise failure or Disconnected("no bootstrap address was given")

    def _connect(self, address: BrokerAddress) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = BrokerConnection(
                address,
                client_id=self._options.client_id,
                request_seconds=self._options.request_ms / 1000,
                security=self._security,
            )
            self._connections[address] = connection
        return connection

    def _drop(self, address: BrokerAddress) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


class RetryPolicy:
    """Counts the time since a span last made progress."""

    def __init__(self, span: OffsetRange, timeout_ms: int, settle_ms: int = SETTLE_MS) -> None:
        self._span = span
        self._timeout_ms = timeout_ms
        self._settle_ms = min(settle_ms, timeout_ms)
        self._clock = MachineClock()
        self.passed()

    def passed(self) -> None:
        """The span made progress: the clock starts anew."""
        self._since = self._clock.now()
        self._short_since: int | None = None
        self._pause_seconds = _PAUSE_SECONDS_MIN

    def away(self, position: int, reason: str) -> None:
        """The broker cannot serve now: wait a little, or give up."""
        self._short_since = None
        waited_ms = (self._clock.now() - self._since) // MILLISECOND
        if waited_ms >= self._timeout_ms:
            raise PipelineError(
                f"{self._span}: no progress at offset {position} for {waited_ms / 1000:.0f} s: {reason}"
            )
        self._pause()

    def refused(self, position: int, code: int) -> None:
        """The broker returned an error code."""
        known = code in ErrorCode._value2member_map_
        name = ErrorCode(code).name if known else f"error {code}"
        if code in _MISSING:
            self.short(position)
        elif code in _BUSY or (known and ErrorCode(code).retriable):
            self.away(position, name)
        else:
            raise PipelineError(f"{self._span}: reading at offset {position} failed: {name}")

    def short(self, position: int) -> None:
        """The log is gone or ends before the span does: wait a little, or call the rest lost."""
        now = self._clock.now()
        if self._short_since is None:
            self._short_since = now
        if now - self._short_since >= self._settle_ms * MILLISECOND:
            raise self.lost(position, self._span.end)
        self._pause()

    def lost(self, start: int, end: int) -> DataLost:
        return DataLost(self._span.topic, self._span.partition, start, min(end, self._span.end))

    def _pause(self) -> None:
        time.sleep(self._pause_seconds)
        self._pause_seconds = min(2 * self._pause_seconds, _PAUSE_SECONDS_MAX)


class FetchedBatches(NamedTuple):
    """Whole batches from one response; `records` is valid until the next one is requested."""

    position: int
    records: memoryview
    headers: list[BatchHeader]
    aborted: tuple[FetchResponseAbortedTransaction, ...]


class OffsetRangeFetcher:
    """Reads one span."""

    def __init__(self, cluster: BrokerDirectory, span: OffsetRange, options: ReaderOptions) -> None:
        self._cluster = cluster
        self._span = span
        self._options = options
        self._trouble = RetryPolicy(span, options.timeout_ms)
        self._position = span.start
        self._bytes = min(_FIRST_BYTES, options.fetch_bytes_max)
        self._topic_id: UUID | None = None
        self._ahead: LeaderConnection | None = None
        self._nothing_seen = 0

    def answers(self) -> Iterator[FetchedBatches]:
        """Responses in order, until the span is covered."""
        while self._position < self._span.end:
            fetched = self._next()
            if fetched is not None:
                yield fetched

    def _next(self) -> FetchedBatches | None:
        try:
            partition = self._ask()
            if partition is None:
                return None
            if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._find_out_what_is_lost()
                return None
            if partition.error_code != ErrorCode.NONE:
                raise BrokerError(partition.error_code)
            return self._take(partition)
        except Disconnected as error:
            self._start_over()
            self._trouble.away(self._position, str(error))
        except BrokerError as error:
            self._start_over()
            self._trouble.refused(self._position, error.code)
        except ClientError as error:
            # Another try would be refused as well.
            raise PipelineError(f"{self._span}: {error}") from None
        return None

    def _start_over(self) -> None:
        self._ahead = None
        self._cluster.close()

    def _take(self, partition: FetchResponsePartition) -> FetchedBatches | None:
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
        return FetchedBatches(position, records, headers, partition.aborted_transactions or ())

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
        """The response for the current position; None where the broker throttles."""
        leader, self._ahead = self._ahead, None
        if leader is None:
            leader = self._leader()
            self._send(leader)
        answer: FetchResponse = leader.connection.receive()
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code)
        for topic in answer.responses:
            for partition in topic.partitions:
                return partition
        self._trouble.away(self._position, f"throttled for {answer.throttle_time_ms} ms")
        return None

    def _leader(self) -> LeaderConnection:
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
            # What was received is good; the next request will find out about this.
            self._cluster.close()
        else:
            self._ahead = leader

    def _send(self, leader: LeaderConnection) -> None:
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
            # The broker's responses contradict each other: a retry may settle it.
            self._trouble.away(self._position, "the offset is out of range, though the log holds it")

    def _listed(self, leader: LeaderConnection, timestamp: int) -> int:
        partition = ListOffsetsRequestPartition(partition_index=self._span.partition, timestamp=timestamp)
        topic = ListOffsetsRequestTopic(name=self._span.topic, partitions=(partition,))
        answer = leader.connection.ask(ListOffsetsRequest(replica_id=_CONSUMER, topics=(topic,)))
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise BrokerError(found.error_code)
        return int(found.offset)
