"""Publishes delayed records that are due.

    TakeDueDelays ── records from `__delayed` ──┬─ append to each target partition ──┬─ commit: both
                                                └─ EndDelays to `__delayed` ─────────┘  abort: neither

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

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

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
from penstock.runtime import Callback, Runtime

LANES = 2
# Of one transaction.
RECORDS_MAX = 1_000
BYTES_MAX = 1 << 20
# A transaction costs as much as a hundred records: the next lane waits for some more of them.
GATHER_MS = 20
# The coordinators of a node look at their clocks one after the other.
MEET_MS = 2
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


class _Source:
    """A partition of `__delayed` that this node leads."""

    __slots__ = ("is_due", "partition", "read", "reports")

    def __init__(self, partition: LeaderPartition) -> None:
        self.partition = partition
        # Whether it may have delays to take.
        self.is_due = False
        # How often its coordinator has said so.
        self.reports = 0
        # Records that were decoded with others.
        self.read: dict[Offset, Record] = {}

    @property
    def index(self) -> int:
        return self.partition.name.partition


class _Due(NamedTuple):
    """A delay that was taken, and where from."""

    source: int
    delay: PendingDelay


class _Lane:
    """One transaction after the other."""

    __slots__ = (
        "errors",
        "found",
        "is_busy",
        "number",
        "retries",
        "taken",
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
        # By partition of `__delayed`: what the lane holds, and the records that were read for it.
        self.taken: dict[int, tuple[PendingDelay, ...]] = {}
        self.found: dict[int, dict[Offset, Record]] = {}
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
        lane.taken, lane.found, lane.errors = {}, {}, {}
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
        self._take_at = Instant(self._clock.now() + GATHER_MS * MILLISECOND)
        for source in sources:
            self._delays.submit(
                TakeDueDelays(
                    on_reply=partial(self._took, lane, source, source.reports),
                    partition=source.index,
                    lane=lane.number,
                    records_max=max(1, RECORDS_MAX // len(sources)),
                    bytes_max=BYTES_MAX // len(sources),
                )
            )

    def _took(self, lane: _Lane, source: _Source, reports: int, reply: DelayReply) -> None:
        if isinstance(reply, DueDelays):
            lane.unsure.pop(source.index, None)
            # There may be more. Its coordinator reports what is due behind an empty reply, perhaps already:
            # a reply waits for the log.
            source.is_due = bool(reply.delays) or source.reports != reports
            if reply.delays:
                lane.taken[source.index] = reply.delays
        else:
            lane.unsure[source.index] = None
            if isinstance(reply, ApiError):
                lane.errors[""] = reply
        lane.waiting -= 1
        if lane.waiting:
            return
        if lane.taken:
            if sum(map(len, lane.taken.values())) >= RECORDS_MAX:
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
        lane.waiting = len(lane.taken)
        for index, delays in list(lane.taken.items()):
            source = self._sources.get(index)
            if source is None:
                self._read(lane, index, ApiError(ErrorKind.NOT_COORDINATOR))
            else:
                self._find(lane, source, [delay.offset for delay in delays])

    def _find(self, lane: _Lane, source: _Source, offsets: list[Offset]) -> None:
        read = source.read
        known = {offset: record for offset in offsets if (record := read.pop(offset, None)) is not None}

        def found(more: dict[Offset, Record] | ApiError) -> None:
            for offset in offsets:
                read.pop(offset, None)
            self._read(lane, source.index, more if isinstance(more, ApiError) else known | more)

        def on_read(records: tuple[Record, ...]) -> None:
            # What is due next is often what was stored next.
            read.update((Offset(record.offset), record) for record in records)
            while len(read) > READ_MAX:
                del read[next(iter(read))]

        unknown = [offset for offset in offsets if offset not in known]
        self._reader.find(source.partition, unknown, found, is_own=True, on_read=on_read)

    def _read(self, lane: _Lane, index: int, found: dict[Offset, Record] | ApiError) -> None:
        if isinstance(found, ApiError):
            lane.errors[""] = found
            self._release(lane, index, lane.taken.pop(index), ())
        else:
            lane.found[index] = found
        lane.waiting -= 1
        if lane.waiting:
            return
        if lane.taken:
            lane.errors = {}
            self._sort(lane)
        else:
            self._rest(lane, lane.errors[""])

    def _sort(self, lane: _Lane) -> None:
        """Find out where the records belong, and publish those that fit into a batch for each partition."""
        by_target: dict[TopicPartition, list[tuple[_Due, Record]]] = {}
        left: dict[int, list[PendingDelay]] = {}
        unknown: dict[int, dict[str, None]] = {}
        self._turn += 1
        for index, delays in lane.taken.items():
            self._sort_source(index, delays, lane.found[index], by_target, left, unknown)
        batches: dict[TopicPartition, list[tuple[_Due, Record]]] = {}
        for target, pairs in by_target.items():
            batches[target] = portion(pairs, self._options_of(target.topic).max_message_bytes)
            for due, _ in pairs[len(batches[target]) :]:
                left.setdefault(due.source, []).append(due.delay)
        for index, released in left.items():
            self._release(lane, index, tuple(released), tuple(unknown.get(index, ())))
        if batches:
            self._write(lane, batches)
        else:
            self._begin(lane)

    def _sort_source(
        self,
        index: int,
        delays: tuple[PendingDelay, ...],
        found: dict[Offset, Record],
        by_target: dict[TopicPartition, list[tuple[_Due, Record]]],
        left: dict[int, list[PendingDelay]],
        unknown: dict[int, dict[str, None]],
    ) -> None:
        now = self._clock.wall()
        # Of records without a key: where those for a partition, or for any, go.
        targets: dict[tuple[str, int], TopicPartition | None] = {}
        for delay in delays:
            # A rewrite may have moved the record meanwhile: then it is taken again where it is now.
            record = _stored(delay, found.get(delay.offset))
            if record is None:
                left.setdefault(index, []).append(delay)
                continue
            topic, wanted, key, value, headers = record
            place = topic, wanted
            if key is not None and wanted == ANY_PARTITION:
                target = self._target_of(record)
            elif place in targets:
                target = targets[place]
            else:
                target = targets[place] = self._target_of(record)
            if target is None:
                left.setdefault(index, []).append(delay)
                unknown.setdefault(index, {})[delay.topic] = None
                continue
            pair = _Due(index, delay), Record(0, now, key, value, headers)
            if target in by_target:
                by_target[target].append(pair)
            else:
                by_target[target] = [pair]

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

    def _write(self, lane: _Lane, batches: dict[TopicPartition, list[tuple[_Due, Record]]]) -> None:
        taken: dict[int, list[PendingDelay]] = {index: [] for index in lane.taken}
        for batch in batches.values():
            for (index, delay), _ in batch:
                taken[index].append(delay)
        taken = {index: delays for index, delays in taken.items() if delays}
        lane.taken = {index: tuple(delays) for index, delays in taken.items()}
        lane.found = {}
        lane.retries = 0
        lane.waiting = len(batches) + len(taken)
        for target, batch in batches.items():
            records = [record for _, record in batch]
            bytes_max = self._options_of(target.topic).max_message_bytes
            lane.transaction.append(target, records, bytes_max, partial(self._written, lane, target.topic))
        producer = lane.transaction.producer
        for index, delays in list(lane.taken.items()):
            command = EndDelays(
                on_reply=partial(self._ended, lane),
                partition=index,
                ids=tuple(delay.id for delay in delays),
                producer=producer,
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
        published: dict[str, int] = {}
        for delays in lane.taken.values():
            for delay in delays:
                self._lateness.observe(max(0, now - delay.deliver_at) * MILLISECOND)
                published[delay.topic] = published.get(delay.topic, 0) + 1
        for topic, count in published.items():
            self._metrics.published.of(topic).count += count
        lane.is_busy = False
        self._wake_at(self._clock.now())

    def _aborted(self, lane: _Lane) -> None:
        blocked = tuple(topic for topic in lane.errors if topic)
        for index, delays in lane.taken.items():
            self._release(lane, index, delays, blocked)
        reason = next(iter(lane.errors.values()))
        if blocked:
            events.warning("delay.publish_failed", topics=",".join(blocked), reason=str(reason))
            self._begin(lane)
        else:
            self._rest(lane, reason)

    def _release(
        self, lane: _Lane, index: int, delays: tuple[PendingDelay, ...], blocked: tuple[str, ...]
    ) -> None:
        def released(reply: DelayReply) -> None:
            if isinstance(reply, ApiError):
                lane.unsure[index] = None

        self._delays.submit(
            ReleaseDelays(
                on_reply=released,
                partition=index,
                ids=tuple(delay.id for delay in delays),
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


def _stored(delay: PendingDelay, record: Record | None) -> DelayedRecord | None:
    try:
        fact = None if record is None else delay_records.decode(record.key, record.value)
    except ProtocolError:
        return None
    return fact.record if isinstance(fact, DelayStored) and fact.id == delay.id else None
