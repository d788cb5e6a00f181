"""Long random histories of a log: producers, transactions, delayed syncs, and power cuts in mid-operation."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import pytest

from penstock.core.model import ApiError, LeaderEpoch, Offset, ProducerId, StorageError, Timestamp, TopicId
from penstock.core.records import (
    ControlRecord,
    ControlType,
    Record,
    check_batches,
    read_header,
    write_batch,
    write_control_batch,
)
from penstock.core.replica import ACCEPTED, DuplicateBatch
from penstock.storage.commit import GroupCommit, SyncableFile
from penstock.storage.disk import CrashableDisk, PowerCut
from penstock.storage.log import LogOptions, PartitionLog

TOPIC = TopicId(UUID(int=7))
DIRECTORY = "logs/orders/0"
OPTIONS = LogOptions(
    segment_bytes=2_500, index_interval_bytes=200, time_index_interval_ms=10, retention_bytes=9_000
)
PRODUCERS = (11, 12, 13)


class DelayedSyncs:
    """Syncs that happen when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Sequence[SyncableFile], Callable[[OSError | None], None]]] = []

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        self.waiting.append((files, done))

    def run_one(self) -> None:
        if self.waiting:
            files, done = self.waiting.pop(0)
            for file in files:
                file.sync()
            done(None)


@dataclass(frozen=True)
class Written:
    """One batch that the log should hold."""

    first: int
    count: int
    content: bytes
    aborts_from: int | None = None

    @property
    def end(self) -> int:
        return self.first + self.count


