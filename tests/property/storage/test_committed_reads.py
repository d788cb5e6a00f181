"""A read_committed consumer gets what a plain list of transactions says, whatever happens to the log."""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.model import LeaderEpoch, Offset, Timestamp, TopicId
from penstock.core.records import (
    ControlRecord,
    ControlType,
    Record,
    check_batches,
    read_control,
    read_records,
    write_batch,
    write_control_batch,
)
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import CompactionRules, LogOptions, PartitionLog, cleaner_for

TOPIC = TopicId(UUID(int=7))
DIRECTORY = "logs/orders/0"
OPTIONS = LogOptions(
    segment_bytes=700,
    index_interval_bytes=100,
    time_index_interval_ms=10,
    retention_ms=-1,
    retention_bytes=-1,
)
PRODUCERS = st.integers(1, 4)
EAGER = CompactionRules(min_dirty_ratio=0.0, delete_retention_ms=0)


@dataclass
class Model:
    """Every record by its offset, and the transaction it belongs to; every marker by its offset."""

    # Offset to (key, value, transaction); None for records outside of transactions.
    records: dict[int, tuple[bytes, bytes, int | None]] = field(default_factory=dict)
    # By number: first offset, marker's offset, whether it committed.
    transactions: dict[int, tuple[int, int | None, bool]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)

    def stable(self, high_watermark: int) -> int:
        undecided = [
            first
            for first, marker, _ in self.transactions.values()
            if marker is None or marker >= high_watermark
        ]
        return min([high_watermark, *undecided])

    def visible(self, high_watermark: int) -> list[tuple[int, bytes, bytes]]:
        end = self.stable(high_watermark)
        return [
            (offset, key, value)
            for offset, (key, value, transaction) in self.records.items()
            if offset < end and (transaction is None or self.transactions[transaction][2])
        ]


def consume(log: PartitionLog, start: int, max_bytes: int) -> list[tuple[int, bytes, bytes]]:
    """What a consumer shows to its application, as Kafka's clients filter aborted transactions."""
    shown: list[tuple[int, bytes, bytes]] = []
    end = log.last_stable_offset
    offset = Offset(start)
    while offset < end:
        ranges = log.read(offset, max_bytes, end=end).ranges
        if not ranges:
            break
        aborted = sorted(log.aborted_in(offset, ranges[0], end), key=lambda one: one.first_offset)
        skipped: set[int] = set()
        content = memoryview(ranges[0].to_bytes())
        for header in check_batches(content, compacted=True):
            batch, content = content[: header.size_bytes], content[header.size_bytes :]
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                if header.record_count and read_control(batch).control_type is ControlType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                shown += [
                    (record.offset, record.key or b"", record.value or b"")
                    for record in read_records(batch)
                    if record.offset >= start
                ]
            offset = Offset(header.next_offset)
    return shown


