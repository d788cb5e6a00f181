"""`Publisher`: records to topics, many callers sharing few requests.

    publish ── partition of each record ── queue of the partition ─┐  what came in one turn of the loop,
                                                                   │  or while the last batch was under
    results ◄── offsets ◄── response ◄── one request per leader ◄──┘  way, is one batch

One batch per partition is under way at a time. That keeps the order, and makes the rest simple: a
batch has a producer id and a sequence, and is sent again, the same bytes, until the leader says what
became of it; a leader that has it already says so. Only two things end that:

* time is over, and whether the records were stored is not known: an error that says so. The partition
  goes on under a new producer id, and those records are never sent again.
* the leader does not know the producer any more (its state expired, the topic was made anew). If no
  earlier try may have stored the batch, it is sent again under a new id; else it is the error above.

A partition's batches with acks=1 overtake those with acks=-1, so each kind has sequences of its own,
under a producer id of its own. With acks=0 there are none: nobody says what became of the batch.

A batch that is too large for its topic is halved until the record that is too large stands alone; that
one fails, and its neighbours do not. Buffered records are bounded, and what does not fit is refused.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias

from penstock.client.backoff import Backoff
from penstock.client.cluster.client import LEADER_CHANGES, ClusterClient, ClusterTopic
from penstock.client.cluster.errors import (
    NOT_BELIEVED,
    ClusterError,
    ConnectionLost,
    expect,
    known_code,
)
from penstock.client.cluster.pipeline import RequestPipeline
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from penstock.core.records.batch import SEQUENCES, CompressionType
from penstock.core.records.builder import UnplacedRecord, build_batch, pack_headers
from penstock.core.records.partitioner import murmur2
from penstock.core.records.record import Headers

BUFFER_BYTES = 64 << 20
# Below this, topics that are gone are not looked for.
QUEUES_MIN = 256
# Below Kafka's default for max.message.bytes, with room for what a record needs beside key and value.
BATCH_BYTES = 900_000
REQUEST_BYTES = 8 << 20
DELIVERY_SECONDS = 30.0
# How long a leader may wait for the other replicas, and how long we wait for the leader.
REPLICAS_MS = 10_000
RESPONSE_SECONDS = 15.0
RECORD_OVERHEAD_BYTES = 24
TIMESTAMP_MS_END = 1 << 60
RESETS_MAX = 3
ALL, LEADER, NONE = -1, 1, 0
# The leader may have stored the batch all the same. One that stops says "not leader" to everyone who
# waits, as does one that never was the leader. What else it refuses, it refuses before it appends.
_UNCERTAIN = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
_PRODUCER_LOST = frozenset({
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
})  # fmt: skip
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# Hashing a key in Python costs more than everything else that is done to its record. So the hashes of
# short keys are kept, a call with more than this of long ones has them hashed by a thread, and a key that
# no topic takes, unless it is set up for that, is not hashed at all.
SHORT_KEY_BYTES = 64
HASHED_HERE_BYTES = 4 << 10
KEY_BYTES_MAX = 1 << 20
_short_key_hash = lru_cache(1 << 16)(murmur2)


class OutgoingRecord(NamedTuple):
    """A record to publish; the partition is chosen by the key, and the time is now, unless given."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class RecordPosition(NamedTuple):
    """Where a record was stored; offset -1 where nobody says so (acks 0)."""

    partition: int
    offset: int
    timestamp_ms: int


PublishResult: TypeAlias = RecordPosition | ClusterError


class _Call:
    """One call of `publish`: what is known of its records so far."""

    __slots__ = ("future", "missing", "results")

    def __init__(
        self, results: list[Any], missing: int, future: "asyncio.Future[list[PublishResult]]"
    ) -> None:
        self.results = results
        self.missing = missing
        self.future = future

    def settle(self, count: int) -> None:
        self.missing -= count
        if not self.missing and not self.future.done():
            self.future.set_result(self.results)


