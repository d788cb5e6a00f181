"""Produce: a producer's batches are validated, appended and acknowledged.

    produce ── each batch is validated by its header and CRC, and appended to its partition
            ── acks=0: done at once
               acks=1: done when what was appended is on this node's device
               acks=all: done when the high watermark has reached it, on all in-sync replicas

acks=0 and acks=1 need the broker's lease (see `broker.lease`), when they arrive and when they are
acknowledged: others may have another leader for the partition. acks=all needs none where other
replicas confirm every write; without a lease it gets no verdict on sequences, which may be old.

The order of the checks is the order of their cost: what the header says, the CRC, the
producer's sequence. Records are decoded only where the topic asks for it (compaction, deep
validation, a `compression.type`, or its own timestamps), since that costs what the hot path must
not. Batches of such topics that are large, or unpack to much, go to a worker (`finish_batch`, which
depends on its arguments alone and returns something that can be pickled), while the loop continues:

    batches of one producer    1   2   3
    to one partition           │ worker ──► appended ─┐
                                   └ waits ───────────┴► validated, appended ─► 3 …

A partition takes the batches of a producer in the order they came, however long a worker has one of them:
the sequence of an idempotent producer is checked when it is the batch's turn (`BatchOffload`). Producers
do not wait for each other, except for a free worker (`broker.worker_share`).

The first batch of a transaction waits until the transaction's coordinator knows that the partition takes
part (`broker.transactions.verification`), and the producer's next batches wait behind it.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeAlias

from penstock.broker.lease import NO_LEASE
from penstock.broker.partitions import LeaderPartition, PartitionStopped, ReplicaManager
from penstock.broker.transactions.verification import (
    ENDED,
    PARKED_BATCH_BYTES,
    TransactionalRequest,
    TransactionVerification,
    TransactionWriter,
    produce_error,
)
from penstock.broker.worker_share import LIGHT_BYTES, WorkersBusy, WorkerShare
from penstock.core.metadata.configs import CleanupPolicy, TimestampType, TopicOptions
from penstock.core.model import ApiError, CorruptionError, ErrorKind, Offset, StorageError, Timestamp
from penstock.core.records import (
    HEADER_BYTES,
    NO_APPEND_TIME,
    ONE_BATCH,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    CompressionType,
    InvalidRecord,
    Record,
    RecordSlice,
    RecordsTooLarge,
    check_batch,
    check_client_batch,
    read_header,
    records_in,
    stamp_log_append_time,
    write_batch,
)
from penstock.core.records.batch import producer_id_of
from penstock.core.records.compression import LIMIT_BYTES, unpack_payload
from penstock.core.records.validation import walk
from penstock.core.replica import DuplicateBatch
from penstock.observability import CounterValue, HistogramValue, Metrics
from penstock.observability import log as events
from penstock.runtime import Callback, Clock, ExecutorFull
from penstock.storage.log import BatchTooLarge

# Smaller batches stay on the loop: a worker costs two copies, and some tenths of a millisecond. What is
# compressed has to be small before and after it is unpacked: many empty frames take long as well.
LARGE_BYTES = 64 << 10
LARGE_PACKED_BYTES = 8 << 10
MANY_RECORDS = 1_000
# What a worker looks through in milliseconds.
LIGHT_RECORDS = 100_000
# Where records are looked into, all of a batch are in a worker's memory at once. A producer that is told so
# sends fewer.
RECORDS_MAX = 500_000
# Records that an error names.
RECORD_ERRORS_MAX = 100
# The outcome for a batch: its new bytes, None if it stays as it is, or an error.
Finished: TypeAlias = "bytes | ApiError | None"
# Handles a batch whose turn it is; returns whether it went to a worker too.
Turn: TypeAlias = Callable[[], bool]
NO_TIMESTAMP = -1
NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME
DELETE_ONLY = CleanupPolicy.DELETE
# Errors about an idempotent producer, from the batches of it that this node has seen.
PRODUCER_VERDICTS = (ErrorKind.OUT_OF_ORDER_SEQUENCE,)
# For how long batches behind one that was not written are refused for its reason, and of how many producers
# of a partition that is known.
SKIPPED_MS = 10_000
SKIPPED_MAX = 1_000
NO_TRANSACTIONAL_ID = ApiError(
    ErrorKind.TRANSACTIONAL_ID_NOT_AUTHORIZED, "a request with transactional batches names a transactional id"
)
NOT_TRANSACTIONAL = ApiError(
    ErrorKind.INVALID_TRANSACTION, "a producer with an open transaction writes transactional batches only"
)
# One batch for each partition, or the error if the partition is not served here.
Batches: TypeAlias = Sequence[tuple[LeaderPartition | ApiError, memoryview | None]]


class ProduceMetrics(Metrics):
    """What came in, by topic."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = self.counter("penstock_messages_produced_total", "Records appended.", ("topic",))
        self.bytes = self.counter(
            "penstock_bytes_produced_total", "Bytes of record batches appended.", ("topic",)
        )
        self.errors = self.counter(
            "penstock_produce_errors_total", "Batches that were refused, by error.", ("topic", "error")
        )
        self.seconds_to_ack = self.seconds(
            "penstock_produce_seconds", "Time from a batch's arrival to its acknowledgement.", ("topic",)
        )
        # Records, bytes and the time to the acknowledgement, updated in place for every batch.
        self.by_topic: dict[str, tuple[CounterValue, CounterValue, HistogramValue]] = {}

    def refused(self, topic: str, kind: ErrorKind) -> None:
        self.errors.of(topic, kind.name.lower()).count += 1

    def figures_of(self, topic: str) -> tuple[CounterValue, CounterValue, HistogramValue]:
        """The row of `by_topic`, created when a topic is first seen."""
        figures = (self.messages.of(topic), self.bytes.of(topic), self.seconds_to_ack.of(topic))
        self.by_topic[topic] = figures
        return figures


