"""Some logs of one node with their journal, on the in-memory disk."""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from penstock.core.model import LeaderEpoch, Offset, PartitionIndex, StorageError, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime.sync_helper import SyncFailed, sync_blocking
from penstock.storage.commit import GroupCommit, SyncableFile
from penstock.storage.disk import CrashableDisk, FailingDisk
from penstock.storage.journal import CommitJournal, JournalOptions, JournalPlace, JournalRun
from penstock.storage.log import LogOptions, PartitionLog, RecoveryReport

TOPIC = TopicId(UUID(int=7))
OPTIONS = LogOptions(segment_bytes=1000, index_interval_bytes=150, time_index_interval_ms=5)
JOURNAL = JournalOptions(first_bytes=4096, file_bytes=4096, entry_bytes_max=900, full_files_max=1)


class Nothing:
    """The luck of a power cut after which nothing is there that was not synced."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int, /) -> int:
        return a


class Rounds:
    """Syncs that finish when the test says so; notes how many files each round synced."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Sequence[SyncableFile], Callable[[OSError | None], None]]] = []
        self.sizes: list[int] = []

    def sync(self, files: Sequence[SyncableFile], done: Callable[[OSError | None], None]) -> None:
        self.sizes.append(len(files))
        self.waiting.append((files, done))

    def finish(self) -> None:
        files, done = self.waiting.pop(0)
        failures = sync_blocking(files)
        done(SyncFailed(failures) if failures else None)

    def finish_all(self) -> None:
        while self.waiting:
            self.finish()


class JournalBench:
    """Logs by their number, and short ways to use them."""

    def __init__(
        self, logs: int = 2, journal: JournalOptions = JOURNAL, options: LogOptions = OPTIONS
    ) -> None:
        self.crashable = CrashableDisk()
        self.crashable.make_directory("meta")
        self.crashable.sync_directory("")
        self.options = journal
        self.log_options = options
        self.salt = 0
        self.answers: list[StorageError | None] = []
        self.reports: list[RecoveryReport] = []
        self._begin(expected=False)
        self.logs = [
            PartitionLog.create(
                self.disk,
                path_of(number),
                TOPIC,
                self.log_options,
                commit=self.commit,
                journal=self.journal.of(TOPIC, PartitionIndex(number)),
            )
            for number in range(logs)
        ]

    def _begin(self, *, expected: bool = True, noted: JournalRun | None = None) -> None:
        self.disk = FailingDisk(self.crashable)
        self.rounds = Rounds()
        self.work: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        place = JournalPlace(self.disk, self.disk, self._salt, self._spawn)
        self.journal = CommitJournal.open(place, self.options, expected=expected, noted=noted)
        self.commit = GroupCommit(self.rounds, journal=self.journal)

    def _salt(self) -> int:
        self.salt += 1
        return self.salt

    def _spawn(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self.work.append((work, done))

    def do_work(self) -> None:
        """Do what was to be done off the loop."""
        while self.work:
            work, done = self.work.pop(0)
            done(work())

    def append(self, log: int = 0, *, size: int = 20, epoch: int = 0) -> None:
        batch = write_batch([Record(0, 1000, None, b"v" * size, ())])
        self.logs[log].append(batch, check_batches(batch), LeaderEpoch(epoch), Timestamp(1))

    def commit_all(self, *logs: int) -> None:
        """Make these logs durable in one round."""
        for log in logs or range(len(self.logs)):
            self.logs[log].sync(self.answers.append)
        self.rounds.finish_all()

    def write(self, log: int = 0, *, size: int = 20) -> None:
        """Append something and make it durable."""
        self.append(log, size=size)
        self.commit_all(log)

    def restart(self, *, power_cut: bool = True, is_synced_later: bool = False) -> None:
        """End as a crash does, without anything that was not synced, and open everything again."""
        self.crashable = self.crashable.crash(Nothing()) if power_cut else self.crashable.copy()
        self.open(is_synced_later=is_synced_later)

    def open(self, *, is_synced_later: bool = False, noted: JournalRun | None = None) -> None:
        count = len(self.logs)
        self._begin(noted=noted)
        self.logs, self.reports = [], []
        for number in range(count):
            self.open_log(number, is_synced_later=is_synced_later)

    def open_log(self, number: int, *, is_synced_later: bool = False) -> None:
        log, report = PartitionLog.open(
            self.disk,
            path_of(number),
            TOPIC,
            self.log_options,
            commit=self.commit,
            journal=self.journal.of(TOPIC, PartitionIndex(number)),
            is_synced_later=is_synced_later,
        )
        self.logs.append(log)
        self.reports.append(report)

    def close(self) -> None:
        for log in self.logs:
            log.close()
        self.rounds.finish_all()
        self.journal.close()

    def content(self, log: int = 0) -> bytes:
        found = bytearray()
        offset = self.logs[log].start
        while offset < self.logs[log].end:
            part = self.logs[log].read(offset, 10_000).to_bytes()
            found += part
            offset = Offset(check_batches(part)[-1].next_offset)
        return bytes(found)

    def ends(self) -> list[int]:
        return [int(log.end) for log in self.logs]

    def journal_files(self) -> list[str]:
        return [name for name in self.crashable.listdir("meta/journal") if name.endswith(".journal")]


def path_of(number: int) -> str:
    return f"logs/orders/{number}"


@pytest.fixture
def bench() -> JournalBench:
    return JournalBench()
