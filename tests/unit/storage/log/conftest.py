"""A log on the in-memory disk, and the few words that tests about it need."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, StorageError, Timestamp, TopicId
from penstock.core.records import (
    BatchHeader,
    ControlRecord,
    ControlType,
    Record,
    check_batches,
    write_batch,
    write_control_batch,
)
from penstock.storage.commit import GroupCommit, SyncableFile
from penstock.storage.disk import CrashableDisk, FailingDisk
from penstock.storage.log import AppendedRange, LogOptions, PartitionLog, RecoveryReport
from penstock.storage.sealing import KeyVault, LogVault

TOPIC = TopicId(UUID(int=7))
DIRECTORY = "logs/orders/0"
OPTIONS = LogOptions(segment_bytes=1000, index_interval_bytes=150, time_index_interval_ms=5)


class Rounds:
    """Syncs that finish when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Sequence[SyncableFile], Callable[[OSError | None], None]]] = []

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        self.waiting.append((files, done))

    def finish(self, error: OSError | None = None) -> None:
        files, done = self.waiting.pop(0)
        if error is None:
            for file in files:
                file.sync()
        done(error)

    def finish_all(self) -> None:
        while self.waiting:
            self.finish()


@dataclass
class Bench:
    """A log with its disk and its syncs, and short ways to use it."""

    crashable: CrashableDisk = field(default_factory=CrashableDisk)
    options: LogOptions = OPTIONS
    vault: KeyVault | None = None

    @property
    def log_vault(self) -> LogVault | None:
        return None if self.vault is None else self.vault.of(TOPIC, PartitionIndex(0))

    def __post_init__(self) -> None:
        self.disk = FailingDisk(self.crashable)
        self.rounds = Rounds()
        self.commit = GroupCommit(self.rounds)
        self.log = PartitionLog.create(
            self.disk, DIRECTORY, TOPIC, self.options, commit=self.commit, vault=self.log_vault
        )
        self.report = RecoveryReport()
        self.answers: list[StorageError | None] = []

    def append(
        self, count: int = 1, *, at: int = 1000, epoch: int = 0, now: int = 1, **header: Any
    ) -> AppendedRange:
        batch = write_batch([Record(0, at, None, b"value", ())] * count, **header)
        return self.log.append(batch, check_batches(batch), LeaderEpoch(epoch), Timestamp(now))

    def end_transaction(self, producer: int, ending: ControlType, *, epoch: int = 0) -> AppendedRange:
        batch = write_control_batch(ControlRecord(0, 1000, ending, producer, 0, 1))
        return self.log.append(batch, check_batches(batch), LeaderEpoch(epoch), Timestamp(1))

    def fill(self, batches: int, count: int = 2) -> None:
        """Batches of `count` records whose timestamp is 10 times their first offset."""
        for _ in range(batches):
            self.append(count, at=10 * self.log.end)

    def bases(self, start: int = 0, max_bytes: int = 10_000, end: int | None = None) -> list[int]:
        """The base offsets of the batches that one read returns."""
        return [header.base_offset for header in self.headers(start, max_bytes, end)]

    def headers(self, start: int = 0, max_bytes: int = 10_000, end: int | None = None) -> list[BatchHeader]:
        limit = None if end is None else Offset(end)
        return check_batches(self.log.read(Offset(start), max_bytes, end=limit).to_bytes())

    def everything(self) -> list[int]:
        """The base offsets of all batches, read one segment after another."""
        found: list[int] = []
        offset = int(self.log.start)
        while offset < self.log.end:
            headers = self.headers(offset)
            found += [header.base_offset for header in headers]
            offset = headers[-1].next_offset
        return found

    def sync(self) -> None:
        self.log.sync(self.answers.append)

    def sync_now(self) -> None:
        self.sync()
        self.rounds.finish_all()

    def checkpoint(self) -> None:
        self.log.checkpoint(self.answers.append)
        self.rounds.finish_all()

    def reopen(self, *, clean: bool = True, now: int = -1) -> RecoveryReport:
        if clean:
            self.log.close()
            self.rounds.finish_all()
        self.rounds = Rounds()
        self.commit = GroupCommit(self.rounds)
        self.log, self.report = PartitionLog.open(
            self.disk,
            DIRECTORY,
            TOPIC,
            self.options,
            commit=self.commit,
            now=Timestamp(now),
            vault=self.log_vault,
        )
        return self.report

    def files(self, suffix: str = "") -> list[str]:
        names = (path.removeprefix(DIRECTORY + "/") for path in self.crashable.files())
        return [name for name in names if name.endswith(suffix)]

    def flip(self, name: str, byte: int) -> None:
        self.crashable.flip_bit(f"{DIRECTORY}/{name}", byte * 8)

    def segment_bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.segments()]


def numbers(values: Iterable[int]) -> list[int]:
    return [int(value) for value in values]


@pytest.fixture
def bench() -> Bench:
    return Bench()