class TransactionalLogMachine(RuleBasedStateMachine):
    """Random transactions on one log, with restarts, power cuts and compaction in between."""

    is_compacted = False

    @initialize()
    def create(self) -> None:
        self.disk = CrashableDisk()
        self.log = PartitionLog.create(self.disk, DIRECTORY, TOPIC, OPTIONS)
        self.model = Model()
        self.now = 1_000_000
        self.sequences: dict[int, int] = {}
        self.tokens = 0
        # Where batches end.
        self.ends: list[int] = []

    @rule(producer=PRODUCERS, values=st.integers(1, 3))
    def write_in_transaction(self, producer: int, values: int) -> None:
        first = self.log.end
        transaction = self.model.open.get(producer)
        if transaction is None:
            transaction = self.model.open[producer] = len(self.model.transactions)
            self.model.transactions[transaction] = (first, None, False)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + values
        self._append(
            values,
            transaction,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )

    @rule(values=st.integers(1, 3))
    def write(self, values: int) -> None:
        self._append(values, None)

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end(self, producer: int, is_commit: bool) -> None:
        """Also where no transaction is open."""
        kind = ControlType.COMMIT if is_commit else ControlType.ABORT
        batch = write_control_batch(ControlRecord(self.log.end, self.now, kind, producer, 0, 0))
        marker = self.log.end
        self.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(self.now))
        self.ends.append(self.log.end)
        transaction = self.model.open.pop(producer, None)
        if transaction is not None:
            first, _, _ = self.model.transactions[transaction]
            self.model.transactions[transaction] = (first, marker, is_commit)

    def _append(self, values: int, transaction: int | None, **fields: int) -> None:
        self.now += 5
        first = self.log.end
        records = []
        for n in range(values):
            key, value = b"%d" % ((first + n) % 7), b"v%d" % (first + n)
            records.append(Record(0, self.now, key, value))
            self.model.records[first + n] = (key, value, transaction)
        batch = write_batch(records, **fields)  # type: ignore[arg-type]
        self.log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(self.now))
        self.ends.append(self.log.end)

    @rule(share=st.floats(0, 1))
    def raise_watermark(self, share: float) -> None:
        ends = [end for end in self.ends if end > self.log.high_watermark]
        if ends:
            self.log.set_high_watermark(Offset(ends[round((len(ends) - 1) * share)]))

    @rule()
    def restart(self) -> None:
        self.log.close()
        self._open()

    @rule(seed=st.integers(0, 1_000))
    def lose_power(self, seed: int) -> None:
        """After a sync, so that nothing is lost: what is derived from the batches is read again."""
        watermark = self.log.high_watermark
        self.log.sync(lambda _: None)
        self.disk = self.disk.crash(Random(seed))
        self._open()
        self.log.set_high_watermark(max(watermark, self.log.high_watermark))

    def _open(self) -> None:
        self.log, report = PartitionLog.open(self.disk, DIRECTORY, TOPIC, OPTIONS)
        assert report.corruption == ()

    @rule()
    def forget_producers(self) -> None:
        """Those without an open transaction, as if they had been silent for a day."""
        self.log.producers.expire(Timestamp(2**62))

    @precondition(lambda self: self.is_compacted)
    @rule(hours=st.integers(0, 2), is_commit=st.booleans())
    def compact(self, hours: int, is_commit: bool) -> None:
        self.now += hours * 3_600_000
        # One that is open would keep everything behind it from compaction.
        for producer in list(self.model.open):
            self.end(producer, is_commit)
        self.log.set_high_watermark(self.log.end)
        self.log.roll()
        self.log.checkpoint()
        self.tokens += 1
        compaction = self.log.begin_compaction(EAGER, Timestamp(self.now), str(self.tokens))
        if compaction is not None:
            cleaned = cleaner_for(self.disk)(compaction.order)
            self.log.finish_compaction(compaction, cleaned)

    @invariant()
    def the_last_stable_offset_is_that_of_the_model(self) -> None:
        assert self.log.last_stable_offset == self.model.stable(self.log.high_watermark)

    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 300, 5_000]))
    def read(self, share: float, max_bytes: int) -> None:
        start = round(self.log.last_stable_offset * share)
        expected = [row for row in self.model.visible(self.log.high_watermark) if row[0] >= start]
        shown = consume(self.log, start, max_bytes)
        if not self.is_compacted:
            assert shown == expected
            return
        # Compaction drops what has a later record of its key; what is left is committed.
        assert [row for row in shown if row not in expected] == []
        latest = {key: (offset, key, value) for offset, key, value in expected}
        assert [row for row in latest.values() if row not in shown] == []

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.read(0.0, 5_000)


class CompactedTransactionalLogMachine(TransactionalLogMachine):
    """The same on a compacted log."""

    is_compacted = True


TestCommittedReads = TransactionalLogMachine.TestCase
TestCommittedReads.settings = settings(max_examples=25, stateful_step_count=60, deadline=None)
TestCompactedCommittedReads = CompactedTransactionalLogMachine.TestCase
TestCompactedCommittedReads.settings = settings(max_examples=25, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("start", [0, 30, 95])
def test_a_fetch_gets_the_aborted_transactions_of_what_it_reads_and_no_others(start: int) -> None:
    log = PartitionLog.create(CrashableDisk(), DIRECTORY, TOPIC, OPTIONS)
    for number in range(50):
        batch = write_batch(
            [Record(0, 1, b"k", b"v")],
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
            transactional=True,
        )
        log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
        batch = write_control_batch(ControlRecord(log.end, 1, ControlType.ABORT, 1, 0, 0))
        log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(1))
    log.set_high_watermark(log.end)

    piece = log.read(Offset(start), 200, end=log.end).ranges[0]
    aborted = log.aborted_in(Offset(start), piece, log.end)

    last = check_batches(piece.to_bytes())[-1].last_offset
    assert aborted[0].last_offset >= start
    assert aborted[0].first_offset <= start
    # The index is sparse: a few more than needed do no harm.
    assert last <= aborted[-1].last_offset <= last + 6
