"""Publishes delayed records that are due.

    ahead of time   TakeDueDelays ── records from `__delayed` ── the transaction gets its partitions
    when due        ┬─ append to each target partition ──┬─ commit: both
                    └─ EndDelays to `__delayed` ─────────┘  abort: neither

What takes time and nobody sees is done before the records are due: they are looked for, read, and sorted, and
the transaction's coordinator hears of the partitions that take part. Nothing is appended before the last
record of the transaction is due by the clock of this node: consumers of uncommitted records would see it.
If the clock goes back meanwhile, what was taken is put back.

A node publishes for all partitions of `__delayed` that it leads, in transactions over those of them where
something is due: a transaction costs as much as dozens of records. It does so in several lanes, each with a
transactional id of its own: while one waits for its transaction, the next takes what is due by then.

The ids are those of one partition that the node leads, the *owner*, so that they change hands with it. A
leader that takes over begins with the ids of its partition, and with those of all others if it finds delays
that a transaction is to decide on: this fences the node before, and ends what it has left open. Should that
be a transaction of a node that lives, this node does the same again a moment later.

A topic that cannot be written to, or is not there, waits alone; its records are released, and taken again
when its wait is over.
"""

from bisect import bisect_right
from collections import Counter
from functools import partial
from itertools import accumulate
from typing import Protocol

from penstock.broker.coordinator import delay_records
from penstock.broker.coordinator.delay_metrics import DelayMetrics
from penstock.broker.coordinator.delays import DelayService
from penstock.broker.partitions import LeaderPartition
from penstock.broker.queues.move_transaction import (
    BATCH_BYTES_MAX,
    BATCH_OVERHEAD_BYTES,
    RECORD_OVERHEAD_BYTES,
    MovePeers,
    MoveTransaction,
)
from penstock.broker.queues.record_reader import CommittedRecords, RecordReader
from penstock.broker.transactions.coordinator_commands import TransactionalCommand, TransactionalCommands
from penstock.core.delays import (
    ANY_PARTITION,
    DelayedRecords,
    DelayOptions,
    DelayReply,
    DelayResults,
    DelaysStored,
    DueDelays,
    EndDelays,
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
    Timestamp,
    TopicName,
    TopicPartition,
)
from penstock.core.queues import TransactionProducer
from penstock.core.records import murmur2_partition
from penstock.core.records.builder import NO_KEY, join_bodies, key_of
from penstock.observability import log as events
from penstock.runtime import Callback, Runtime

LANES = 2
AHEAD_MS = DelayOptions().ahead_ms
# Of one transaction.
RECORDS_MAX = 1_000
BYTES_MAX = 1 << 20
# A transaction costs as much as a hundred records: the next lane waits for some more of them. No record is
# held back by more than this for those that are due behind it. A node that has no time to keep up gathers for
# half as long as records are late already, so that fewer transactions leave it more of its time.
GATHER_MS = 15
GATHER_MS_MAX = 100
# The coordinators of a node look at their clocks one after the other.
MEET_MS = 2
RETRY_MS = 5
RETRIES_MAX = 1_000
# After something went wrong that no topic is to blame for.
REST_MS = 200
# Of records that were read with others, and are kept until they are due as well; for each partition.
READ_BYTES_MAX = 1 << 20
# What is due a moment after it was stored waits for the log, at most.
STORED_TIMEOUT_MS = 5_000
ID_BYTES = 16
COMMAND_BYTES = 500


class Transactions(Protocol):
    """Makes commands part of transactions."""

    def submit(self, command: TransactionalCommand) -> None: ...

    def expect(
        self, partition: LeaderPartition, producer: TransactionProducer, transactional_id: str
    ) -> None: ...


class PublisherPartitions(Protocol):
    """The partitions that this node leads, and the options of all topics."""

    def find(self, topic: str, index: int) -> LeaderPartition | None: ...

    def options(self, topic: str) -> TopicOptions: ...


class _ReadRecords:
    """Delayed records that one record of the log has."""

    __slots__ = ("places", "records")

    def __init__(self, records: DelayedRecords) -> None:
        self.records = records
        self.places = dict(zip(records.ids, range(len(records.ids)), strict=True))


