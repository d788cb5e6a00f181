"""What transactions guarantee, checked against what their producers did and their readers saw.

Values are unique, and each belongs to one transaction. At once, when a response is written or read:

    pre-committed read   read_committed gives a value whose producer never asked for the commit
    aborted read         read_committed gives a value whose producer asked for the abort (G1a)
    inconsistent         one offset, two values
    unstable read        read_committed gives an offset at or above the last stable offset beside it
    unstable offset      the last stable offset is above a record of a transaction that nobody ended
    stable offset back   for one reader, within one leader epoch
    zombie               an incarnation is obeyed though a newer one was initialised before it asked

At the end, from the batches and markers of every partition:

    hung transaction     no marker follows a record
    torn transaction     some of its records are committed, others aborted; or some are missing
    unasked commit       a marker commits what its producer never asked to commit: a delayed EndTxn
    lost effect          committed, the producer was told; and aborted, or not there
    joined transactions  one marker ends records of two transactions: a delayed Produce or EndTxn
    duplicate, moved, replaced, unexpected, out of order     as for any log
    stale marker         the producer epoch of a marker is below that of an earlier one
    stale record         a record's epoch is below that of a marker before it
    intermediate read    a reader was given later records of a transaction, and not earlier ones (G1b)
    poll skip            a reader passed over a committed record
    information cycle    transactions that have read each other's records (G1c)
    duplicated input     two committed transactions have consumed the same input
    lost input           a committed transaction begins behind the end of the one before

Kafka allows write cycles (G0): two transactions may interleave in different order in two partitions.
They are counted, and are no anomaly.
"""

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

LogPlace: TypeAlias = tuple[str, int]
NEVER = -1


class TransactionIntent(enum.Enum):
    """What its producer asked for so far."""

    OPEN = "open"
    COMMIT = "commit"
    ABORT = "abort"


class InputRange(NamedTuple):
    """Offsets of an input partition that a transaction has consumed, for a group."""

    group: str
    place: LogPlace
    start: int
    end: int


@dataclass(slots=True, eq=False)
class TransactionHistory:
    """One transaction as its producer knows it."""

    name: str
    transactional_id: str
    incarnation: int
    # The newest incarnation that was initialised when it began.
    newest: int
    # Until then nobody but its producer, or a successor of it, may end it.
    expires: int
    intent: TransactionIntent = TransactionIntent.OPEN
    # Whether the coordinator said that what was asked for is done.
    is_told: bool = False
    sent: dict[bytes, LogPlace] = field(default_factory=dict)
    # What was sent when the end was asked for already: its markers may find it or not.
    late: dict[bytes, LogPlace] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    inputs: list[InputRange] = field(default_factory=list)
    # Values of others that it has read before it ended.
    read: dict[bytes, None] = field(default_factory=dict)


class LoggedRecord(NamedTuple):
    """A record of a transactional batch, as it stands in the log."""

    offset: int
    value: bytes
    producer_id: int
    producer_epoch: int


class LoggedMarker(NamedTuple):
    """A control batch."""

    offset: int
    producer_id: int
    producer_epoch: int
    is_commit: bool


LogEntry: TypeAlias = LoggedRecord | LoggedMarker


class RequestOfIncarnation(NamedTuple):
    """A request on its way, and the newest incarnation when it left."""

    transactional_id: str
    incarnation: int
    newest: int
    what: str