class _SingleCall:
    """One call of `publish_soon`."""

    __slots__ = ("done", "results")

    def __init__(self, done: "Callable[[PublishResult], None]") -> None:
        self.results: list[Any] = [None]
        self.done = done

    def settle(self, _count: int) -> None:
        self.done(self.results[0])


class _Chunk(NamedTuple):
    """Records of one call for one partition."""

    call: _Call | _SingleCall
    indices: Sequence[int]
    records: list[UnplacedRecord]
    size_bytes: int
    deadline: float

    def cut(self, count: int) -> "tuple[_Chunk, _Chunk]":
        """The first `count` records, and the rest."""
        size = sum(_size_of(record) for record in self.records[:count])
        return (
            self._replace(indices=self.indices[:count], records=self.records[:count], size_bytes=size),
            self._replace(
                indices=self.indices[count:],
                records=self.records[count:],
                size_bytes=self.size_bytes - size,
            ),
        )


class _ProducerIdentity(NamedTuple):
    """Under which number a leader remembers the sequences of a partition."""

    producer_id: int
    epoch: int


class _Batch:
    """Chunks that are sent together, the same bytes at each try."""

    __slots__ = ("chunks", "count", "is_uncertain", "octets", "resets", "size_bytes")

    def __init__(self, chunks: list[_Chunk]) -> None:
        self.chunks = chunks
        self.count = sum(len(chunk.records) for chunk in chunks)
        self.size_bytes = sum(chunk.size_bytes for chunk in chunks)
        self.octets: bytes | bytearray = b""
        # Whether an earlier try may have stored it.
        self.is_uncertain = False
        self.resets = 0

    @property
    def deadline(self) -> float:
        return min(chunk.deadline for chunk in self.chunks)

    def records(self) -> list[UnplacedRecord]:
        if len(self.chunks) == 1:
            return self.chunks[0].records
        return [record for chunk in self.chunks for record in chunk.records]


class _PartitionQueue:
    """What waits for one partition, with one kind of acks."""

    def __init__(self, topic: ClusterTopic, partition: int, acks: int) -> None:
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.partition = partition
        self.acks = acks
        self.chunks: deque[_Chunk] = deque()
        # Taken from the queue and not settled yet.
        self.batch: _Batch | None = None
        # Under way, or waiting for a leader or the next try.
        self.is_busy = False
        self.batch_bytes = BATCH_BYTES
        self.backoff = Backoff(20)
        self.identity: _ProducerIdentity | None = None
        self.sequence = 0

    @property
    def has_work(self) -> bool:
        return self.batch is not None or bool(self.chunks)

    def take(self, codec: CompressionType) -> _Batch:
        """The batch to send: the one that was not settled, or as much as fits."""
        if self.batch is None:
            self.batch = _Batch(self._fill())
        batch = self.batch
        if not batch.octets:
            identity = self.identity
            batch.octets = (
                build_batch(batch.records(), codec=codec)
                if identity is None
                else build_batch(
                    batch.records(),
                    codec=codec,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    base_sequence=self.sequence,
                )
            )
        return batch

    def _fill(self) -> list[_Chunk]:
        taken: list[_Chunk] = []
        room = self.batch_bytes
        while self.chunks:
            chunk = self.chunks[0]
            if chunk.size_bytes <= room:
                taken.append(self.chunks.popleft())
                room -= chunk.size_bytes
                continue
            count = _fitting(chunk.records, room)
            if not taken:
                # A record that is larger than a batch should be is a batch of its own.
                count = max(1, count)
            if count:
                first, rest = chunk.cut(count)
                taken.append(first)
                if rest.records:
                    self.chunks[0] = rest
                else:
                    self.chunks.popleft()
            break
        return taken

    def settled(self) -> None:
        """The batch was stored: the next one has the next sequence."""
        assert self.batch is not None
        self.sequence = (self.sequence + self.batch.count) % SEQUENCES
        self.batch = None
        self.backoff.tries = 0

    def put_back(self, chunks: Sequence[_Chunk]) -> None:
        """Nothing of the batch was stored: these come first in what is taken next."""
        self.batch = None
        self.chunks.extendleft(reversed(chunks))

    def forget_identity(self) -> None:
        self.identity = None
        self.sequence = 0