class _Source:
    """A partition of `__delayed` that this node leads."""

    __slots__ = ("_read_bytes", "is_due", "partition", "read", "reports")

    def __init__(self, partition: LeaderPartition) -> None:
        self.partition = partition
        # Whether it may have delays to take.
        self.is_due = False
        # How often its coordinator has said so.
        self.reports = 0
        # What was read, the oldest first.
        self.read: dict[Offset, _ReadRecords] = {}
        self._read_bytes = 0

    @property
    def index(self) -> int:
        return self.partition.name.partition

    def keep(self, found: CommittedRecords) -> None:
        """Decode what was read."""
        for record in found.records:
            try:
                fact = delay_records.decode(record.key, record.value)
            except ProtocolError:
                continue
            offset = Offset(record.offset)
            if isinstance(fact, DelaysStored) and offset not in self.read:
                self.read[offset] = _ReadRecords(fact.records)
                self._read_bytes += len(fact.records.content)

    def forget(self) -> None:
        """Drop what is beyond the limit."""
        while self._read_bytes > READ_BYTES_MAX:
            self._read_bytes -= len(self.read.pop(next(iter(self.read))).records.content)


class _Batch:
    """What is published to one partition: bodies, when each was due, and their delays by source."""

    __slots__ = ("bodies", "ids", "times")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.times: list[int] = []
        # Source after source, in the order of the bodies.
        self.ids: dict[int, list[int]] = {}

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.bodies)) + RECORD_OVERHEAD_BYTES * len(self.bodies)

    def cut(self, bytes_max: int) -> dict[int, list[int]]:
        """Keep what fits into so many bytes, and at least one; the ids of the others by source."""
        if self.size_bytes <= bytes_max:
            return {}
        ends = list(accumulate(len(body) + RECORD_OVERHEAD_BYTES for body in self.bodies))
        kept = max(1, bisect_right(ends, bytes_max))
        del self.bodies[kept:], self.times[kept:]
        left: dict[int, list[int]] = {}
        for index, ids in self.ids.items():
            if ids[kept:]:
                left[index] = ids[kept:]
                del ids[kept:]
            kept -= len(ids)
        self.ids = {index: ids for index, ids in self.ids.items() if ids}
        return left


class _Lane:
    """One transaction after the other."""

    __slots__ = (
        "batches",
        "due",
        "errors",
        "found",
        "held",
        "is_busy",
        "number",
        "retries",
        "transaction",
        "unsure",
        "waiting",
    )

    def __init__(self, number: int, transaction: MoveTransaction) -> None:
        self.number = number
        self.transaction = transaction
        self.is_busy = False
        # Partitions that may have it that the lane holds delays which it does not know of.
        self.unsure: dict[int, None] = {}
        # By partition of `__delayed`: what the lane has taken, and what was read for it.
        self.due: dict[int, DueDelays] = {}
        self.found: dict[int, dict[Offset, _ReadRecords]] = {}
        # What its transaction is about: batches by their target, ids by partition of `__delayed`.
        self.batches: dict[TopicPartition, _Batch] = {}
        self.held: dict[int, tuple[int, ...]] = {}
        # Of the steps that go on at the same time: how many, and what went wrong, by topic.
        self.waiting = 0
        self.retries = 0
        self.errors: dict[str, ApiError] = {}