@dataclass(slots=True)
class TransactionChecker:
    """Transactions and their readers, in the order in which things happened."""

    anomalies: list[str] = field(default_factory=list)
    histories: list[TransactionHistory] = field(default_factory=list)
    committed: int = 0
    aborted: int = 0
    fenced: int = 0
    write_cycles: int = 0
    # Names of the transactions that the end shows to be committed.
    found_committed: dict[str, None] = field(default_factory=dict)
    _by_value: dict[bytes, TransactionHistory] = field(default_factory=dict)
    _newest: dict[str, int] = field(default_factory=dict)
    # By reader, partition and leader epoch.
    _stable: dict[tuple[str, LogPlace, int], int] = field(default_factory=dict)
    # Acknowledged values of transactions that nobody has ended, by partition.
    _open: dict[LogPlace, dict[bytes, int]] = field(default_factory=dict)
    _acknowledged_ends: dict[LogPlace, int] = field(default_factory=dict)
    _seen: dict[LogPlace, dict[int, bytes]] = field(default_factory=dict)
    # What each reader of read_committed was given, and where it began, by partition.
    _reads: dict[tuple[str, LogPlace], tuple[int, list[int]]] = field(default_factory=dict)
    _ends: dict[tuple[str, LogPlace], int] = field(default_factory=dict)
    # Reader, partition, from where to where, and the offsets it was given.
    _runs: list[tuple[str, LogPlace, int, int, list[int]]] = field(default_factory=list)

    def initialized(self, transactional_id: str, incarnation: int) -> None:
        """The coordinator writes the response that makes an incarnation the newest."""
        self._newest[transactional_id] = max(incarnation, self._newest.get(transactional_id, NEVER))

    def begin(self, transactional_id: str, incarnation: int, expires: int) -> TransactionHistory:
        """A producer begins a transaction."""
        name = f"{transactional_id}/{incarnation}/{len(self.histories)}"
        newest = self._newest.get(transactional_id, NEVER)
        history = TransactionHistory(name, transactional_id, incarnation, newest, expires)
        self.histories.append(history)
        return history

    def sending(self, history: TransactionHistory, place: LogPlace, values: Iterable[bytes]) -> None:
        """A producer sends values, for the first time."""
        for value in values:
            history.sent[value] = place
            self._by_value[value] = history

    def sending_late(self, history: TransactionHistory, place: LogPlace, values: Iterable[bytes]) -> None:
        """Values of a transaction whose end was asked for: they end with it, or are refused."""
        for value in values:
            history.late[value] = place
            self._by_value[value] = history

    def acknowledged(self, history: TransactionHistory, values: Sequence[bytes], first_offset: int) -> None:
        """The leader has acknowledged a batch."""
        for offset, value in enumerate(values, first_offset):
            history.acknowledged.setdefault(value, offset)
            place = history.sent[value]
            self._acknowledged_ends[place] = max(offset + 1, self._acknowledged_ends.get(place, 0))
            if history.intent is TransactionIntent.OPEN and history.incarnation >= self._newest_of(history):
                self._open.setdefault(place, {})[value] = offset

    def acknowledged_end(self, place: LogPlace) -> int:
        """Behind the last record of a partition that was acknowledged."""
        return self._acknowledged_ends.get(place, 0)

    def _newest_of(self, history: TransactionHistory) -> int:
        return self._newest.get(history.transactional_id, NEVER)

    def ending(self, history: TransactionHistory, *, commit: bool) -> None:
        """The producer is about to ask for the end."""
        history.intent = TransactionIntent.COMMIT if commit else TransactionIntent.ABORT
        self.released(history)

    def released(self, history: TransactionHistory) -> None:
        """From now on others may end it as well: a successor is on its way, or its end."""
        for value, place in history.sent.items():
            self._open.get(place, {}).pop(value, None)

    def ended(self, history: TransactionHistory) -> None:
        """The coordinator said that it is done."""
        if not history.is_told:
            history.is_told = True
            if history.intent is TransactionIntent.COMMIT:
                self.committed += 1
            else:
                self.aborted += 1

    def asking(self, transactional_id: str, incarnation: int, what: str) -> RequestOfIncarnation:
        """A producer sends something that changes its transaction."""
        newest = self._newest.get(transactional_id, NEVER)
        return RequestOfIncarnation(transactional_id, incarnation, newest, what)

    def obeyed(self, request: RequestOfIncarnation) -> None:
        """It was accepted."""
        if request.incarnation < request.newest:
            self.anomalies.append(
                f"zombie: {request.what} of incarnation {request.incarnation} of {request.transactional_id} "
                f"was accepted, though {request.newest} was there before it was sent"
            )

    def was_fenced(self) -> None:
        """A producer was told that it has a successor, or that its transaction is over."""
        self.fenced += 1

    def showed_stable(self, place: LogPlace, stable: int, high_watermark: int, now: int) -> None:
        """A leader writes a response with its last stable offset."""
        if stable > high_watermark:
            self.anomalies.append(
                f"unstable offset: {stable} of {place} is above the high watermark {high_watermark}"
            )
        for value, offset in self._open.get(place, {}).items():
            if offset < stable and now < self._by_value[value].expires:
                self.anomalies.append(
                    f"unstable offset: {stable} of {place} is above {value!r} at {offset}, "
                    f"whose transaction is open"
                )
                return

    def told_stable(self, reader: str, place: LogPlace, epoch: int, stable: int) -> None:
        """A reader gets a response with the last stable offset of a leader."""
        before = self._stable.get((reader, place, epoch), stable)
        if stable < before:
            self.anomalies.append(
                f"stable offset back: {place} from {before} to {stable} in epoch {epoch}, for {reader}"
            )
        self._stable[reader, place, epoch] = stable

    def sought(self, reader: str, place: LogPlace, position: int) -> None:
        """A reader of read_committed begins anew somewhere."""
        self._close(reader, place)
        self._reads[reader, place] = (position, [])

    def _close(self, reader: str, place: LogPlace) -> None:
        start, offsets = self._reads.pop((reader, place), (0, []))
        end = self._ends.pop((reader, place), start)
        if end > start:
            self._runs.append((reader, place, start, end, offsets))

    def saw(self, place: LogPlace, records: Iterable[tuple[int, bytes]]) -> None:
        """Any reader was given these records, committed or not."""
        seen = self._seen.setdefault(place, {})
        for offset, value in records:
            before = seen.setdefault(offset, value)
            if before != value:
                self.anomalies.append(f"inconsistent: {offset} of {place} was {before!r}, then {value!r}")

    def polled(
        self,
        reader: str,
        place: LogPlace,
        records: Iterable[tuple[int, bytes]],
        end: int,
        stable: int,
    ) -> None:
        """A reader of read_committed was given these records, and goes on at `end`."""
        _, offsets = self._reads.setdefault((reader, place), (0, []))
        for offset, value in records:
            offsets.append(offset)
            if offset >= stable:
                self.anomalies.append(f"unstable read: {reader} got {offset} of {place}, stable to {stable}")
            self._check_intent(reader, value)
        self._ends[reader, place] = end

    def delivered(self, reader: str, value: bytes) -> bool:
        """A queue has delivered a value, which has to be committed; False: nobody has sent it."""
        self._check_intent(reader, value)
        return value in self._by_value

    def _check_intent(self, reader: str, value: bytes) -> None:
        history = self._by_value.get(value)
        if history is None:
            return  # the end shows whether it is there
        if history.intent is TransactionIntent.OPEN:
            self.anomalies.append(f"pre-committed read: {reader} got {value!r} of {history.name}")
        elif history.intent is TransactionIntent.ABORT:
            self.anomalies.append(f"aborted read: {reader} got {value!r} of {history.name}")

    def read_in(self, history: TransactionHistory, values: Iterable[bytes]) -> None:
        """A transaction has read values, of its own or of others, before it ended."""
        for value in values:
            history.read[value] = None
            if value in history.sent:
                self.anomalies.append(f"pre-committed read: {history.name} got its own {value!r}")

    def check(self, logs: Mapping[LogPlace, Sequence[LogEntry]]) -> list[str]:
        """Every anomaly that the end shows; a whole log of each partition that transactions write to."""
        for reader, place in list(self._reads):
            self._close(reader, place)
        fates: dict[bytes, _Fate] = {}
        anomalies: list[str] = []
        for place, entries in logs.items():
            anomalies += self._check_place(place, entries, fates)
            anomalies += self._check_seen(place, entries)
        for history in self.histories:
            anomalies += _check_history(history, fates)
        committed = [history for history in self.histories if _is_committed(history, fates)]
        anomalies += self._check_incarnations(committed)
        anomalies += _check_inputs(committed)
        anomalies += self._check_cycles(committed, fates)
        anomalies += self._check_runs(logs, fates)
        self.write_cycles = _write_cycles(committed, fates)
        self.found_committed = dict.fromkeys(history.name for history in committed)
        return anomalies

    def _check_place(
        self, place: LogPlace, entries: Sequence[LogEntry], fates: dict[bytes, "_Fate"]
    ) -> Iterator[str]:
        """One partition from its start to its end; fills in what became of every value."""
        pending: dict[int, list[LoggedRecord]] = {}
        epochs: dict[int, int] = {}
        for entry in entries:
            epoch = epochs.get(entry.producer_id, NEVER)
            if isinstance(entry, LoggedMarker):
                if entry.producer_epoch < epoch:
                    yield f"stale marker: of epoch {entry.producer_epoch} at {entry.offset} of {place}"
                epochs[entry.producer_id] = max(epoch, entry.producer_epoch)
                yield from self._ended_by(place, entry, pending.pop(entry.producer_id, []), fates)
                continue
            if entry.producer_epoch < epoch:
                yield f"stale record: {entry.value!r} of epoch {entry.producer_epoch} at {entry.offset}"
            if entry.value not in self._by_value:
                yield f"unexpected: {entry.value!r} was never sent"
            pending.setdefault(entry.producer_id, []).append(entry)
        for records in pending.values():
            for record in records:
                yield f"hung transaction: nothing ends {record.value!r} at {record.offset} of {place}"

    def _check_seen(self, place: LogPlace, entries: Sequence[LogEntry]) -> Iterator[str]:
        there = {entry.offset: entry.value for entry in entries if isinstance(entry, LoggedRecord)}
        for offset, value in self._seen.get(place, {}).items():
            found = there.get(offset)
            if found != value:
                yield f"replaced: {value!r} was read at {offset} of {place}, which holds {found!r}"

    def _ended_by(
        self,
        place: LogPlace,
        marker: LoggedMarker,
        records: Sequence[LoggedRecord],
        fates: dict[bytes, "_Fate"],
    ) -> Iterator[str]:
        owners: dict[str, None] = {}
        for record in records:
            if record.value in fates:
                yield f"duplicate: {record.value!r} at {fates[record.value].offset} and {record.offset}"
            fates.setdefault(record.value, _Fate(place, record.offset, marker.offset, marker.is_commit))
            if record.value in self._by_value:
                owners[self._by_value[record.value].name] = None
        if len(owners) > 1:
            yield f"joined transactions: {', '.join(owners)} end at {marker.offset} of {place}"

    def _check_incarnations(self, committed: Sequence[TransactionHistory]) -> Iterator[str]:
        for history in committed:
            if history.incarnation < history.newest:
                yield f"zombie: {history.name} is committed, and began when {history.newest} was there"

    def _check_cycles(
        self, committed: Sequence[TransactionHistory], fates: Mapping[bytes, "_Fate"]
    ) -> Iterator[str]:
        """Over write-read edges, from the reader to those whose values it has read."""
        edges: dict[str, list[str]] = {}
        for history in committed:
            sources: dict[str, None] = {}
            for value in history.read:
                source = self._by_value.get(value)
                fate = fates.get(value)
                if source is not None and source is not history and fate is not None and fate.is_commit:
                    sources[source.name] = None
            edges[history.name] = list(sources)
        cycle = _find_cycle(edges)
        if cycle:
            yield f"information cycle: {' has read '.join(cycle)}"

    def _check_runs(
        self, logs: Mapping[LogPlace, Sequence[LogEntry]], fates: Mapping[bytes, "_Fate"]
    ) -> Iterator[str]:
        for reader, place, start, end, offsets in self._runs:
            for before, after in itertools.pairwise(offsets):
                if after <= before:
                    yield f"poll back: {reader} was given {after} behind {before} of {place}"
            passed = [
                entry
                for entry in logs.get(place, ())
                if isinstance(entry, LoggedRecord) and start <= entry.offset < end
            ]
            yield from self._check_passed(f"{reader} at {place}", passed, dict.fromkeys(offsets), fates)

    def _check_passed(
        self,
        reader: str,
        passed: Sequence[LoggedRecord],
        given: Mapping[int, None],
        fates: Mapping[bytes, "_Fate"],
    ) -> Iterator[str]:
        """What a reader has passed, of which it was given some."""
        names = {entry.offset: self._name_of(entry.value) for entry in passed}
        begun = dict.fromkeys(names[offset] for offset in given if offset in names)
        for offset, value, _, _ in passed:
            fate = fates.get(value)
            if fate is None or fate.is_commit == (offset in given):
                continue
            if not fate.is_commit:
                yield f"aborted read: {reader} got {value!r} at {offset}"
            elif names[offset] in begun:
                yield f"intermediate read: {reader} was not given {value!r} at {offset}"
            else:
                yield f"poll skip: {reader} was not given {value!r} at {offset}"

    def _name_of(self, value: bytes) -> str:
        history = self._by_value.get(value)
        return "" if history is None else history.name