class Publisher:
    """Publishes for many callers of one event loop."""

    def __init__(
        self,
        cluster: ClusterClient,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        delivery_seconds: float = DELIVERY_SECONDS,
        codec: CompressionType = CompressionType.NONE,
        creates_topics: bool = True,
    ) -> None:
        self._cluster = cluster
        self._buffer_bytes = buffer_bytes
        self._delivery_seconds = delivery_seconds
        self._codec = codec
        self._creates_topics = creates_topics
        self._loop = asyncio.get_running_loop()
        self._queues: dict[tuple[str, int, int], _PartitionQueue] = {}
        self._sweep_at = QUEUES_MIN
        self._ready: dict[_PartitionQueue, None] = {}
        self._is_scheduled = False
        self._sticky: dict[str, int] = {}
        # By the kind of acks.
        self._identities: dict[int, _ProducerIdentity] = {}
        self._identity_lock = asyncio.Lock()
        # Calls whose keys a thread hashes, and those behind them.
        self._hashing = 0
        self._hashing_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffered_bytes = 0
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def buffered_bytes(self) -> int:
        """Of records that are not settled yet, about."""
        return self._buffered_bytes

    async def publish(
        self, topic: str, records: Sequence[OutgoingRecord], *, acks: int = ALL
    ) -> list[PublishResult]:
        """Send records, and wait; for each where it is stored, or why it is not, in the order given.

        If the caller stops waiting, the records are sent nevertheless.
        """
        if not records:
            return []
        if acks not in (ALL, LEADER, NONE):
            error = ClusterError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}, not -1, 0 or 1")
            return [error] * len(records)
        found = self._cluster.cached_topic(topic)
        if found is None:
            try:
                found = await self._cluster.topic(topic, create=self._creates_topics)
            except ClusterError as error:
                return [error] * len(records)
        hashes: dict[bytes, int] = {}
        long_keys = _long_keys(records)
        if self._hashing or sum(map(len, long_keys)) > HASHED_HERE_BYTES:
            # A later call must not overtake an earlier one.
            self._hashing += 1
            try:
                async with self._hashing_lock:
                    if long_keys:
                        hashes = await asyncio.to_thread(_hash_all, long_keys)
                    call = self._queue(found, records, acks, hashes)
            finally:
                self._hashing -= 1
        else:
            call = self._queue(found, records, acks, _hash_all(long_keys) if long_keys else hashes)
        return await call.future

    def publish_soon(
        self, topic: str, record: OutgoingRecord, acks: int, done: Callable[[PublishResult], None]
    ) -> bool:
        """Send one record, and call `done` when it is known what became of it.

        False if nothing was done: it needs a wait, or there is something wrong with it. `publish` is for
        those; this is for whoever has a record at a time and thousands of them a second.
        """
        found = self._cluster.cached_topic(topic)
        if found is None or self._hashing or self._is_closed:
            return False
        key, value, headers, partition, timestamp_ms = record
        partitions = len(found.partitions)
        if partition is None:
            if key is None:
                partition = self._sticky_partition(found)
            elif len(key) <= SHORT_KEY_BYTES:
                partition = (_short_key_hash(key) & 0x7FFFFFFF) % partitions
            else:
                return False
        if not 0 <= partition < partitions or ((headers or timestamp_ms) and _problem(headers, timestamp_ms)):
            return False
        row = key, value, headers, time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        size_bytes = _size_of(row)
        if self._buffered_bytes + size_bytes > self._buffer_bytes:
            return False
        deadline = self._loop.time() + self._delivery_seconds
        self._add(found, partition, acks, _Chunk(_SingleCall(done), (0,), [row], size_bytes, deadline))
        return True

    async def flush(self) -> None:
        """Wait until everything is settled."""
        await self._is_empty.wait()

    async def close(self) -> None:
        """Send what is buffered, and end; what cannot be sent in time gets an error."""
        self._is_closed = True
        await self.flush()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _queue(
        self, topic: ClusterTopic, records: Sequence[OutgoingRecord], acks: int, hashes: dict[bytes, int]
    ) -> _Call:
        results: list[Any] = [None] * len(records)
        call = _Call(results, len(records), self._loop.create_future())
        if self._is_closed:
            results[:] = [ClusterError(ErrorCode.NETWORK_EXCEPTION, "the publisher is closed")] * len(records)
            call.settle(len(records))
            return call
        groups = self._group(topic, records, results, hashes)
        call.settle(len(records) - sum(len(indices) for indices, _ in groups.values()))
        deadline = self._loop.time() + self._delivery_seconds
        for partition, (indices, rows) in groups.items():
            size_bytes = sum(map(_size_of, rows))
            chunk = _Chunk(call, indices, rows, size_bytes, deadline)
            if self._buffered_bytes + size_bytes > self._buffer_bytes:
                self._fail_chunks([chunk], self._full(size_bytes))
                continue
            self._add(topic, partition, acks, chunk)
        return call

    def _add(self, topic: ClusterTopic, partition: int, acks: int, chunk: _Chunk) -> None:
        self._buffered_bytes += chunk.size_bytes
        self._is_empty.clear()
        place = topic.name, partition, acks
        queue = self._queues.get(place)
        # One whose topic was made anew meanwhile comes to its end by itself.
        if queue is None or (queue.topic_id is not topic.topic_id and queue.topic_id != topic.topic_id):
            queue = self._queues[place] = _PartitionQueue(topic, partition, acks)
            if len(self._queues) >= self._sweep_at:
                self._sweep_at = 2 * len(self._queues)
                self._start(self._sweep())
        queue.chunks.append(chunk)
        if not queue.is_busy:
            self._wake(queue)

    def _group(  # noqa: C901 - for every record, straight on purpose
        self,
        topic: ClusterTopic,
        records: Sequence[OutgoingRecord],
        results: list[Any],
        hashes: dict[bytes, int],
    ) -> dict[int, tuple[list[int], list[UnplacedRecord]]]:
        """The records of each partition, `hashes` has those of long keys; errors are in `results`."""
        groups: dict[int, tuple[list[int], list[UnplacedRecord]]] = {}
        partitions = len(topic.partitions)
        sticky = -1
        now_ms = time.time_ns() // 1_000_000
        for index, (key, value, headers, partition, timestamp_ms) in enumerate(records):
            if partition is None:
                if key is not None:
                    if len(key) <= SHORT_KEY_BYTES:
                        hashed = _short_key_hash(key)
                    elif len(key) <= KEY_BYTES_MAX:
                        hashed = hashes[key]
                    else:
                        results[index] = _long_key(key)
                        continue
                    partition = (hashed & 0x7FFFFFFF) % partitions
                else:
                    if sticky < 0:
                        sticky = self._sticky_partition(topic)
                    partition = sticky
            elif not 0 <= partition < partitions:
                results[index] = _no_partition(topic.name, partition)
                continue
            if (headers or timestamp_ms is not None) and (problem := _problem(headers, timestamp_ms)):
                results[index] = problem
                continue
            group = groups.get(partition)
            if group is None:
                group = groups[partition] = ([], [])
            group[0].append(index)
            group[1].append((key, value, headers, now_ms if timestamp_ms is None else timestamp_ms))
        return groups

    def _full(self, size_bytes: int) -> ClusterError:
        if size_bytes > self._buffer_bytes:
            return ClusterError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{size_bytes} bytes at once do not fit into the buffer of {self._buffer_bytes} bytes",
            )
        return _too_many_wait(self._buffered_bytes)

    def _sticky_partition(self, topic: ClusterTopic) -> int:
        """Where records without a key go until the next batch: a partition that has a leader."""
        count = len(topic.partitions)
        start = self._sticky.get(topic.name, 0)
        for turn in range(count):
            partition = (start + turn) % count
            if topic.partitions[partition].leader is not None:
                break
        self._sticky[topic.name] = partition
        return partition

    def _wake(self, queue: _PartitionQueue) -> None:
        """Send the queue's records in the next turn of the loop, with what else has come until then."""
        self._ready[queue] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._send_ready)

    def _send_ready(self) -> None:
        self._is_scheduled = False
        ready, self._ready = self._ready, {}
        groups: dict[tuple[int, int], list[_PartitionQueue]] = {}
        for queue in ready:
            if queue.is_busy or not queue.has_work:
                continue
            queue.is_busy = True
            found = self._cluster.cached_topic(queue.topic)
            leader = None
            if found is not None and found.topic_id != queue.topic_id:
                self._fail_queue(queue, _made_anew(queue.topic))
                continue
            if found is not None and queue.partition < len(found.partitions):
                leader = found.partitions[queue.partition].leader
            if leader is None:
                self._start(self._find_leader(queue))
            else:
                groups.setdefault((leader, queue.acks), []).append(queue)
        for (leader, acks), queues in groups.items():
            self._start(self._send(leader, acks, queues))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        """Forget topics that are gone: there are twice as many queues as there were after the last sweep."""
        idle = [one for one in self._queues.values() if not one.is_busy and not one.has_work]
        try:
            present = {topic.name: topic.topic_id for topic in await self._cluster.topics()}
        except ClusterError:
            return
        for queue in idle:
            is_gone = present.get(queue.topic) != queue.topic_id
            if is_gone and not queue.is_busy and not queue.has_work:
                # Not under the same id: whoever is mistaken about the topic must not repeat its sequences.
                self._give_up_identity(queue)
                self._drop_queue(queue)
        self._sweep_at = max(QUEUES_MIN, 2 * len(self._queues))

    def _drop_queue(self, queue: _PartitionQueue) -> None:
        place = queue.topic, queue.partition, queue.acks
        if self._queues.get(place) is queue:
            del self._queues[place]
            self._sticky.pop(queue.topic, None)

    async def _find_leader(self, queue: _PartitionQueue) -> None:
        self._cluster.forget_topic(queue.topic)
        try:
            found = await self._cluster.topic(queue.topic)
        except ClusterError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not error.is_retriable:
                self._fail_queue(queue, error)
            else:
                self._try_later(queue, error)
            return
        if queue.partition >= len(found.partitions):
            self._fail_queue(queue, _no_partition(queue.topic, queue.partition))
        elif found.partitions[queue.partition].leader is None:
            self._try_later(
                queue,
                ClusterError(
                    ErrorCode.LEADER_NOT_AVAILABLE,
                    f"partition {queue.partition} of {queue.topic} has no leader",
                ),
            )
        else:
            self._release(queue)

    async def _send(self, leader: int, acks: int, queues: list[_PartitionQueue]) -> None:
        """One request to one leader; each of these queues is busy until it is done."""
        try:
            pipeline = await self._cluster.produce_connection(leader)
            if acks != NONE:
                for queue in queues:
                    queue.identity = queue.identity or await self._shared_identity(acks)
        except ClusterError as error:
            self._try_all_later(queues, error)
            return
        batches = self._take(queues)
        if not batches:
            return
        request = _produce_request(batches, acks)
        try:
            if acks == NONE:
                self._send_only(pipeline, request, batches)
            else:
                await self._ask(pipeline, request, batches)
        except ClusterError as error:
            # It was not sent.
            self._try_all_later(batches, error)

    def _send_only(
        self, pipeline: RequestPipeline, request: ProduceRequest, batches: dict[_PartitionQueue, _Batch]
    ) -> None:
        # No response holds the next batch back, so a leader that does not read must.
        if (unsent := pipeline.unsent_bytes) > self._buffer_bytes:
            for queue, batch in batches.items():
                self._fail_batch(queue, batch, _too_many_wait(unsent))
            return
        pipeline.send(request)
        for queue in batches:
            self._stored(queue, -1, -1)

    async def _ask(
        self, pipeline: RequestPipeline, request: ProduceRequest, batches: dict[_PartitionQueue, _Batch]
    ) -> None:
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                answer = await pipeline.ask(request)
        except TimeoutError:
            self._fail_requests(batches, ErrorCode.REQUEST_TIMED_OUT, "the leader did not respond in time")
        except ConnectionLost as error:
            self._fail_requests(batches, ErrorCode.NETWORK_EXCEPTION, error.detail)
        else:
            assert isinstance(answer, ProduceResponse)
            self._settle(batches, answer)

    def _take(self, queues: list[_PartitionQueue]) -> dict[_PartitionQueue, _Batch]:
        """As many batches as a request may hold; the other queues come with the next one."""
        batches: dict[_PartitionQueue, _Batch] = {}
        room = REQUEST_BYTES
        for queue in queues:
            if room <= 0:
                self._release(queue)
                continue
            try:
                batch = queue.take(self._codec)
            except (TypeError, ValueError, struct.error) as error:
                # Not bytes, for instance: those who wait must not wait for ever.
                assert queue.batch is not None
                self._fail_batch(queue, queue.batch, ClusterError(ErrorCode.INVALID_RECORD, str(error)))
                continue
            batches[queue] = batch
            room -= batch.size_bytes
            # The next records without a key go elsewhere.
            if self._sticky.get(queue.topic) == queue.partition:
                self._sticky[queue.topic] = queue.partition + 1
        return batches

    async def _shared_identity(self, acks: int) -> _ProducerIdentity:
        """One producer id for all partitions; a new one when a partition cannot go on under its own."""
        async with self._identity_lock:
            if (identity := self._identities.get(acks)) is None:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
                answer = await self._cluster.ask(request)
                expect(answer.error_code, "no producer id could be had")
                identity = _ProducerIdentity(answer.producer_id, answer.producer_epoch)
                self._identities[acks] = identity
            return identity

    def _settle(self, batches: dict[_PartitionQueue, _Batch], answer: ProduceResponse) -> None:
        rows = {
            (topic.name, row.index): row for topic in answer.responses for row in topic.partition_responses
        }
        for queue, batch in batches.items():
            row = rows.get((queue.topic, queue.partition))
            if row is None:
                self._fail_requests(
                    {queue: batch}, ErrorCode.UNKNOWN_SERVER_ERROR, "the response is incomplete"
                )
            elif row.error_code == ErrorCode.NONE:
                self._stored(queue, row.base_offset, row.log_append_time_ms)
            elif row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                # It was stored by an earlier try, so long ago that the leader does not know where.
                self._stored(queue, -1, -1)
            else:
                self._refused(queue, batch, row)

    def _stored(self, queue: _PartitionQueue, offset: int, append_time_ms: int) -> None:
        assert queue.batch is not None
        partition = queue.partition
        step = 0 if offset < 0 else 1
        new = tuple.__new__
        for call, indices, records, size_bytes, _ in queue.batch.chunks:
            results = call.results
            for index, record in zip(indices, records, strict=True):
                timestamp_ms = record[3] if append_time_ms < 0 else append_time_ms
                # As `RecordPosition(…)`, at half the cost.
                results[index] = new(RecordPosition, (partition, offset, timestamp_ms))
                offset += step
            self._buffered_bytes -= size_bytes
            call.settle(len(records))
        queue.settled()
        self._release(queue)

    def _refused(self, queue: _PartitionQueue, batch: _Batch, row: ProduceResponsePartition) -> None:
        code = known_code(row.error_code)
        error = ClusterError(code, row.error_message)
        if code in _UNCERTAIN:
            self._fail_requests({queue: batch}, code, error.detail)
        elif code in _PRODUCER_LOST:
            self._start_again(queue, batch, error)
        elif code in LEADER_CHANGES or (code.retriable and code not in _TOO_LARGE):
            self._try_later(queue, error)
        elif batch.is_uncertain:
            self._fail_unknown(queue, batch, error)
        elif code in _TOO_LARGE and batch.count > 1:
            # The rest stays in the queue; once this is known, batches stay small.
            queue.batch_bytes = max(1, batch.size_bytes // 2)
            queue.put_back(batch.chunks)
            self._release(queue)
        elif row.record_errors and len(row.record_errors) < batch.count:
            self._drop(queue, batch, row, error)
        else:
            if code in _TOO_LARGE:
                error = ClusterError(code, f"a record of about {batch.size_bytes} bytes: {error.detail}")
            self._fail_batch(queue, batch, error)

    def _fail_requests(self, batches: dict[_PartitionQueue, _Batch], code: ErrorCode, detail: str) -> None:
        """The leader may have stored these: they are sent again, under the same sequences."""
        for queue, batch in batches.items():
            batch.is_uncertain = True
            self._try_later(queue, ClusterError(code, detail))

    def _start_again(self, queue: _PartitionQueue, batch: _Batch, error: ClusterError) -> None:
        """The leader does not accept the sequence: a new producer id, if nothing can be stored twice."""
        if batch.is_uncertain:
            self._fail_unknown(queue, batch, error)
            return
        self._give_up_identity(queue)
        batch.resets += 1
        if batch.resets > RESETS_MAX:
            self._fail_batch(queue, batch, error)
            return
        batch.octets = b""
        self._release(queue)

    def _give_up_identity(self, queue: _PartitionQueue) -> None:
        if self._identities.get(queue.acks) == queue.identity:
            self._identities.pop(queue.acks, None)
        queue.forget_identity()

    def _drop(
        self, queue: _PartitionQueue, batch: _Batch, row: ProduceResponsePartition, error: ClusterError
    ) -> None:
        """Some records made the leader refuse the batch: only they fail, the others are sent again."""
        bad = {one.batch_index: one.batch_index_error_message or error.detail for one in row.record_errors}
        kept: list[_Chunk] = []
        position = 0
        for chunk in batch.chunks:
            rest: _Chunk = chunk
            for number in range(position, position + len(chunk.records)):
                if number not in bad:
                    continue
                good, rest = rest.cut(number - position - (len(chunk.records) - len(rest.records)))
                refused, rest = rest.cut(1)
                self._free([refused])
                self._fail_chunks([refused], ClusterError(error.code, bad[number]))
                if good.records:
                    kept.append(good)
            if rest.records:
                kept.append(rest)
            position += len(chunk.records)
        queue.put_back(kept)
        self._release(queue)

    def _try_all_later(self, queues: Iterable[_PartitionQueue], error: ClusterError) -> None:
        for queue in queues:
            if error.code in NOT_BELIEVED:
                self._fail_queue(queue, error)
            else:
                self._try_later(queue, error)

    def _try_later(self, queue: _PartitionQueue, error: ClusterError) -> None:
        """After a pause, with whoever is the leader then; what has waited too long fails."""
        pause = queue.backoff.next_seconds()
        at = self._loop.time() + pause
        batch = queue.batch
        if batch is not None and batch.deadline < at:
            if batch.is_uncertain:
                self._fail_unknown(queue, batch, error)
            else:
                self._fail_batch(queue, batch, error)
            return
        expired: list[_Chunk] = []
        while queue.chunks and queue.chunks[0].deadline < at:
            expired.append(queue.chunks.popleft())
        if expired:
            self._free(expired)
            self._fail_chunks(expired, error)
        self._cluster.forget_topic(queue.topic)
        self._loop.call_later(pause, self._release, queue)

    def _fail_unknown(self, queue: _PartitionQueue, batch: _Batch, error: ClusterError) -> None:
        # The next records must not depend on whether these were stored.
        self._give_up_identity(queue)
        self._fail_batch(queue, batch, _not_known(error))

    def _fail_batch(self, queue: _PartitionQueue, batch: _Batch, error: ClusterError) -> None:
        queue.batch = None
        self._free(batch.chunks)
        self._fail_chunks(batch.chunks, error)
        self._release(queue)

    def _fail_queue(self, queue: _PartitionQueue, error: ClusterError) -> None:
        batch, chunks = queue.batch, list(queue.chunks)
        queue.batch = None
        queue.chunks.clear()
        # The topic may be made anew, and its leader remember no sequence; or it was never gone, and its
        # leader remembers all of them.
        self._give_up_identity(queue)
        self._free(chunks)
        self._fail_chunks(chunks, error)
        if batch is not None:
            self._free(batch.chunks)
            self._fail_chunks(batch.chunks, _not_known(error) if batch.is_uncertain else error)
        self._drop_queue(queue)
        self._release(queue)

    def _free(self, chunks: Sequence[_Chunk]) -> None:
        self._buffered_bytes -= sum(chunk.size_bytes for chunk in chunks)

    def _fail_chunks(self, chunks: Sequence[_Chunk], error: ClusterError) -> None:
        for call, indices, records, _, _ in chunks:
            for index in indices:
                call.results[index] = error
            call.settle(len(records))

    def _release(self, queue: _PartitionQueue) -> None:
        queue.is_busy = False
        if queue.has_work:
            self._wake(queue)
        elif not self._buffered_bytes:
            self._is_empty.set()


def _too_many_wait(waiting_bytes: int) -> ClusterError:
    return ClusterError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"{waiting_bytes} bytes of records wait to be sent already: publish more slowly",
    )