class DelayPublisher:
    """Publishes for the partitions of `__delayed` that this node leads."""

    def __init__(
        self,
        runtime: Runtime,
        delays: DelayService,
        peers: MovePeers,
        commands: TransactionalCommands,
        partitions: PublisherPartitions,
        metrics: DelayMetrics,
    ) -> None:
        self._runtime = runtime
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._delays = delays
        self._peers = peers
        self._commands: Transactions = commands
        self._reader = RecordReader(runtime)
        self._partitions = partitions
        self._options_of = partitions.options
        self._metrics = metrics
        self._lateness = metrics.lateness.of()
        self._image = MetadataImage()
        self._sources: dict[int, _Source] = {}
        self._owner: _Source | None = None
        self._lanes: list[_Lane] = []
        self._turn = 0
        # When a lane is to be woken, and from when on one may take.
        self._waking_at: Instant | None = None
        self._take_at = Instant(0)

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def publish(self, partition: LeaderPartition, *, is_open: bool) -> None:
        """Publish what is due, unless every lane is at it; `is_open`: a transaction decides on some of it."""
        index = partition.name.partition
        source = self._sources.get(index)
        is_new = source is None or source.partition is not partition
        if source is None or is_new:
            source = self._sources[index] = _Source(partition)
        source.is_due = True
        source.reports += 1
        self._check_owner()
        if is_new:
            # Whatever its leader before has left open is ended.
            for owner in range(self._delays.count) if is_open else (index,):
                for number in range(LANES):
                    self._end_transaction(source, owner, number)
        # Not now: other partitions may have delays that are due at the same time.
        self._wake_at(Instant(self._clock.now() + MEET_MS * MILLISECOND))

    def _check_owner(self) -> None:
        """Have lanes, under the ids of a partition that this node leads."""
        for index in [index for index, each in self._sources.items() if each.partition.stopped is not None]:
            del self._sources[index]
        owner = self._owner
        if owner is not None and self._sources.get(owner.index) is owner:
            return
        self._owner = next(iter(self._sources.values()), None)
        # Lanes of before end what they are at, and do not begin again.
        self._lanes = []
        if self._owner is not None:
            index = self._owner.index
            self._lanes = [_Lane(number, self._transaction(index, number)) for number in range(LANES)]
            for lane in self._lanes:
                # One of before with this number may have left delays that nobody knows of.
                lane.unsure = dict.fromkeys(self._sources)
                self._begin(lane)

    def _transaction(self, owner: int, number: int) -> MoveTransaction:
        transactional_id = f"penstock-delays-{owner}-{number}"
        return MoveTransaction(self._runtime, self._peers, transactional_id, RETRY_MS)

    def _end_transaction(self, source: _Source, owner: int, number: int) -> None:
        """Begin with the id of another node, whose open transaction this ends."""

        def begun(error: ApiError | None) -> None:
            if error is not None:
                self._after_rest(partial(self._end_transaction, source, owner, number))

        is_own = self._owner is not None and self._owner.index == owner
        if source.partition.stopped is None and not is_own:
            self._transaction(owner, number).begin(begun)

    def _wake_at(self, at: Instant) -> None:
        """Have a lane take at this time, or when it is time for a take."""
        at = max(at, self._take_at)
        if self._waking_at is None or at < self._waking_at:
            self._waking_at = at
            self._timers.at(at, partial(self._wake, at))

    def _wake(self, at: Instant) -> None:
        if at != self._waking_at:
            # Another timer was earlier.
            return
        self._waking_at = None
        # What a lane holds without knowing is put back when this lane takes again, by no other.
        for lane in sorted(self._lanes, key=lambda each: not each.unsure):
            if not lane.is_busy:
                # They take turns.
                self._lanes.remove(lane)
                self._lanes.append(lane)
                self._begin(lane)
                return

    def _begin(self, lane: _Lane) -> None:
        lane.due, lane.found, lane.batches, lane.held, lane.errors = {}, {}, {}, {}, {}
        # A first transaction is begun in any case, to end the one of whoever had the id before.
        lane.is_busy = lane in self._lanes and (not lane.transaction.is_begun or bool(self._due_for(lane)))
        if lane.is_busy:
            lane.transaction.begin(partial(self._begun, lane))

    def _due_for(self, lane: _Lane) -> list[_Source]:
        return [
            source
            for source in self._sources.values()
            if source.partition.stopped is None and (source.is_due or source.index in lane.unsure)
        ]

    def _begun(self, lane: _Lane, error: ApiError | None) -> None:
        sources = self._due_for(lane)
        if error is not None:
            self._rest(lane, error)
            return
        if not sources:
            lane.is_busy = False
            return
        lane.waiting = len(sources)
        wall = self._clock.wall()
        firsts = [first for each in sources if (first := self._delays.first_due(each.index)) is not None]
        first = min(firsts, default=wall)
        gather_ms = max(GATHER_MS, min((wall - first) // 2, GATHER_MS_MAX))
        self._take_at = Instant(self._clock.now() + gather_ms * MILLISECOND)
        # Ahead of the clock, unless records are late already.
        until = Timestamp(max(wall, min(wall + AHEAD_MS, first + GATHER_MS)))
        for source in sources:
            self._delays.submit(
                TakeDueDelays(
                    on_reply=partial(self._took, lane, source, source.reports),
                    partition=source.index,
                    lane=lane.number,
                    until=until,
                    records_max=max(1, RECORDS_MAX // len(sources)),
                    bytes_max=BYTES_MAX // len(sources),
                )
            )

    def _took(self, lane: _Lane, source: _Source, reports: int, reply: DelayReply) -> None:
        if isinstance(reply, DueDelays):
            lane.unsure.pop(source.index, None)
            # There may be more. Its coordinator reports what is due behind an empty reply.
            source.is_due = bool(reply.ids) or source.reports != reports
            if reply.ids:
                lane.due[source.index] = reply
        else:
            lane.unsure[source.index] = None
            if isinstance(reply, ApiError):
                lane.errors[""] = reply
        lane.waiting -= 1
        if lane.waiting:
            return
        if lane.due:
            if sum(len(each.ids) for each in lane.due.values()) >= RECORDS_MAX:
                # There is enough for another.
                self._take_at = self._clock.now()
            # What is due next is not to wait for this transaction.
            self._wake_at(self._take_at)
            self._find_all(lane)
        elif lane.errors:
            self._rest(lane, lane.errors[""])
        else:
            lane.is_busy = False

    def _find_all(self, lane: _Lane) -> None:
        lane.errors = {}
        lane.waiting = len(lane.due)
        for index, due in list(lane.due.items()):
            source = self._sources.get(index)
            if source is None:
                self._read(lane, index, ApiError(ErrorKind.NOT_COORDINATOR))
            else:
                self._find(lane, source, tuple(dict.fromkeys(due.offsets)))

    def _find(self, lane: _Lane, source: _Source, offsets: tuple[Offset, ...]) -> None:
        read = source.read

        def stored(error: ApiError | None) -> None:
            if error is not None:
                self._read(lane, source.index, error)
                return
            unknown = [offset for offset in offsets if offset not in read]
            self._reader.collect(source.partition, unknown, source.keep, ended, is_own=True)

        def ended(error: ApiError | None) -> None:
            found = {offset: read[offset] for offset in offsets if offset in read}
            source.forget()
            self._read(lane, source.index, found if error is None else error)

        # What was stored a moment ago may not be committed yet.
        if source.partition.when_acknowledged(Offset(max(offsets) + 1), stored, STORED_TIMEOUT_MS):
            stored(None)

    def _read(self, lane: _Lane, index: int, found: dict[Offset, _ReadRecords] | ApiError) -> None:
        if isinstance(found, ApiError):
            lane.errors[""] = found
            self._release(lane, index, lane.due.pop(index).ids, ())
        else:
            lane.found[index] = found
        lane.waiting -= 1
        if lane.waiting:
            return
        if lane.due:
            lane.errors = {}
            self._sort(lane)
        else:
            self._rest(lane, lane.errors[""])

    def _sort(self, lane: _Lane) -> None:
        """Find out where the records belong, and publish those that fit into a batch for each partition."""
        batches: dict[TopicPartition, _Batch] = {}
        left: dict[int, list[int]] = {}
        unknown: dict[int, dict[str, None]] = {}
        self._turn += 1
        for index, due in lane.due.items():
            for offset, ids in due.by_offset().items():
                # A rewrite may have moved records meanwhile: then they are taken again where they are now.
                read = lane.found[index].get(offset)
                missed = ids if read is None else self._place(index, ids, read, batches, unknown)
                if missed:
                    left.setdefault(index, []).extend(missed)
        for target, batch in batches.items():
            limit = self._options_of(target.topic).max_message_bytes - BATCH_OVERHEAD_BYTES
            for index, cut in batch.cut(min(BATCH_BYTES_MAX, limit)).items():
                left.setdefault(index, []).extend(cut)
        for index, released in left.items():
            self._release(lane, index, tuple(released), tuple(unknown.get(index, ())))
        if batches:
            self._prepare(lane, batches)
        else:
            self._begin(lane)

    def _place(
        self,
        index: int,
        ids: list[int],
        read: _ReadRecords,
        batches: dict[TopicPartition, _Batch],
        unknown: dict[int, dict[str, None]],
    ) -> list[int]:
        """Add records to the batches of their targets; returns the ids of those that have none."""
        topic, _, times, partitions, ends, content = read.records
        places, missed = read.places, list[int]()
        # Of records without a key: where those for a partition, or for any, go.
        known: dict[int, _Batch | None] = {}
        for delay_id in ids:
            at = places.get(delay_id)
            if at is None:
                missed.append(delay_id)
                continue
            body = content[ends[at - 1] if at else 0 : ends[at]]
            wanted = partitions[at]
            if wanted == ANY_PARTITION and body[0] != NO_KEY:
                batch = self._batch_for(index, self._target_of(topic, wanted, key_of(body)), batches)
            elif wanted in known:
                batch = known[wanted]
            else:
                batch = known[wanted] = self._batch_for(index, self._target_of(topic, wanted, None), batches)
            if batch is None:
                missed.append(delay_id)
                unknown.setdefault(index, {})[topic] = None
                continue
            batch.bodies.append(body)
            batch.times.append(times[at])
            batch.ids[index].append(delay_id)
        return missed

    def _batch_for(
        self, index: int, target: TopicPartition | None, batches: dict[TopicPartition, _Batch]
    ) -> _Batch | None:
        """The batch for a target, which takes a record of this source next."""
        if target is None:
            return None
        found = batches.get(target)
        if found is None:
            found = batches[target] = _Batch()
        found.ids.setdefault(index, [])
        return found

    def _target_of(self, name: str, wanted: int, key: bytes | None) -> TopicPartition | None:
        """Where a record belongs among the partitions that there are now."""
        topic = self._image.topic(name)
        count = 0 if topic is None else len(topic.partitions)
        index = wanted
        if index == ANY_PARTITION and count:
            index = self._turn % count if key is None else murmur2_partition(key, count)
        if index >= count:
            return None
        return TopicPartition(TopicName(name), PartitionIndex(index))

    def _prepare(self, lane: _Lane, batches: dict[TopicPartition, _Batch]) -> None:
        """Have the transaction get its partitions, as far as they are led here, and wait for the time."""
        held: dict[int, list[int]] = {}
        for batch in batches.values():
            for index, ids in batch.ids.items():
                held.setdefault(index, []).extend(ids)
        lane.batches = batches
        lane.held = {index: tuple(taken) for index, taken in held.items()}
        lane.due, lane.found = {}, {}
        due = max(max(batch.times) for batch in batches.values())
        if due > self._clock.wall():
            led = [self._partitions.find(*target) for target in batches]
            led += [self._sources[index].partition for index in held if index in self._sources]
            for partition in led:
                if partition is not None:
                    transaction = lane.transaction
                    self._commands.expect(partition, transaction.producer, transaction.transactional_id)
        self._write_at(lane, due)

    def _write_at(self, lane: _Lane, due: int) -> None:
        """Write what the lane holds when all of it is due, not before."""
        wait_ms = due - self._clock.wall()
        if wait_ms <= 0:
            self._write(lane)
        elif wait_ms <= AHEAD_MS:
            at = Instant(self._clock.now() + wait_ms * MILLISECOND)
            self._timers.at(at, partial(self._write_at, lane, due))
        else:
            # The clock went back.
            lane.transaction.abort(partial(self._put_back, lane))

    def _put_back(self, lane: _Lane) -> None:
        for index, ids in lane.held.items():
            self._release(lane, index, ids, ())
        lane.is_busy = False

    def _write(self, lane: _Lane) -> None:
        batches = lane.batches
        lane.retries = 0
        lane.waiting = len(batches) + len(lane.held)
        now = self._clock.wall()
        for target, batch in batches.items():
            lane.transaction.append_written(
                target,
                partial(join_bodies, batch.bodies, now),
                batch.size_bytes,
                self._options_of(target.topic).max_message_bytes,
                partial(self._written, lane, target.topic),
            )
        producer = lane.transaction.producer
        for index, held_ids in list(lane.held.items()):
            command = EndDelays(
                on_reply=partial(self._ended, lane), partition=index, ids=held_ids, producer=producer
            )
            self._end_delays(lane, command)

    def _end_delays(self, lane: _Lane, command: EndDelays) -> None:
        self._commands.submit(
            TransactionalCommand(
                command.producer,
                lane.transaction.transactional_id,
                partial(self._delays.partition_at, command.partition),
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
        for target, batch in lane.batches.items():
            for due, count in Counter(batch.times).items():
                self._lateness.observe_equal(max(0, now - due) * MILLISECOND, count)
            self._metrics.published.of(target.topic).count += len(batch.bodies)
        lane.is_busy = False
        self._wake_at(self._clock.now())

    def _aborted(self, lane: _Lane) -> None:
        blocked = tuple(topic for topic in lane.errors if topic)
        for index, ids in lane.held.items():
            self._release(lane, index, ids, blocked)
        reason = next(iter(lane.errors.values()))
        if blocked:
            events.warning("delay.publish_failed", topics=",".join(blocked), reason=str(reason))
            self._begin(lane)
        else:
            self._rest(lane, reason)

    def _release(self, lane: _Lane, index: int, ids: tuple[int, ...], blocked: tuple[str, ...]) -> None:
        def released(reply: DelayReply) -> None:
            if isinstance(reply, ApiError):
                lane.unsure[index] = None

        self._delays.submit(
            ReleaseDelays(
                on_reply=released,
                partition=index,
                ids=ids,
                blocked=blocked,
            )
        )

    def _rest(self, lane: _Lane, reason: object) -> None:
        """The coordinators report once a second what is left."""
        if self._sources:
            id_ = lane.transaction.transactional_id
            events.warning("delay.publisher_waits", transactional_id=id_, reason=str(reason))

        def go_on() -> None:
            lane.is_busy = False
            self._check_owner()
            if lane.unsure or not lane.transaction.is_begun:
                self._begin(lane)

        self._after_rest(go_on)

    def _after_rest(self, go_on: Callback) -> None:
        self._timers.at(Instant(self._clock.now() + REST_MS * MILLISECOND), go_on)