def finish_batch(
    batch: bytes | memoryview,
    codec: CompressionType | None,
    level: int | None = None,
    *,
    keyed: bool,
    limit_bytes: int = LIMIT_BYTES,
) -> Finished:
    """Return the batch with the topic's codec, None if it stays as it is, or an error.

    Raises RecordsTooLarge if records unpack to more than the limit.
    """
    try:
        header = read_header(batch)
        payload = unpack_payload(batch, header, limit_bytes)
        walk(payload, header.record_count)
    except RecordsTooLarge:
        raise
    except InvalidRecord as error:
        return ApiError(ErrorKind.INVALID_RECORD, str(error), (error.index,))
    except CorruptionError as error:
        return ApiError(ErrorKind.INVALID_RECORD, str(error))
    is_packed_anew = codec is not None and codec is not header.codec
    if not keyed and not is_packed_anew:
        return None
    records = records_in(RecordSlice(header.base_offset, header.base_timestamp, NO_APPEND_TIME, payload))
    if keyed and (missing := keyless(records)):
        return ApiError(ErrorKind.INVALID_RECORD, "a compacted topic takes no record without a key", missing)
    return _recompressed(records, header, codec, level) if codec and is_packed_anew else None


def _recompressed(
    records: list[Record], header: BatchHeader, codec: CompressionType, level: int | None
) -> bytes:
    batch = write_batch(
        records,
        codec=codec,
        level=level,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
    return bytes(batch)


def keyless(records: Sequence[Record]) -> tuple[int, ...]:
    """The first records without a key: compaction keeps the latest per key, so every record needs one."""
    found = (index for index, record in enumerate(records) if record.key is None)
    return tuple(islice(found, RECORD_ERRORS_MAX))


def is_large(header: BatchHeader) -> bool:
    limit_bytes = LARGE_BYTES if header.codec is CompressionType.NONE else LARGE_PACKED_BYTES
    return header.size_bytes > limit_bytes or header.record_count > MANY_RECORDS


class ProducerLane(NamedTuple):
    """Whose batches stay in order: those of one producer to one partition.

    A producer is an idempotent producer's id, or the client that sends without one.
    """

    partition: LeaderPartition
    producer: Hashable


def lane_of(partition: LeaderPartition, records: Buffer, client: Hashable) -> ProducerLane:
    """The lane of a batch that nobody has looked at yet."""
    if len(memoryview(records)) < HEADER_BYTES:
        return ProducerLane(partition, client)
    producer_id = producer_id_of(records)
    return ProducerLane(partition, client if producer_id < 0 else (producer_id,))


class BatchOffload:
    """The producers that have a batch with a worker, and their batches that wait behind it."""

    def __init__(self, workers: WorkerShare) -> None:
        self._workers = workers
        # What waits behind the batch that a worker has.
        self.queues: dict[ProducerLane, deque[Turn]] = {}

    def send(
        self,
        lane: ProducerLane,
        work: Callable[..., Finished],
        size_bytes: int,
        done: Callable[[Finished], None],
        failed: Callable[[Exception], None],
        *,
        is_heavy: bool,
    ) -> None:
        """Run `work` in a worker; then `done` or `failed` is called, and then the next batch has its turn."""
        self.queues.setdefault(lane, deque())

        def ended(finished: Finished) -> None:
            done(finished)
            self._go_on(lane)

        def broke(error: Exception) -> None:
            failed(error)
            self._go_on(lane)

        self._workers.unpack(lane.producer, work, ended, broke, size_bytes, is_heavy=is_heavy)

    def wait(self, lane: ProducerLane, turn: Turn) -> None:
        """Call `turn` after the batches that came before."""
        self.queues[lane].append(turn)

    def _go_on(self, lane: ProducerLane) -> None:
        queue = self.queues[lane]
        while queue:
            if queue.popleft()():
                return
        del self.queues[lane]


class AppendResult(NamedTuple):
    """A batch that is in the log: acknowledged once the high watermark has reached `end`."""

    first_offset: Offset
    end: Offset
    log_append_time: int = NO_TIMESTAMP
    log_start: Offset = Offset(-1)


class PendingAppend:
    """A batch whose result comes later. The caller must set its callback before anything else."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done: Callable[[AppendResult | ApiError], None] = _ignore


class PendingVerification(PendingAppend):
    """A batch that waits for its transaction's coordinator, and holds back its own producer alone."""

    __slots__ = ()


Results: TypeAlias = list[AppendResult | ApiError]


class PendingProduce:
    """One Produce request, until its last batch is as durable as `acks` asks.

    `done` gets the results in the order of the batches. While a worker has a batch, its client is
    not read from: `pause` is called before, and `resume` after.
    """

    __slots__ = (
        "acks",
        "batches",
        "began_ns",
        "client",
        "done",
        "pause",
        "results",
        "resume",
        "timeout_ms",
        "transaction",
        "waiting",
    )

    def __init__(
        self,
        acks: int,
        timeout_ms: int,
        began_ns: int,
        done: Callable[[Results], None],
        pause: Callback,
        resume: Callback,
    ) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.began_ns = began_ns
        self.done = done
        self.pause = pause
        self.resume = resume
        self.transaction: TransactionalRequest | None = None
        # Whoever sends it, as far as workers and the order of batches are concerned.
        self.client: Hashable = None
        self.batches: Batches = ()
        self.results: Results = []
        # One for the request itself, so that `done` is not called before every batch was appended.
        self.waiting = 1


class PendingBatch(ABC):
    """A Produce request with one batch, until that is as durable as `acks` asks: most requests are one.

    Hundreds of them wait for one sync, and no longer fit into a processor's cache if each holds what
    `PendingProduce` does; then every access to them costs more than the work. So keep it small.
    """

    __slots__ = ("_service", "acks", "began_ns", "partition", "result")

    def __init__(
        self, service: "ProduceService", acks: int, began_ns: int, partition: LeaderPartition
    ) -> None:
        """`acks` is not 0."""
        self._service = service
        self.acks = acks
        self.began_ns = began_ns
        self.partition = partition
        self.result: AppendResult | ApiError = ONE_BATCH

    def acknowledged(self, error: ApiError | None) -> None:
        """The batch is as durable as `acks` asks, or failed."""
        if error is not None:
            self.result = error
        self._service.settle_one(self)

    @property
    @abstractmethod
    def client(self) -> Hashable:
        """As in `PendingProduce`; asked for where a worker gets the batch."""

    @abstractmethod
    def respond(self, result: AppendResult | ApiError) -> None:
        """Called once, with the result."""

    @abstractmethod
    def pause(self) -> None:
        """Called when a worker has the batch: its client is not read from."""

    @abstractmethod
    def resume(self) -> None:
        """Called when the worker is done."""


class ProduceService:
    """Appends for producers of every server."""

    def __init__(
        self,
        partitions: ReplicaManager,
        clock: Clock,
        metrics: ProduceMetrics,
        workers: WorkerShare,
        verification: TransactionVerification,
    ) -> None:
        self._partitions = partitions
        self._verification = verification
        self._clock = clock
        self._lease = partitions.lease
        self._metrics = metrics
        self._offload = BatchOffload(workers)

    def produce(self, request: PendingProduce, batches: Batches) -> None:
        """Append every batch; `request.done` is called with the results, perhaps before this returns."""
        for _ in self.produce_in_steps(request, batches):
            pass

    def produce_in_steps(  # noqa: C901 - the hot path, straight on purpose
        self, request: PendingProduce, batches: Batches
    ) -> Iterator[None]:
        """The same, with each batch in a step of its own."""
        if request.began_ns >= self._lease.until:
            batches = self._without_lease(request, batches)
        request.batches = batches
        results, acks, on_all = request.results, request.acks, request.acks == ALL_ACKS
        transaction = request.transaction
        for partition, records in batches:
            yield
            if isinstance(partition, ApiError) or not records:
                results.append(partition if isinstance(partition, ApiError) else ONE_BATCH)
                continue
            if self._offload.queues:
                outcome = self.append(
                    partition, records, on_all=on_all, transaction=transaction, sender=request
                )
            else:
                # Inlined: usually no batch is with a worker.
                outcome = self._append(partition, records, on_all, transaction, False, request)
                if isinstance(outcome, ApiError):
                    self._metrics.refused(partition.name.topic, outcome.kind)
            if isinstance(outcome, PendingAppend):
                self._await_append(request, partition, outcome)
                continue
            results.append(outcome)
            # What is below the high watermark is as safe as anybody can ask.
            if acks and isinstance(outcome, AppendResult) and outcome[1] > partition.high_watermark:
                self._await(request, len(results) - 1, partition, outcome[1])
        if request.waiting > 1:
            request.waiting -= 1
        else:
            self._settled(request)

    def produce_one(self, request: PendingBatch, records: memoryview, timeout_ms: int) -> None:
        """Like `produce`, for one batch without a transaction whose client waits for the result."""
        if request.began_ns >= self._lease.until or self._offload.queues:
            self.produce(_general(request, timeout_ms), [(request.partition, records)])
            return
        partition, on_all = request.partition, request.acks == ALL_ACKS
        outcome = self._append(partition, records, on_all, None, False, request)
        if isinstance(outcome, PendingAppend):
            general = _general(request, timeout_ms)
            general.batches = [(partition, records)]
            self._await_append(general, partition, outcome)
            general.waiting -= 1
            return
        request.result = outcome
        if isinstance(outcome, ApiError):
            self._metrics.refused(partition.name.topic, outcome.kind)
        # What is below the high watermark is as safe as anybody can ask.
        elif outcome[1] > partition.high_watermark:
            if on_all:
                is_safe = partition.when_acknowledged(outcome[1], request.acknowledged, timeout_ms)
            else:
                is_safe = partition.when_synced(outcome[1], request.acknowledged)
            if not is_safe:
                return
        self.settle_one(request)

    def settle_one(self, request: PendingBatch) -> None:
        """The batch has its result; the time is recorded if it did not fail."""
        result, now = request.result, self._clock.now()
        if not isinstance(result, ApiError):
            partition = request.partition
            if now >= self._lease.until and (request.acks != ALL_ACKS or not _has_others(partition)):
                # As in `_withhold`.
                result = NO_LEASE
            else:
                topic = partition.name.topic
                figures = self._metrics.by_topic.get(topic) or self._metrics.figures_of(topic)
                took, elapsed_ns = figures[2], now - request.began_ns
                took.counts[bisect_left(took.bounds, elapsed_ns)] += 1
                took.total += elapsed_ns
        request.respond(result)

    def _without_lease(self, request: PendingProduce, batches: Batches) -> Batches:
        """Keep what the in-sync replicas decide on, not this node alone; the rest gets NOT_LEADER."""
        request.done = partial(_without_verdicts, request.done)
        if request.acks == ALL_ACKS:
            return [
                (
                    partition if isinstance(partition, ApiError) or _has_others(partition) else NO_LEASE,
                    records,
                )
                for partition, records in batches
            ]
        return [
            (partition if isinstance(partition, ApiError) else NO_LEASE, records)
            for partition, records in batches
        ]

    def append(
        self,
        partition: LeaderPartition,
        records: memoryview,
        *,
        on_all: bool = False,
        transaction: TransactionalRequest | None = None,
        sender: "PendingProduce | PendingBatch | None" = None,
    ) -> AppendResult | ApiError | PendingAppend:
        """Append one batch, as clients of the Kafka protocol send it.

        `records` must be writable: offsets are stamped into it. It is not kept. With `on_all`
        (acks=all) the batch is refused while too few replicas are in sync.
        """
        if self._offload.queues:
            lane = lane_of(partition, records, None if sender is None else sender.client)
            if lane in self._offload.queues:
                return self._wait(lane, bytearray(records), transaction, sender, on_all=on_all)
        outcome = self._append(partition, records, on_all, transaction, False, sender)
        if isinstance(outcome, ApiError):
            self._metrics.refused(partition.name.topic, outcome.kind)
        return outcome

    def _await_append(
        self, request: PendingProduce, partition: LeaderPartition, pending: PendingAppend
    ) -> None:
        """The batch's result comes later; its client's reads are paused until then."""
        at = len(request.results)
        request.results.append(ONE_BATCH)
        request.waiting += 1
        request.pause()

        def done(outcome: AppendResult | ApiError) -> None:
            request.results[at] = outcome
            if request.acks and isinstance(outcome, AppendResult):
                self._await(request, at, partition, outcome.end)
            request.resume()
            self._settled(request)

        pending.done = done

    def _await(self, request: PendingProduce, at: int, partition: LeaderPartition, end: Offset) -> None:
        """Let the request wait until everything below `end` is as durable as `acks` asks."""
        acknowledged = partial(self._settled, request, at)
        if request.acks == ALL_ACKS:
            is_safe = partition.when_acknowledged(end, acknowledged, request.timeout_ms)
        else:
            is_safe = partition.when_synced(end, acknowledged)
        if not is_safe:
            request.waiting += 1

    def _settled(  # noqa: C901 - the hot path, straight on purpose
        self, request: PendingProduce, at: int = -1, error: ApiError | None = None
    ) -> None:
        """One batch less to wait for: it is as durable as `acks` asks, or failed with `error`.

        After the last one the request is done; its time is recorded if no batch failed.
        """
        if error is not None:
            request.results[at] = error
        request.waiting -= 1
        if request.waiting:
            return
        is_acknowledged = request.acks != NO_ACKS
        if is_acknowledged:
            now = self._clock.now()
            if now >= self._lease.until:
                _withhold(request)
        for result in request.results:
            if isinstance(result, ApiError):
                is_acknowledged = False
        if is_acknowledged:
            elapsed_ns = now - request.began_ns
            observed = ""
            for partition, _ in request.batches:
                assert isinstance(partition, LeaderPartition)
                topic = partition.name.topic
                if topic != observed:
                    observed = topic
                    figures = self._metrics.by_topic.get(topic) or self._metrics.figures_of(topic)
                    took = figures[2]
                    took.counts[bisect_left(took.bounds, elapsed_ns)] += 1
                    took.total += elapsed_ns
        request.done(request.results)

    def _wait(
        self,
        lane: ProducerLane,
        records: bytearray,
        transaction: TransactionalRequest | None,
        sender: "PendingProduce | PendingBatch | None",
        *,
        on_all: bool,
        is_turn: bool = False,
    ) -> PendingAppend:
        """Wait for an earlier batch that is with a worker."""
        pending = PendingAppend()

        def turn() -> bool:
            outcome = self._append(lane[0], memoryview(records), on_all, transaction, is_turn, sender)
            if isinstance(outcome, PendingAppend):
                outcome.done = pending.done
                return not isinstance(outcome, PendingVerification)
            self._settle(lane[0], pending, outcome)
            return False

        self._offload.wait(lane, turn)
        return pending

    def _settle(
        self, partition: LeaderPartition, pending: PendingAppend, outcome: AppendResult | ApiError
    ) -> None:
        if isinstance(outcome, ApiError):
            self._metrics.refused(partition.name.topic, outcome.kind)
        pending.done(outcome)

    def _append(  # noqa: C901 - the hot path, straight on purpose
        self,
        partition: LeaderPartition,
        records: memoryview,
        on_all: bool,
        transaction: TransactionalRequest | None = None,
        is_turn: bool = False,
        sender: "PendingProduce | PendingBatch | None" = None,
    ) -> AppendResult | ApiError | PendingAppend:
        # Before the options, which a deleted topic does not have.
        if partition.stopped is not None:
            return _cannot_take(partition)
        topic = partition.name.topic
        # Settings that changed count for the log once they were asked for.
        options = self._partitions.known_options.get(topic) or self._partitions.options(topic)
        # Before the duplicate check: the first copy of a retry may never have reached the device.
        if on_all and not partition.has_min_isr:
            partition.has_refused_writes = True
            return self._refuse_for_now(partition, records, _cannot_take(partition))
        try:
            if len(records) > options.max_message_bytes:
                return _too_large(records, options)
            header = check_client_batch(records)
            if isinstance(header, ApiError):
                return header
            producer_id, base, latest = header.producer_id, header.base_timestamp, header.max_timestamp
            now = self._clock.wall()
            # Kafka compares every record's time; the header's extremes give the same result if valid.
            if options.timestamp_type is not LOG_APPEND_TIME and (
                latest - now > options.timestamp_after_max_ms
                or base - now > options.timestamp_after_max_ms
                or (now - base > options.timestamp_before_max_ms and base != NO_TIMESTAMP)
            ):
                return _refused_time(header, now, options)
            if producer_id >= 0:
                verdict = partition.log.producers.check(header)
                if isinstance(verdict, DuplicateBatch):
                    return _placed_before(verdict, options, partition)
                if isinstance(verdict, ApiError) and (
                    # Behind one that waits for its coordinator, the sequence is checked when its turn comes.
                    is_turn
                    or not header.attributes & TRANSACTIONAL
                    or not self._verification.is_asking(partition, header)
                ):
                    return _rejected(partition, header, verdict, now)
            if header.attributes & TRANSACTIONAL:
                waits = self._verify(partition, records, header, on_all, transaction, is_turn)
                if waits is not None:
                    return waits
            if (
                options.deep_validation
                or options.compression is not None
                # Testing an enum flag costs two calls, and nearly every topic is one of these.
                or (options.cleanup is not DELETE_ONLY and options.compacted)
            ):
                return self._look_into(partition, records, header, options, sender)
            return self._place(partition, records, header, options, now)
        except CorruptionError as error:
            return ApiError(ErrorKind.CORRUPT_BATCH, str(error))

    def _refuse_for_now(self, partition: LeaderPartition, records: memoryview, refused: ApiError) -> ApiError:
        with suppress(CorruptionError):
            header = check_client_batch(records)
            if not isinstance(header, ApiError):
                return _skip(partition, header, refused, self._clock.wall())
        return refused

    def _verify(
        self,
        partition: LeaderPartition,
        records: memoryview,
        header: BatchHeader,
        on_all: bool,
        transaction: TransactionalRequest | None,
        is_turn: bool,
    ) -> ApiError | PendingVerification | None:
        """None if the transaction is open or verified; or wait for its coordinator."""
        verification = self._verification
        if transaction is None:
            return NO_TRANSACTIONAL_ID
        if header.producer_id < 0:
            return ApiError(ErrorKind.INVALID_RECORD, "a transactional batch needs a producer id")
        producer = TransactionWriter(transaction, header.producer_id, header.producer_epoch)
        refused = verification.check_sequence(partition, producer, header.base_sequence, is_turn=is_turn)
        if refused is not None or is_turn:
            # When it is the batch's turn, it is checked again where it is appended.
            return refused
        if verification.admits_now(partition, header.producer_id, header.producer_epoch):
            return None
        if verification.verify_now(partition, producer, header.base_sequence):
            return None
        pending = PendingVerification()
        batch = bytearray(records)

        turn = partial(self._verified, partition, batch, on_all, transaction, pending)
        refused = verification.park(
            partition,
            producer,
            turn,
            sequence=header.base_sequence,
            size_bytes=PARKED_BATCH_BYTES + len(batch),
        )
        return refused or pending

    def _verified(
        self,
        partition: LeaderPartition,
        batch: bytearray,
        on_all: bool,
        transaction: TransactionalRequest,
        pending: PendingVerification,
        error: ApiError | None,
    ) -> None:
        """The coordinator has answered: append the batch, if it may be appended and no worker has another."""
        outcome: AppendResult | ApiError | PendingAppend
        # A transactional batch has a producer id, so its client does not matter.
        lane = lane_of(partition, batch, None)
        if error is not None:
            outcome = partition.stopped or produce_error(error, transaction)
        elif lane in self._offload.queues:
            outcome = self._wait(lane, batch, transaction, None, on_all=on_all, is_turn=True)
        else:
            outcome = self._append(partition, memoryview(batch), on_all, transaction, is_turn=True)
        if isinstance(outcome, PendingAppend):
            outcome.done = pending.done
        else:
            self._settle(partition, pending, outcome)

    def _look_into(
        self,
        partition: LeaderPartition,
        records: memoryview,
        header: BatchHeader,
        options: TopicOptions,
        sender: "PendingProduce | PendingBatch | None",
    ) -> AppendResult | ApiError | PendingAppend:
        client = None if sender is None else sender.client
        if header.record_count > RECORDS_MAX:
            return ApiError(
                ErrorKind.BATCH_TOO_LARGE, f"a batch of this topic has at most {RECORDS_MAX} records"
            )
        if is_large(header):
            return self._send(partition, bytes(records), header, options, client)
        try:
            finished = finish_batch(
                records,
                options.compression,
                options.compression_level,
                keyed=options.compacted,
                limit_bytes=LARGE_BYTES,
            )
        except RecordsTooLarge:
            # A few bytes that unpack to many.
            return self._send(partition, bytes(records), header, options, client)
        return self._place_finished(partition, records, finished, options)

    def _send(
        self,
        partition: LeaderPartition,
        batch: bytes,
        header: BatchHeader,
        options: TopicOptions,
        client: Hashable,
    ) -> PendingAppend:
        """Have a worker validate the records, and compress them again."""
        pending = PendingAppend()

        def done(finished: Finished) -> None:
            outcome: AppendResult | ApiError
            if partition.stopped is not None:
                outcome = partition.stopped
            else:
                outcome = self._place_finished(partition, memoryview(bytearray(batch)), finished, options)
            self._settle(partition, pending, outcome)

        def failed(error: Exception) -> None:
            refused = ApiError(ErrorKind.STORAGE_FAILED, f"worker failed: {error}")
            if isinstance(error, RecordsTooLarge):
                # A producer may try again with fewer of them.
                refused = ApiError(ErrorKind.BATCH_TOO_LARGE, str(error))
            elif isinstance(error, WorkersBusy | ExecutorFull):
                # Nothing was appended: the client may try again.
                refused = ApiError(ErrorKind.TIMED_OUT, str(error))
                _skip(partition, header, refused, self._clock.wall())
            else:
                # Perhaps this batch kills workers: it must not run on the loop.
                events.warning("produce.worker_failed", partition=str(partition.name), error=error)
            self._settle(partition, pending, refused)

        work = partial(
            finish_batch, batch, options.compression, options.compression_level, keyed=options.compacted
        )
        self._offload.send(
            lane_of(partition, batch, client),
            work,
            len(batch),
            done,
            failed,
            is_heavy=len(batch) > LIGHT_BYTES or header.record_count > LIGHT_RECORDS,
        )
        return pending

    def _place_finished(
        self, partition: LeaderPartition, records: memoryview, finished: Finished, options: TopicOptions
    ) -> AppendResult | ApiError:
        if isinstance(finished, ApiError):
            return finished
        if finished is not None:
            records = memoryview(bytearray(finished))
        return self._place(partition, records, check_batch(records), options, self._clock.wall())

    def _place(
        self,
        partition: LeaderPartition,
        records: memoryview,
        header: BatchHeader,
        options: TopicOptions,
        now: Timestamp,
    ) -> AppendResult | ApiError:
        append_time = NO_TIMESTAMP
        if header.producer_id >= 0:
            refused = self._check_transaction(partition, header)
            if refused is not None:
                return refused
        if options.timestamp_type is LOG_APPEND_TIME:
            stamp_log_append_time(records, 0, now)
            header = check_batch(records)
            append_time = now
        try:
            appended = partition.append(records, (header,), now)
        except PartitionStopped as error:
            return ApiError(ErrorKind.NOT_LEADER, str(error))
        except BatchTooLarge as error:
            return ApiError(ErrorKind.BATCH_TOO_LARGE, str(error))
        except StorageError as error:
            return _skip(partition, header, ApiError(ErrorKind.STORAGE_FAILED, str(error)), now)
        if header.attributes & TRANSACTIONAL:
            self._verification.appended(partition, header.producer_id, header.producer_epoch)
        first, end = appended[0], Offset(appended[1] + 1)
        topic = partition.name.topic
        figures = self._metrics.by_topic.get(topic) or self._metrics.figures_of(topic)
        figures[0].count += end - first
        figures[1].count += len(records)
        # Not by its constructor, which is a Python call.
        return tuple.__new__(AppendResult, (first, end, append_time, appended.log_start))

    def _check_transaction(self, partition: LeaderPartition, header: BatchHeader) -> ApiError | None:
        """Not earlier than at the append: a marker may have come while a worker had the batch."""
        if header.attributes & TRANSACTIONAL:
            is_open = self._verification.admits(partition, header.producer_id, header.producer_epoch)
            return None if is_open else ENDED
        transactions = partition.log.producers.transactions
        if not transactions.is_quiet and transactions.is_open(header.producer_id):
            return NOT_TRANSACTIONAL
        return None


def _general(request: PendingBatch, timeout_ms: int) -> PendingProduce:
    """The same request in the form that can wait for a worker."""

    def done(results: Results) -> None:
        request.respond(results[0])

    general = PendingProduce(request.acks, timeout_ms, request.began_ns, done, request.pause, request.resume)
    general.client = request.client
    return general


def _ignore(_: AppendResult | ApiError) -> None:
    """Do nothing: the caller has not set a callback yet."""


def _has_others(partition: LeaderPartition) -> bool:
    """Whether a write is committed only if another replica has it too."""
    return len(partition.isr.assignment.isr) > 1


def _withhold(request: PendingProduce) -> None:
    """The lease ended before the acknowledgement: what only this node has may be lost already."""
    for at, (partition, _) in enumerate(request.batches):
        if isinstance(partition, ApiError) or isinstance(request.results[at], ApiError):
            continue
        if request.acks != ALL_ACKS or not _has_others(partition):
            request.results[at] = NO_LEASE


def _without_verdicts(done: Callable[[Results], None], results: Results) -> None:
    """Errors that rest on this node's view of a producer are for the present leader to give."""
    done([NO_LEASE if _is_verdict(result) else result for result in results])


def _is_verdict(result: AppendResult | ApiError) -> bool:
    return isinstance(result, ApiError) and result.kind in PRODUCER_VERDICTS


def _cannot_take(partition: LeaderPartition) -> ApiError:
    if partition.stopped is not None:
        return partition.stopped
    state = partition.isr.assignment
    return ApiError(
        ErrorKind.NOT_ENOUGH_REPLICAS,
        f"{len(state.isr)} of {len(state.replicas)} replicas are in sync, {state.minimum} are needed",
    )


def _skip(partition: LeaderPartition, header: BatchHeader, refused: ApiError, now: Timestamp) -> ApiError:
    """A batch was not written, and its producer will send it again; returns why."""
    if header.producer_id >= 0:
        skipped = partition.skipped
        if len(skipped) >= SKIPPED_MAX:
            del skipped[next(iter(skipped))]
        skipped[header.producer_id] = refused, now
    return refused


def _rejected(partition: LeaderPartition, header: BatchHeader, verdict: ApiError, now: Timestamp) -> ApiError:
    """Why the producer's view of its batches and ours differ.

    Behind a batch that was not written, the next ones are out of order. A producer that was told so would
    conclude that records were lost, and send everything that is not acknowledged again under another epoch,
    of all partitions: what was written and not yet acknowledged would be there twice.
    """
    skipped = partition.skipped.get(header.producer_id)
    if verdict.kind is not ErrorKind.OUT_OF_ORDER_SEQUENCE or skipped is None:
        return verdict
    refused, at = skipped
    if now - at >= SKIPPED_MS:
        # It was not sent again: so the producer has given it up.
        return verdict
    return ApiError(refused.kind, f"a batch before this one was not written: {refused.detail}")


def _placed_before(seen: DuplicateBatch, options: TopicOptions, partition: LeaderPartition) -> AppendResult:
    """The result that the first copy of a batch got, or is still waiting for."""
    by_broker = options.timestamp_type is LOG_APPEND_TIME
    append_time = seen.timestamp if by_broker else NO_TIMESTAMP
    return AppendResult(seen.first_offset, Offset(seen.last_offset + 1), append_time, partition.log.start)


def _refused_time(header: BatchHeader, now: Timestamp, options: TopicOptions) -> ApiError:
    # Some clients leave out the max timestamp.
    latest = max(header.base_timestamp, header.max_timestamp)
    if latest - now > options.timestamp_after_max_ms:
        detail = f"timestamp {latest} is more than {options.timestamp_after_max_ms} ms ahead"
    else:
        detail = f"timestamp {header.base_timestamp} is more than {options.timestamp_before_max_ms} ms old"
    return ApiError(ErrorKind.INVALID_TIMESTAMP, detail)


def _too_large(records: memoryview, options: TopicOptions) -> ApiError:
    return ApiError(
        ErrorKind.BATCH_TOO_LARGE,
        f"the batch has {len(records)} bytes, the topic's max.message.bytes is {options.max_message_bytes}",
    )
