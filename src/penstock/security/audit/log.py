"""What is recorded, when it is written, and what happens if that is not possible.

    record   written with the next batch: what administrators do
    repeat   the first of a kind in a minute is written with the next batch, the others are counted and
             written as one line when the minute is over: refusals and logins, of which a client can make
             thousands a second
    count    counted from the first one on: what clients do all the time
    series   the many entries about one large request: made when they are written, off the loop, so that
             they need no room in the buffer

A kind is who did what to which resource from where. So the size of the log does not depend on how often
clients try. Nor on how many names they make up: of what is refused to one principal at one address, so many
kinds a minute have lines of their own for each API, and the others one line for all, which has no resource.
What is counted is bounded too: when there are too many kinds, the oldest is written early.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.model import MILLISECOND, Instant
from penstock.core.records import Record, write_batch
from penstock.observability import Metrics
from penstock.observability import log as events
from penstock.runtime import Callback, ExecutorKind, Runtime, Timer
from penstock.security.audit.entry import AuditDecision, AuditEntry, entry_line
from penstock.security.audit.file import AuditFile

# Entries in memory, and kinds that are being counted.
BUFFER_MAX = 10_000
KINDS_MAX = 10_000
# Rows of the requests whose entries are made later: some of the largest.
ROWS_MAX = 500_000
# Kinds of refusals of one principal, address and API in a minute that have lines of their own.
REFUSALS_MAX = 100
OTHER_REFUSALS = f"others than the first {REFUSALS_MAX} of a minute"
# What is written at once, and how long an entry waits for others.
BATCH_MAX = 2_000
SERIES_BATCH_MAX = BATCH_MAX // 2
FLUSH_MS = 200
COUNTED_MS = 60_000
SWEEP_MS = 1_000
RETRY_MS = 2_000
STOP_MS = 1_000
REPORT_MS = 10_000
TOPIC_BATCH_BYTES = 512 << 10
Kind: TypeAlias = tuple[object, ...]
# Principal, host and API.
Source: TypeAlias = tuple[str, str, str]


class AuditTopicWriter(Protocol):
    """Takes batches of entries for the topic, each with the number of its entries."""

    def append(self, batches: Sequence[tuple[bytearray, int]]) -> int:
        """Append them when that is possible; returns how many entries were dropped for them."""


class AuditMetrics(Metrics):
    """How much was recorded, and how much was not."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = self.counter(
            "penstock_audit_entries_total", "Entries written to the audit log.", ("decision",)
        )
        self.dropped = self.counter(
            "penstock_audit_dropped_total",
            "Entries that the audit log lacks, by what lacks them: the file or the topic.",
            ("target",),
        )
        self.failures = self.counter(
            "penstock_audit_write_failures_total", "Times that the audit log could not be written."
        )


class _Counted:
    """A kind of entry, and how many there were since the last line about it."""

    __slots__ = ("count", "entry", "last_ms", "until")

    def __init__(self, entry: AuditEntry, until: Instant, count: int) -> None:
        self.entry = entry
        self.until = until
        self.count = count
        self.last_ms = entry.time_ms


class _Series(NamedTuple):
    """Entries that are made when they are written, and the rows of what they are made of."""

    entries: Iterator[AuditEntry]
    rows: int


class _RefusedKinds:
    """How many kinds of refusals one source has had in the minute that ends at `until`."""

    __slots__ = ("kinds", "until")

    def __init__(self, until: Instant) -> None:
        self.until = until
        self.kinds = 0


class _Written(NamedTuple):
    batches: list[tuple[bytearray, int]]
    is_series_over: bool