def _long_keys(records: Sequence[OutgoingRecord]) -> set[bytes]:
    """The keys that choose a partition and whose hashes are not kept."""
    return {
        key
        for key, _, _, partition, _ in records
        if key is not None and partition is None and SHORT_KEY_BYTES < len(key) <= KEY_BYTES_MAX
    }


def _hash_all(keys: Iterable[bytes]) -> dict[bytes, int]:
    return {key: murmur2(key) for key in keys}


def _long_key(key: bytes) -> ClusterError:
    return ClusterError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"a key of {len(key)} bytes chooses no partition, the limit is {KEY_BYTES_MAX} bytes",
    )


def _not_known(error: ClusterError) -> ClusterError:
    return ClusterError(error.code, f"{error.detail}; whether the records were stored is not known")


def _made_anew(topic: str) -> ClusterError:
    return ClusterError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} was deleted, and there is another one"
    )


def _no_partition(topic: str, partition: int) -> ClusterError:
    return ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} has no partition {partition}")


def _problem(headers: Headers, timestamp_ms: int | None) -> ClusterError | None:
    """Why a record cannot be written; said before it is in a batch with others."""
    if timestamp_ms is not None and not 0 <= timestamp_ms < TIMESTAMP_MS_END:
        return ClusterError(ErrorCode.INVALID_TIMESTAMP, f"{timestamp_ms} is no time in milliseconds")
    try:
        pack_headers(headers)
    except UnicodeEncodeError:
        return ClusterError(ErrorCode.INVALID_RECORD, "the name of a header is no text")
    return None


def _size_of(record: UnplacedRecord) -> int:
    """About the bytes of a record in its batch."""
    key, value, headers, _ = record
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += len(name) + len(content or b"") + 4
    return size


def _fitting(records: Sequence[UnplacedRecord], room: int) -> int:
    """How many of the first records have room."""
    for number, record in enumerate(records):
        room -= _size_of(record)
        if room < 0:
            return number
    return len(records)


def _produce_request(batches: dict[_PartitionQueue, _Batch], acks: int) -> ProduceRequest:
    topics: dict[str, list[ProduceRequestPartition]] = {}
    for queue, batch in batches.items():
        row = ProduceRequestPartition(index=queue.partition, records=memoryview(batch.octets))
        topics.setdefault(queue.topic, []).append(row)
    return ProduceRequest(
        acks=acks,
        timeout_ms=REPLICAS_MS,
        topic_data=tuple(
            ProduceRequestTopic(name=name, partition_data=tuple(rows)) for name, rows in topics.items()
        ),
    )