def aborted_in(entries: Iterable[LogEntry]) -> list[tuple[int, int]]:
    """Producer and first offset of every aborted transaction that has records in a log, sorted."""
    begun: dict[int, int] = {}
    aborted = []
    for entry in entries:
        if isinstance(entry, LoggedRecord):
            begun.setdefault(entry.producer_id, entry.offset)
        elif (first := begun.pop(entry.producer_id, None)) is not None and not entry.is_commit:
            aborted.append((entry.producer_id, first))
    return sorted(aborted)


class _Fate(NamedTuple):
    """Where a value stands, and the marker behind it."""

    place: LogPlace
    offset: int
    marker: int
    is_commit: bool


def _is_committed(history: TransactionHistory, fates: Mapping[bytes, _Fate]) -> bool:
    if not history.sent:
        return history.intent is TransactionIntent.COMMIT and history.is_told
    return any(value in fates and fates[value].is_commit for value in history.sent)


def _check_history(history: TransactionHistory, fates: Mapping[bytes, _Fate]) -> Iterator[str]:
    """One transaction: all of it, or nothing, and what its producer was told."""
    found = {value: fates[value] for value in history.sent if value in fates}
    is_committed = any(fate.is_commit for fate in found.values())
    has_all = len(found) == len(history.sent)
    was_told = history.intent is TransactionIntent.COMMIT and history.is_told
    if is_committed and (not has_all or not all(fate.is_commit for fate in found.values())):
        without = [value for value in history.sent if value not in found or not found[value].is_commit]
        yield f"torn transaction: {history.name} is committed without {without[0]!r}"
    is_any_committed = is_committed or any(
        value in fates and fates[value].is_commit for value in history.late
    )
    if is_any_committed and history.intent is not TransactionIntent.COMMIT:
        yield f"unasked commit: of {history.name}, whose producer asked for {history.intent.value}"
    if was_told and history.sent and not is_committed:
        yield f"lost effect: {history.name} was committed, and its records are aborted or gone"
    yield from _check_offsets(history, found)


