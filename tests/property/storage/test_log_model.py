"""A log does what a plain list of batches would do, whatever happens to it in between."""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.model import LeaderEpoch, Offset, StorageError, Timestamp, TopicId
from penstock.core.records import Record, check_batches, read_records, write_batch
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import LogOptions, OffsetOutOfRange, PartitionLog

TOPIC = TopicId(UUID(int=7))
DIRECTORY = "logs/orders/0"
OPTIONS = LogOptions(
    segment_bytes=700,
    segment_ms=5_000,
    index_interval_bytes=100,
    time_index_interval_ms=10,
    retention_ms=20_000,
    retention_bytes=4_000,
)


@dataclass
class Model:
    """What the log should hold: batches as (first offset, timestamps, epoch), oldest first."""

    batches: list[tuple[int, list[int], int]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def records(self) -> list[tuple[int, int]]:
        return [
            (first + delta, timestamp)
            for first, timestamps, _ in self.batches
            for delta, timestamp in enumerate(timestamps)
            if first + delta >= self.start
        ]

    def cut(self, offset: int) -> None:
        gone = [b for b in self.batches if b[0] + len(b[1]) > offset]
        self.batches = self.batches[: len(self.batches) - len(gone)]
        if gone:
            self.end = max(self.start, gone[0][0])


class LogMachine(RuleBasedStateMachine):
    """Random operations on a log on the in-memory disk, compared with the model."""

    @initialize()
    def create(self) -> None:
        self.disk = CrashableDisk()
        self.log = PartitionLog.create(self.disk, DIRECTORY, TOPIC, OPTIONS)
        self.model = Model()
        self.now = 1_000_000
        self.epoch = 0

    @rule(
        sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
        steps=st.integers(-50, 400),
        padding=st.integers(0, 80),
    )
    def append(self, sizes: list[int], steps: int, padding: int) -> None:
        self.now += abs(steps)
        buffer = bytearray()
        offset = self.model.end
        for size in sizes:
            timestamps = [self.now + steps * delta // size for delta in range(size)]
            buffer += write_batch([Record(0, t, None, b"x" * padding, ()) for t in timestamps])
            self.model.batches.append((offset, timestamps, self.epoch))
            offset += size

        appended = self.log.append(
            buffer, check_batches(buffer), LeaderEpoch(self.epoch), Timestamp(self.now)
        )

        assert (appended.first_offset, appended.last_offset) == (self.model.end, offset - 1)
        self.model.end = offset

    @rule()
    def next_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def sync(self) -> None:
        answers: list[StorageError | None] = []

        self.log.sync(answers.append)

        assert answers == [None]
        assert self.log.synced == self.log.end

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offset = int(self.model.start + share * (self.model.end - self.model.start))
        cut = offset < self.model.end

        self.log.truncate_to(Offset(offset))

        self.model.cut(offset)
        assert not cut or self.log.synced == self.log.end

    @rule(ahead=st.integers(0, 20))
    def truncate_fully(self, ahead: int) -> None:
        self.log.truncate_fully(Offset(self.model.end + ahead))

        self.model = Model([], self.model.end + ahead, self.model.end + ahead)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        before = int(self.model.start + share * (self.model.end - self.model.start))

        start = self.log.delete_records(Offset(before))

        assert start == before
        self.model.start = before

    @rule()
    def expire(self) -> None:
        self.log.set_high_watermark(self.log.end)

        removed = self.log.expire(Timestamp(self.now))

        if removed:
            self.model.start = max(self.model.start, removed[-1].end_offset)
        assert self.log.size_bytes <= OPTIONS.retention_bytes + OPTIONS.segment_bytes + 3 * 700

    @rule()
    def reopen_after_a_clean_stop(self) -> None:
        self.log.close()

        self.log, report = PartitionLog.open(self.disk, DIRECTORY, TOPIC, OPTIONS)

        assert report.was_clean

    @rule()
    def reopen_after_the_process_died(self) -> None:
        self.log, report = PartitionLog.open(self.disk, DIRECTORY, TOPIC, OPTIONS)

        assert report.cut is None
        assert report.corruption == ()

    @rule(seed=st.integers(0, 10_000))
    def reopen_after_a_power_cut(self, seed: int) -> None:
        synced = self.log.synced
        self.disk = self.disk.crash(Random(seed))

        self.log, report = PartitionLog.open(self.disk, DIRECTORY, TOPIC, OPTIONS)

        assert report.corruption == ()
        assert synced <= self.log.end <= self.model.end
        self.model.cut(self.log.end)
        assert self.model.end == self.log.end

    @precondition(lambda self: self.model.records())
    @rule(share=st.floats(0, 0.999), max_bytes=st.integers(0, 1500), until=st.floats(0, 1))
    def read(self, share: float, max_bytes: int, until: float) -> None:
        start = int(self.model.start + share * (self.model.end - self.model.start))
        end = int(start + until * (self.model.end - start))

        content = self.log.read(Offset(start), max_bytes, end=Offset(end)).to_bytes()

        headers = check_batches(content)
        expected = [b for b in self.model.batches if b[0] + len(b[1]) > start and b[0] + len(b[1]) <= end]
        assert [h.base_offset for h in headers] == [b[0] for b in expected[: len(headers)]]
        assert [h.leader_epoch for h in headers] == [b[2] for b in expected[: len(headers)]]
        assert bool(headers) == bool(expected)
        assert len(headers) <= 1 or len(content) <= max_bytes

    @rule(beyond=st.integers(1, 5))
    def read_out_of_range(self, beyond: int) -> None:
        for offset in (self.model.end + beyond, self.model.start - beyond):
            with pytest.raises(OffsetOutOfRange) as refused:
                self.log.read(Offset(offset), 100)

            assert (refused.value.start, refused.value.end) == (self.model.start, self.model.end)

    @rule(age=st.integers(-100, 3_000))
    def look_up_a_time(self, age: int) -> None:
        timestamp = self.now - age

        found = self.log.offset_for_timestamp(Timestamp(timestamp))

        expected = next((r for r in self.model.records() if r[1] >= timestamp), None)
        assert (found and tuple(found)) == expected

    @invariant()
    def bounds_agree(self) -> None:
        assert (self.log.start, self.log.end) == (self.model.start, self.model.end)
        assert self.log.synced <= self.log.end
        assert self.log.corruption == ()

    @invariant()
    def epochs_agree(self) -> None:
        latest = max((b[2] for b in self.model.batches), default=-1)
        if self.model.batches and self.model.batches[-1][0] >= self.model.start:
            assert self.log.epochs.latest == latest

    def teardown(self) -> None:
        if not hasattr(self, "log"):
            return
        offset, records = self.log.start, []
        while offset < self.log.end:
            content = self.log.read(offset, 600).to_bytes()
            for header in check_batches(content):
                batch = content[: header.size_bytes]
                records += [
                    (r.offset, r.timestamp) for r in read_records(batch) if r.offset >= self.log.start
                ]
                content = content[header.size_bytes :]
                offset = Offset(header.next_offset)
        assert records == self.model.records()


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
