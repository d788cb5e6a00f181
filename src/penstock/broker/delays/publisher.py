"""Publishes delayed records that are due.

    TakeDueDelays ── records from `__delayed` ──┬─ append to each target partition ──┬─ commit: both
                                                └─ EndDelays to `__delayed` ─────────┘  abort: neither

The node that leads the partition of `__delayed` publishes, in several lanes, each with a transactional id of
its own: while one waits for its transaction, the next takes what is due by then. A leader that takes over
begins with all of them, which fences the one before and ends its open transactions.

A topic that cannot be written to, or is not there, waits alone; its records are released, and taken again
when its wait is over.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.broker.coordinator import delay_records
from penstock.broker.coordinator.delay_metrics import DelayMetrics
from penstock.broker.coordinator.delays import DelayService
from penstock.broker.partitions import LeaderPartition
from penstock.broker.queues.move_transaction import MovePeers, MoveTransaction, portion
from penstock.broker.queues.record_reader import RecordReader
from penstock.broker.transactions.coordinator_commands import TransactionalCommand, TransactionalCommands
from penstock.core.delays import (
    ANY_PARTITION,
    DelayedRecord,
    DelayReply,
    DelayResults,
    DelayStored,
    DueDelays,
    EndDelays,
    PendingDelay,
    ReleaseDelays,
    TakeDueDelays,
)
from penstock.core.metadata import MetadataImage
from penstock.core.metadata.configs import TopicOptions
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    Offset,
    PartitionIndex,
    ProtocolError,
    TopicName,
    TopicPartition,
)
from penstock.core.records import Record, murmur2_partition
from penstock.observability import log as events
from penstock.runtime import Runtime

LANES = 2
# Of one transaction.
RECORDS_MAX = 1_000
BYTES_MAX = 1 << 20
# A transaction costs as much as dozens of records: the next lane waits for some more of them.
GATHER_MS = 10
RETRY_MS = 5
RETRIES_MAX = 1_000
# After something went wrong that no topic is to blame for.
REST_MS = 200
# Decoded records that are kept: a few steps of the reader, whose batches are small.
READ_MAX = 2_000
ID_BYTES = 16
COMMAND_BYTES = 500


class Transactions(Protocol):
    """Makes commands part of transactions."""

    def submit(self, command: TransactionalCommand) -> None: ...


class _Lane:
    """One transaction after the other, of one partition of `__delayed`."""

    __slots__ = (
        "errors",
        "is_busy",
        "is_unsure",
        "number",
        "partition",
        "read",
        "retries",
        "taken",
        "transaction",
        "waiting",
    )

    def __init__(
        self,
        number: int,
        partition: LeaderPartition,
        transaction: MoveTransaction,
        read: dict[Offset, Record],
    ) -> None:
        self.number = number
        self.partition = partition
        # Records that were decoded with others: those of a partition share them.
        self.read = read
        self.transaction = transaction
        self.is_busy = False
        # Whether the coordinator may have it that the lane holds delays which it does not know of.
        self.is_unsure = False
        self.taken: tuple[PendingDelay, ...] = ()
        # Of the steps that go on at the same time: how many, and what went wrong, by topic.
        self.waiting = 0
        self.retries = 0
        self.errors: dict[str, ApiError] = {}

    @property
    def index(self) -> int:
        return self.partition.name.partition


class DelayPublisher:
    """Publishes for the partitions of `__delayed` that this node leads."""

    def __init__(
        self,
        runtime: Runtime,
        delays: DelayService,
        peers: MovePeers,
        commands: TransactionalCommands,
        options_of: Callable[[str], TopicOptions],
        metrics: DelayMetrics,
    ) -> None:
        self._runtime = runtime
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._delays = delays
        self._peers = peers
        self._commands: Transactions = commands
        self._reader = RecordReader(runtime)
        self._options_of = options_of
        self._metrics = metrics
        self._lateness = metrics.lateness.of()
        self._image = MetadataImage()
        self._lanes: dict[int, list[_Lane]] = {}
        self._turn = 0

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def publish(self, partition: LeaderPartition) -> None:
        """Publish what is due, unless every lane is at it."""
        index = partition.name.partition
        lanes = self._lanes.get(index)
        if lanes is None or lanes[0].partition is not partition:
            # A new leader: whatever its predecessor has left open is ended by all that begin.
            read: dict[Offset, Record] = {}
            lanes = self._lanes[index] = [self._new_lane(partition, lane, read) for lane in range(LANES)]
            for lane in lanes:
                self._begin(lane)
        else:
            self._wake(lanes)

    def _new_lane(self, partition: LeaderPartition, lane: int, read: dict[Offset, Record]) -> _Lane:
        transactional_id = f"penstock-delays-{partition.name.partition}-{lane}"
        transaction = MoveTransaction(self._runtime, self._peers, transactional_id, RETRY_MS)
        return _Lane(lane, partition, transaction, read)

    def _wake_later(self, lane: _Lane) -> None:
        is_full = len(lane.taken) >= RECORDS_MAX
        at = Instant(self._clock.now() + (0 if is_full else GATHER_MS * MILLISECOND))
        self._timers.at(at, partial(self._wake, self._lanes[lane.index]))

    def _wake(self, lanes: list[_Lane]) -> None:
        # What a lane holds without knowing is put back when this lane takes again, by no other.
        for lane in sorted(lanes, key=lambda each: not each.is_unsure):
            if not lane.is_busy:
                self._begin(lane)
                return

    def _begin(self, lane: _Lane) -> None:
        lane.is_busy = True
        lane.taken, lane.errors = (), {}
        if lane.partition.stopped is not None:
            lane.is_busy = False
            return
        lane.transaction.begin(partial(self._begun, lane))

    def _begun(self, lane: _Lane, error: ApiError | None) -> None:
        if error is not None:
            self._rest(lane, error)
            return
        self._delays.submit(
            TakeDueDelays(
                on_reply=partial(self._took, lane),
                partition=lane.index,
                lane=lane.number,
                records_max=RECORDS_MAX,
                bytes_max=BYTES_MAX,
            )
        )

    def _took(self, lane: _Lane, reply: DelayReply) -> None:
        lane.is_unsure = not isinstance(reply, DueDelays)
        if not isinstance(reply, DueDelays):
            self._rest(lane, reply)
        elif not reply.delays:
            lane.is_busy = False
        else:
            lane.taken = reply.delays
            # There may be more, and what is due next is not to wait for this transaction.
            self._wake_later(lane)
            self._find(lane, [delay.offset for delay in reply.delays])

    def _find(self, lane: _Lane, offsets: list[Offset]) -> None:
        read = lane.read
        known = {offset: record for offset in offsets if (record := read.pop(offset, None)) is not None}

        def found(more: dict[Offset, Record] | ApiError) -> None:
            for offset in offsets:
                read.pop(offset, None)
            self._read(lane, more if isinstance(more, ApiError) else known | more)

        def on_read(records: tuple[Record, ...]) -> None:
            # What is due next is often what was stored next.
            read.update((Offset(record.offset), record) for record in records)
            while len(read) > READ_MAX:
                del read[next(iter(read))]

        unknown = [offset for offset in offsets if offset not in known]
        self._reader.find(lane.partition, unknown, found, is_own=True, on_read=on_read)

    def _read(self, lane: _Lane, found: dict[Offset, Record] | ApiError) -> None:
        if isinstance(found, ApiError):
            self._release(lane, lane.taken, ())
            self._rest(lane, found)
            return
        by_target: dict[TopicPartition, list[tuple[PendingDelay, Record]]] = {}
        left: list[PendingDelay] = []
        unknown: dict[str, None] = {}
        now = self._clock.wall()
        self._turn += 1
        for delay in lane.taken:
            # A rewrite may have moved the record meanwhile: then it is taken again where it is now.
            record = _stored(delay, found.get(delay.offset))
            target = None if record is None else self._target_of(record)
            if record is None or target is None:
                left.append(delay)
                if record is not None:
                    unknown[delay.topic] = None
                continue
            published = Record(0, now, record.key, record.value, record.headers)
            by_target.setdefault(target, []).append((delay, published))
        batches: dict[TopicPartition, list[tuple[PendingDelay, Record]]] = {}
        for target, pairs in by_target.items():
            batches[target] = portion(pairs, self._options_of(target.topic).max_message_bytes)
            left += [delay for delay, _ in pairs[len(batches[target]) :]]
        if left:
            self._release(lane, tuple(left), tuple(unknown))
        if batches:
            self._write(lane, batches)
        else:
            self._begin(lane)

    def _target_of(self, record: DelayedRecord) -> TopicPartition | None:
        """Where the record belongs among the partitions that there are now."""
        topic = self._image.topic(record.topic)
        count = 0 if topic is None else len(topic.partitions)
        index = record.partition
        if index == ANY_PARTITION and count:
            index = self._turn % count if record.key is None else murmur2_partition(record.key, count)
        if index >= count:
            return None
        return TopicPartition(TopicName(record.topic), PartitionIndex(index))

    def _write(self, lane: _Lane, batches: dict[TopicPartition, list[tuple[PendingDelay, Record]]]) -> None:
        lane.taken = tuple(delay for pairs in batches.values() for delay, _ in pairs)
        lane.waiting = len(batches) + 1
        for target, pairs in batches.items():
            records = [record for _, record in pairs]
            bytes_max = self._options_of(target.topic).max_message_bytes
            lane.transaction.append(target, records, bytes_max, partial(self._written, lane, target.topic))
        ids = tuple(delay.id for delay in lane.taken)
        command = EndDelays(
            on_reply=partial(self._ended, lane),
            partition=lane.index,
            ids=ids,
            producer=lane.transaction.producer,
        )
        lane.retries = 0
        self._end_delays(lane, command)

    def _end_delays(self, lane: _Lane, command: EndDelays) -> None:
        self._commands.submit(
            TransactionalCommand(
                command.producer,
                lane.transaction.transactional_id,
                partial(self._delays.partition_at, lane.index),
                partial(self._delays.submit, command),
                partial(self._refused, lane, command),
                COMMAND_BYTES + ID_BYTES * len(command.ids),
            )
        )

    def _refused(self, lane: _Lane, command: EndDelays, error: ApiError) -> None:
        lane.retries += 1
        if error.kind is ErrorKind.CONCURRENT_TRANSACTIONS and lane.retries < RETRIES_MAX:
            # The markers of the transaction before are under way.
            again = partial(self._end_delays, lane, command)
            self._timers.at(Instant(self._clock.now() + RETRY_MS * MILLISECOND), again)
        else:
            self._ended(lane, error)

    def _ended(self, lane: _Lane, reply: DelayReply) -> None:
        done = isinstance(reply, DelayResults)
        self._written(lane, "", None if done or not isinstance(reply, ApiError) else reply)

    def _written(self, lane: _Lane, topic: str, error: ApiError | None) -> None:
        if error is not None:
            lane.errors[topic] = error
        lane.waiting -= 1
        if lane.waiting:
            return
        if not lane.errors:
            lane.transaction.commit(partial(self._committed, lane))
        else:
            lane.transaction.abort(partial(self._aborted, lane))

    def _committed(self, lane: _Lane, error: ApiError | None) -> None:
        if error is not None:
            # Perhaps it is committed: the marker says so, or that the transaction has timed out.
            self._rest(lane, error)
            return
        now = self._clock.wall()
        for delay in lane.taken:
            self._lateness.observe(max(0, now - delay.deliver_at) * MILLISECOND)
            self._metrics.published.of(delay.topic).count += 1
        lane.is_busy = False
        self._wake_later(lane)

    def _aborted(self, lane: _Lane) -> None:
        blocked = tuple(topic for topic in lane.errors if topic)
        self._release(lane, lane.taken, blocked)
        reason = next(iter(lane.errors.values()))
        if blocked:
            events.warning("delay.publish_failed", topics=",".join(blocked), reason=str(reason))
            self._begin(lane)
        else:
            self._rest(lane, reason)

    def _release(self, lane: _Lane, delays: tuple[PendingDelay, ...], blocked: tuple[str, ...]) -> None:
        def released(reply: DelayReply) -> None:
            lane.is_unsure |= isinstance(reply, ApiError)

        self._delays.submit(
            ReleaseDelays(
                on_reply=released,
                partition=lane.index,
                ids=tuple(delay.id for delay in delays),
                blocked=blocked,
            )
        )

    def _rest(self, lane: _Lane, reason: object) -> None:
        """The coordinator reports once a second what is left."""
        if lane.partition.stopped is None:
            events.warning("delay.publisher_waits", partition=str(lane.partition.name), reason=str(reason))

        def go_on() -> None:
            lane.is_busy = False
            if lane.is_unsure:
                self._begin(lane)

        self._timers.at(Instant(self._clock.now() + REST_MS * MILLISECOND), go_on)


def _stored(delay: PendingDelay, record: Record | None) -> DelayedRecord | None:
    try:
        fact = None if record is None else delay_records.decode(record.key, record.value)
    except ProtocolError:
        return None
    return fact.record if isinstance(fact, DelayStored) and fact.id == delay.id else None