class AuditLog:
    """The audit log of a node."""

    def __init__(
        self, runtime: Runtime, node_id: int, file: AuditFile, topic: AuditTopicWriter | None = None
    ) -> None:
        self._runtime = runtime
        self.node_id = node_id
        self._file = file
        self._topic = topic
        self.metrics = AuditMetrics()
        self._buffer: list[AuditEntry] = []
        self._series: deque[_Series] = deque()
        self._rows = 0
        # Entries of the first series that are made and not written.
        self._made: list[AuditEntry] = []
        self._counted: OrderedDict[Kind, _Counted] = OrderedDict()
        self._refusals: OrderedDict[Source, _RefusedKinds] = OrderedDict()
        self._is_writing = False
        self._is_failing = False
        self._flush_timer: Timer | None = None
        self._sweep_timer: Timer | None = None
        # Entries that are missing in the file since the last line that says so.
        self._missing = 0
        self._unreported = 0
        self._report_at = Instant(0)
        self._stopped: Callback | None = None
        self._allowed = self.metrics.entries.of(AuditDecision.ALLOWED.value)
        self._refused = self.metrics.entries.of(AuditDecision.REFUSED.value)

    @property
    def now_ms(self) -> int:
        return self._runtime.clock.wall()

    def record(self, entry: AuditEntry) -> None:
        """Write an entry with the next batch."""
        if len(self._buffer) >= BUFFER_MAX:
            self._drop(1)
            return
        self._buffer.append(entry)
        self._flush_soon()

    def record_all(self, entries: Iterator[AuditEntry], rows: int) -> None:
        """Write the entries about a request of so many rows, which may be more than fit into the buffer.

        They are made a batch at a time in the thread that writes them: what they are made of must not change.
        """
        if self._rows + rows > ROWS_MAX and self._series:
            self._drop(rows)
            return
        self._series.append(_Series(entries, rows))
        self._rows += rows
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush_timer is None and not self._is_writing:
            self._flush_after(FLUSH_MS)

    def repeat(self, kind: Kind, entry: AuditEntry) -> None:
        """Write the first entry of a kind, and count those that follow within a minute."""
        if self._add(kind, entry.time_ms):
            return
        if entry.decision is AuditDecision.REFUSED and not self._has_line(entry):
            self._count_other(entry)
            return
        self._count_from(kind, entry, 0)
        self.record(entry)

    def _has_line(self, entry: AuditEntry) -> bool:
        """Whether another kind of refusal has a line of its own: names may be made up without end."""
        now, source = self._runtime.clock.now(), (entry.principal, entry.host, entry.api)
        refusals = self._refusals
        while refusals:
            oldest, refused = next(iter(refusals.items()))
            if refused.until > now and len(refusals) <= KINDS_MAX:
                break
            del refusals[oldest]
        of_source = refusals.get(source)
        if of_source is None:
            until = Instant(now + COUNTED_MS * MILLISECOND)
            of_source = refusals[source] = _RefusedKinds(until)
        of_source.kinds += 1
        return of_source.kinds <= REFUSALS_MAX

    def _count_other(self, entry: AuditEntry) -> None:
        kind = (False, entry.principal, entry.host, entry.api, entry.operation, entry.resource_type)
        if not self._add(kind, entry.time_ms):
            other = entry._replace(
                client_id="", resource=None, error=None, correlation=None, details=(OTHER_REFUSALS,)
            )
            self._count_from(kind, other, 1)

    def count(self, kind: Kind, make: Callable[[], AuditEntry]) -> None:
        """Count an entry of a kind; `make` is called for the first one."""
        counted = self._counted.get(kind)
        if counted is not None:
            counted.count += 1
            counted.last_ms = self._runtime.clock.wall()
        else:
            self._count_from(kind, make(), 1)

    def _add(self, kind: Kind, time_ms: int) -> bool:
        counted = self._counted.get(kind)
        if counted is None:
            return False
        counted.count += 1
        counted.last_ms = time_ms
        return True

    def _count_from(self, kind: Kind, entry: AuditEntry, count: int) -> None:
        if len(self._counted) >= KINDS_MAX:
            self._settle(self._counted.popitem(last=False)[1])
        until = Instant(self._runtime.clock.now() + COUNTED_MS * MILLISECOND)
        self._counted[kind] = _Counted(entry, until, count)
        if self._sweep_timer is None:
            self._sweep_after()

    def _sweep_after(self) -> None:
        due = Instant(self._runtime.clock.now() + SWEEP_MS * MILLISECOND)
        self._sweep_timer = self._runtime.timers.at(due, self._sweep)

    def _sweep(self) -> None:
        """Write what was counted for a minute; the oldest is first."""
        self._sweep_timer = None
        now = self._runtime.clock.now()
        while self._counted:
            kind, counted = next(iter(self._counted.items()))
            if counted.until > now:
                self._sweep_after()
                return
            del self._counted[kind]
            self._settle(counted)

    def _settle(self, counted: _Counted) -> None:
        if counted.count:
            last_ms = (
                counted.last_ms if counted.count > 1 or counted.last_ms != counted.entry.time_ms else None
            )
            self.record(counted.entry._replace(times=counted.count, last_ms=last_ms))

    def _flush_after(self, delay_ms: int) -> None:
        due = Instant(self._runtime.clock.now() + delay_ms * MILLISECOND)
        self._flush_timer = self._runtime.timers.at(due, self._flush)

    def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._is_writing:
            return
        series = self._series[0].entries if self._series else None
        # Neither waits for the other.
        entries = self._buffer[: BATCH_MAX if series is None else BATCH_MAX - SERIES_BATCH_MAX]
        if not entries and series is None:
            self._end()
            return
        self._is_writing = True
        work = partial(
            _write,
            self._file,
            self.node_id,
            (*self._gap(), *entries),
            series,
            self._made,
            for_topic=self._topic is not None,
        )
        done = partial(self._written, len(entries), self._missing)
        self._runtime.spawn.spawn(work, done, self._not_written, ExecutorKind.DISK)

    def _gap(self) -> tuple[AuditEntry, ...]:
        """Says that entries are missing before the next one."""
        if not self._missing:
            return ()
        time_ms = self._buffer[0].time_ms if self._buffer else self.now_ms
        entry = AuditEntry(
            *(time_ms, "", "", "", "", "", "entries_dropped", None, None),
            decision=AuditDecision.DROPPED,
            times=self._missing,
        )
        return (entry,)

    def _written(self, taken: int, missing: int, written: _Written) -> None:
        self._is_writing = False
        self._missing -= missing
        for entry in chain(self._buffer[:taken], self._made):
            (self._allowed if entry.decision is AuditDecision.ALLOWED else self._refused).count += 1
        del self._buffer[:taken]
        self._made.clear()
        if written.is_series_over:
            self._rows -= self._series.popleft().rows
        if self._is_failing:
            self._is_failing = False
            events.info("audit.written_again", file=str(self._file.path))
        if self._topic is not None:
            lost = self._topic.append(written.batches)
            if lost:
                self._lost("topic", lost)
        if self._buffer or self._series or self._stopped is not None:
            self._flush()

    def _not_written(self, error: Exception) -> None:
        """Keep what there is and try again: the disk may be full, or the threads busy."""
        self._is_writing = False
        self.metrics.failures.of().count += 1
        if not self._is_failing:
            self._is_failing = True
            events.error("audit.not_written", file=str(self._file.path), reason=str(error))
        if self._stopped is not None:
            self._lost("file", len(self._buffer) + self._rows)
            self._buffer.clear()
            self._series.clear()
            self._made.clear()
            self._rows = 0
            self._end()
        else:
            self._flush_after(RETRY_MS)

    def _drop(self, entries: int) -> None:
        self._missing += entries
        self._lost("file", entries)

    def _lost(self, target: str, entries: int) -> None:
        self.metrics.dropped.of(target).count += entries
        self._unreported += entries
        now = self._runtime.clock.now()
        if now >= self._report_at:
            self._report_at = Instant(now + REPORT_MS * MILLISECOND)
            events.error("audit.entries_dropped", entries=self._unreported, target=target)
            self._unreported = 0

    def stop(self, done: Callback) -> None:
        """Write everything, what is being counted included, then call `done`; takes bounded time."""
        for counted in self._counted.values():
            self._settle(counted)
        self._counted.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._stopped = done
        due = Instant(self._runtime.clock.now() + STOP_MS * MILLISECOND)
        self._runtime.timers.at(due, self._end)
        self._flush()

    def _end(self) -> None:
        stopped, self._stopped = self._stopped, None
        if stopped is not None:
            stopped()