class History:
    """A log, what it should hold, and a way to live on after a power cut."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = CrashableDisk()
        self.syncs = DelayedSyncs()
        self.log = PartitionLog.create(self.disk, DIRECTORY, TOPIC, OPTIONS, commit=GroupCommit(self.syncs))
        self.written: list[Written] = []
        self.start = 0
        self.acked = 0
        self.now = 1_000
        self.epoch = 0
        # A truncation that was interrupted may or may not have happened.
        self.may_end_at = 0
        self.may_start_at = 0

    @property
    def end(self) -> int:
        return self.written[-1].end if self.written else self.log.end

    def sequences(self) -> dict[int, list[Written]]:
        """Every producer's data batches, oldest first."""
        found: dict[int, list[Written]] = {producer: [] for producer in PRODUCERS}
        for written in self.written:
            header = read_header(written.content)
            if header.producer_id in found and not header.is_control:
                found[header.producer_id].append(written)
        return found

    def open_transactions(self) -> dict[int, int]:
        open_since: dict[int, int] = {}
        for written in self.written:
            header = read_header(written.content)
            if header.is_control:
                open_since.pop(header.producer_id, None)
            elif header.is_transactional:
                open_since.setdefault(header.producer_id, written.first)
        return open_since

    def append(self) -> None:
        self.now += self.random.randint(0, 30)
        first = self.log.end
        count = self.random.randint(1, 4)
        records = [Record(0, self.now, None, b"v" * self.random.randint(0, 60), ()) for _ in range(count)]
        producer = self.random.choice((-1, *PRODUCERS))
        if producer < 0:
            content = write_batch(records)
        else:
            last = self.sequences()[producer]
            sequence = read_header(last[-1].content).last_sequence + 1 if last else 0
            content = write_batch(
                records,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=producer != PRODUCERS[0],
            )
        self._append(content, Written(first, count, b""))

    def end_transaction(self) -> None:
        open_since = self.open_transactions()
        if open_since:
            producer = self.random.choice(list(open_since))
            ending = self.random.choice((ControlType.ABORT, ControlType.COMMIT))
            marker = ControlRecord(self.log.end, self.now, ending, producer, 0, 3)
            aborts = open_since[producer] if ending is ControlType.ABORT else None
            self._append(write_control_batch(marker), Written(self.log.end, 1, b"", aborts))

    def _append(self, content: bytearray, written: Written) -> None:
        headers = check_batches(content)
        assert headers[0].producer_id < 0 or self.log.producers.check(headers[0]) == ACCEPTED
        try:
            self.log.append(content, headers, LeaderEpoch(self.epoch), Timestamp(self.now))
        except PowerCut:
            if len(content) >= 16:
                self.written.append(replace(written, content=bytes(content)))
            raise
        self.written.append(replace(written, content=bytes(content)))

    def sync(self) -> None:
        end = int(self.log.end)
        truncations = self.log.stats.truncations

        def done(error: StorageError | None) -> None:
            assert error is None
            if truncations == self.log.stats.truncations:
                self.acked = max(self.acked, end)

        self.log.sync(done)

    def truncate(self) -> None:
        offset = self.random.randint(int(self.log.start), int(self.log.end))
        self.may_end_at = max(
            (w.end for w in self.written if w.end <= offset), default=min(self.start, offset)
        )
        self.acked = min(self.acked, self.may_end_at)
        cut = offset < self.log.end
        self.log.truncate_to(Offset(offset))
        if cut:
            self.forget_beyond(offset)
            self.acked = int(self.log.end)

    def forget_beyond(self, offset: int) -> None:
        self.written = [w for w in self.written if w.end <= offset]
        if self.log.start == self.log.end and not len(self.log.producers):
            # The cut reached the log start: such a log begins anew and knows nobody.
            self.written = []

    def delete_records(self) -> None:
        self.may_start_at = self.random.randint(self.start, int(self.log.end))
        self.start = int(self.log.delete_records(Offset(self.may_start_at)))

    def expire(self) -> None:
        self.log.set_high_watermark(self.log.end)
        self.may_start_at = int(self.log.end)
        self.log.expire(Timestamp(self.now), self.random.choice((None, 1, 2)))
        self.start = int(self.log.start)

    def step(self) -> None:
        operations = {
            self.append: 40,
            self.end_transaction: 8,
            self.sync: 15,
            self.syncs.run_one: 20,
            self.log.checkpoint: 4,
            self.next_epoch: 2,
            self.log.roll: 1,
            self.truncate: 2,
            self.delete_records: 1,
            self.expire: 1,
            self.stop: 1,
        }
        self.may_end_at, self.may_start_at = self.acked, self.start
        self.random.choices(list(operations), list(operations.values()))[0]()

    def next_epoch(self) -> None:
        self.epoch += 1

    def stop(self) -> None:
        while self.syncs.waiting:
            self.syncs.run_one()
        self.log.close()
        self._open()
        self.acked = int(self.log.end)

    def _open(self) -> None:
        self.syncs = DelayedSyncs()
        self.log, self.report = PartitionLog.open(
            self.disk, DIRECTORY, TOPIC, OPTIONS, commit=GroupCommit(self.syncs)
        )

    def lose_power(self) -> None:
        self.disk = self.disk.crash(self.random)
        self._open()
        assert self.report.corruption == ()
        assert min(self.acked, self.may_end_at) <= self.log.end <= max(self.end, self.start)
        assert self.start <= self.log.start <= max(self.start, self.may_start_at)
        assert self.report.bytes_read <= 20_000
        self.forget_beyond(int(self.log.end))
        self.start = int(self.log.start)
        self.acked = int(self.log.end)

    def check(self) -> None:
        """Content, producers and transactions are those of the batches that should be there."""
        self._check_content()
        self._check_producers()
        open_since = self.open_transactions()
        assert self.log.producers.transactions.ongoing() == sorted(
            open_since.items(), key=lambda pair: pair[1]
        )
        aborted = [
            (w.aborts_from, w.first)
            for w in self.written
            if w.aborts_from is not None and w.first >= self.start
        ]
        found = self.log.aborted_between(Offset(self.start), self.log.end)
        assert [(a.first_offset, a.last_offset) for a in found if a.last_offset >= self.start] == aborted

    def _check_content(self) -> None:
        content = bytearray()
        offset = self.log.start
        while offset < self.log.end:
            part = self.log.read(offset, 700).to_bytes()
            offset = Offset(check_batches(part)[-1].next_offset)
            content += part
        assert content == b"".join(w.content for w in self.written if w.end > self.start)

    def _check_producers(self) -> None:
        for producer, batches in self.sequences().items():
            if not batches:
                continue
            last = read_header(batches[-1].content)
            state = self.log.producers.get(ProducerId(producer))
            assert state is not None
            following = last._replace(base_sequence=last.last_sequence + 1)
            assert self.log.producers.check(following) == ACCEPTED
            assert isinstance(
                self.log.producers.check(last._replace(base_sequence=last.last_sequence + 2)), ApiError
            )
            for written in batches[-5:]:
                verdict = self.log.producers.check(read_header(written.content))
                assert isinstance(verdict, DuplicateBatch)
                assert (verdict.first_offset, verdict.last_offset) == (written.first, written.end - 1)


@pytest.mark.parametrize("seed", range(40))
def test_a_log_keeps_its_guarantees_through_a_long_history(seed: int) -> None:
    history = History(seed)

    for _ in range(8):
        history.disk.cut_power_at(history.random.randint(5, 120))
        try:
            for _ in range(60):
                history.step()
                if history.random.random() < 0.05:
                    history.check()
        except PowerCut:
            pass
        history.lose_power()
        history.check()