def _check_offsets(history: TransactionHistory, found: Mapping[bytes, _Fate]) -> Iterator[str]:
    for value, fate in found.items():
        offset = history.acknowledged.get(value, fate.offset)
        if fate.offset != offset:
            yield f"moved: {value!r} was acknowledged at {offset}, and is at {fate.offset}"
    last: dict[LogPlace, int] = {}
    for value, place in history.sent.items():
        if value in found:
            if found[value].offset <= last.get(place, NEVER):
                yield f"out of order: {value!r} of {history.name} at {found[value].offset}"
            last[place] = found[value].offset


def _check_inputs(committed: Iterable[TransactionHistory]) -> Iterator[str]:
    """What committed transactions of a group have consumed is every input, once."""
    inputs: dict[tuple[str, LogPlace], list[tuple[InputRange, str]]] = {}
    for history in committed:
        for consumed in history.inputs:
            inputs.setdefault((consumed.group, consumed.place), []).append((consumed, history.name))
    for ranges in inputs.values():
        ranges.sort(key=lambda pair: (pair[0].start, pair[0].end))
        for (before, first), (after, second) in itertools.pairwise(ranges):
            if after.start < before.end:
                yield f"duplicated input: {first} has {before}, {second} has {after}"
            elif after.start > before.end:
                yield f"lost input: {first} ends at {before.end} of {before.place}, {second} has {after}"


def _find_cycle(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Any cycle of a graph, depth first; [] if there is none."""
    is_done: dict[str, bool] = {}
    for root in edges:
        if root in is_done:
            continue
        path: list[str] = [root]
        stack = [iter(edges[root])]
        is_done[root] = False
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                is_done[path.pop()] = True
            elif is_done.get(following) is False:
                return [*path[path.index(following) :], following]
            elif following not in is_done:
                is_done[following] = False
                path.append(following)
                stack.append(iter(edges.get(following, ())))
    return []


def _write_cycles(committed: Sequence[TransactionHistory], fates: Mapping[bytes, _Fate]) -> int:
    """How many pairs of transactions stand in one order here and in the other there."""
    first: dict[LogPlace, dict[str, int]] = {}
    for history in committed:
        for value in history.sent:
            if value in fates:
                fate = fates[value]
                first.setdefault(fate.place, {}).setdefault(history.name, fate.offset)
    orders: dict[tuple[str, str], None] = {}
    for offsets in first.values():
        names = sorted(offsets, key=lambda name: offsets[name])
        for before, after in itertools.pairwise(names):
            orders[before, after] = None
    return sum((after, before) in orders for before, after in orders) // 2