def _write(
    file: AuditFile,
    node_id: int,
    entries: Sequence[AuditEntry],
    series: Iterator[AuditEntry] | None,
    made: list[AuditEntry],
    *,
    for_topic: bool,
) -> _Written:
    """Write entries and the next ones of a series to the file, and make batches of them for the topic.

    Runs in a thread. `made` keeps what was taken from the series, for another attempt.
    """
    if series is not None and not made:
        made.extend(islice(series, SERIES_BATCH_MAX))
    written = (*entries, *made)
    lines = [entry_line(entry, node_id) for entry in written]
    file.write(b"".join(lines))
    is_over = series is not None and len(made) < SERIES_BATCH_MAX
    return _Written(_batches(written, lines) if for_topic else [], is_over)


def _batches(entries: Sequence[AuditEntry], lines: Sequence[bytes]) -> list[tuple[bytearray, int]]:
    batches: list[tuple[bytearray, int]] = []
    records: list[Record] = []
    size = 0
    for entry, line in zip(entries, lines, strict=True):
        records.append(Record(len(records), entry.time_ms, entry.principal.encode(), line.rstrip()))
        size += len(line)
        if size > TOPIC_BATCH_BYTES:
            batches.append((bytearray(write_batch(records)), len(records)))
            records, size = [], 0
    if records:
        batches.append((bytearray(write_batch(records)), len(records)))
    return batches
