"""Keeps the log of `__delayed` short: what is pending at its front is written again at its end.

    start ── read, a step at a time ──► where the log ended when the rewrite began ──────── end
               │ records that are pending, and are not written again yet                     ▲
               └─────────────────────────────────────────────────────────────────────────────┘

The values are in the log alone, and may be large: a step reads some, writes those that are still pending,
and waits until they are committed. Whatever happens meanwhile, a delay is compared with the machine and
written in one turn of the loop, with the transaction that decides on it; so a record behind the start of the
log says what is true. When all is written, the log before is deleted.
"""

from collections.abc import Callable
from functools import partial

from penstock.broker.coordinator import delay_records
from penstock.broker.coordinator.log_rewrite import RewritableLog, cut_log
from penstock.broker.queues.record_reader import CommittedRecords, RecordReader
from penstock.core.delays import DelayCoordinator, DelayedRecords, DelayOptions, DelaysStored, join_records
from penstock.core.model import MILLISECOND, ApiError, Instant, Offset, PenstockError
from penstock.core.queues import TransactionProducer
from penstock.observability import log as events
from penstock.runtime import Runtime, Timers

# The log may grow to this many times what is pending; below so many bytes it is not worth it.
GROWTH_MAX = 4
BYTES_MIN = 16 << 20
# Of a delay, besides its record.
COLUMN_BYTES = 32
RETRY_MS = 500
# As the machine stores them.
PORTION_BYTES = DelayOptions().portion_bytes


class DelayLogRewrite:
    """One rewrite under way."""

    def __init__(self, runtime: Runtime, coordinator: RewritableLog, done: Callable[[], None]) -> None:
        self._coordinator = coordinator
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._reader = RecordReader(runtime)
        self._done = done
        self._position = coordinator.partition.log.start
        self._end = coordinator.partition.log.end
        self._is_cancelled = False

    @staticmethod
    def if_due(
        runtime: Runtime,
        coordinator: RewritableLog,
        _timers: Timers,
        records_min: int,
        done: Callable[[], None],
    ) -> "DelayLogRewrite | None":
        """A rewrite, if the log has grown to several times what is pending: in records, or in bytes."""
        machine: DelayCoordinator = coordinator.machine
        log, pending = coordinator.partition.log, machine.pending
        records = log.end - log.start
        is_long = records >= records_min and records >= GROWTH_MAX * len(pending)
        if not is_long:
            # One record of the log may have a hundred of those that are to be published.
            size_bytes = log.size_bytes
            needed = pending.size_bytes + COLUMN_BYTES * len(pending)
            is_long = size_bytes >= BYTES_MIN and size_bytes >= GROWTH_MAX * needed
        return DelayLogRewrite(runtime, coordinator, done) if is_long else None

    def start(self) -> None:
        self._timers.soon(self._step)

    def cancel(self) -> None:
        """Stop: the machine is being dropped; what was written stays and does no harm."""
        self._is_cancelled = True

    def _step(self) -> None:
        if self._is_cancelled:
            return
        partition = self._coordinator.partition
        if self._position >= self._end:
            cut_log(partition, self._end)
            self._done()
            return
        self._reader.read(partition, self._position, self._read, is_own=True)

    def _read(self, found: CommittedRecords | ApiError) -> None:
        if self._is_cancelled:
            return
        if isinstance(found, ApiError) or found.end <= self._position:
            if isinstance(found, ApiError):
                name = str(self._coordinator.partition.name)
                events.warning("coordinator.log_rewrite_waits", partition=name, error=str(found))
            self._timers.at(Instant(self._clock.now() + RETRY_MS * MILLISECOND), self._step)
            return
        self._position = found.end
        try:
            facts = self._pending(found)
        except PenstockError as error:
            # The next start will say so as well. Nothing is deleted.
            events.error(
                "coordinator.log_rewrite_failed", partition=str(self._coordinator.partition.name), error=error
            )
            self._is_cancelled = True
            return
        if not facts:
            self._timers.soon(self._step)
        elif self._coordinator.append(facts):
            partition = self._coordinator.partition
            if partition.when_acknowledged(partition.log.end, self._committed):
                self._timers.soon(self._step)

    def _pending(self, found: CommittedRecords) -> list[DelaysStored]:
        """The delays whose records these are, as they are to be written: those of a topic together."""
        machine: DelayCoordinator = self._coordinator.machine
        kept: dict[tuple[str, TransactionProducer | None], list[DelayedRecords]] = {}
        for record in found.records:
            fact = delay_records.decode(record.key, record.value)
            if record.offset >= self._end or not isinstance(fact, DelaysStored):
                continue
            ids, offset = fact.records.ids, Offset(record.offset)
            by_producer: dict[TransactionProducer | None, list[int]] = {}
            for at, place in enumerate(machine.pending.places_of(ids)[0]):
                if place == offset:
                    by_producer.setdefault(machine.ending.get(ids[at]), []).append(at)
            for producer, places in by_producer.items():
                kept.setdefault((fact.records.topic, producer), []).append(fact.records.only(places))
        return [
            DelaysStored(portion, producer)
            for (_, producer), parts in kept.items()
            for portion in join_records(parts).portions(PORTION_BYTES)
        ]

    def _committed(self, error: object) -> None:
        if not self._is_cancelled:
            if error is None:
                self._timers.soon(self._step)
            else:
                self._timers.at(Instant(self._clock.now() + RETRY_MS * MILLISECOND), partial(self._step))
