"""A log with a journal that runs, loses power and restarts."""

import random
from collections.abc import Callable
from typing import Any

from penstock.core.model import PartitionIndex, StorageError
from penstock.sim.checkers.durability import LogAnomaly, LogViolation
from penstock.storage.commit import GroupCommit
from penstock.storage.disk import Disk
from penstock.storage.journal import CommitJournal, JournalOptions, JournalPlace, LogJournal
from penstock.storage.log import RecoveryReport
from tests.property.storage.log_runs import TOPIC, Lives, OnDisk, Rounds

# Small, so that a few dozen appends fill several files, and some appends are too large.
JOURNAL = JournalOptions(first_bytes=2048, file_bytes=4096, entry_bytes_max=700, full_files_max=1)
ZERO = PartitionIndex(0)


class HeldWork:
    """Work off the loop that is done when the run says so."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None], Callable[[Exception], None]]] = []

    def spawn(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self._waiting.append((work, done, failed))

    def finish(self) -> None:
        waiting, self._waiting = self._waiting, []
        for work, done, failed in waiting:
            try:
                outcome = work()
            except StorageError as error:
                failed(error)
            else:
                done(outcome)


class JournaledLives(Lives):
    """One log and a journal on one disk, from power cut to power cut."""

    def __init__(self, seed: int, on_disk: OnDisk = lambda disk: disk, rounds: type[Rounds] = Rounds) -> None:
        super().__init__(seed, on_disk, rounds)
        self.journal: CommitJournal
        self.work = HeldWork(self.chance)
        self.restored = 0
        self._is_journal_made = False

    def make_commit(self, disk: Disk) -> tuple[GroupCommit, LogJournal | None]:
        self.work = HeldWork(self.chance)
        disk.make_directory("meta")
        disk.sync_directory("")
        place = JournalPlace(disk, disk, lambda: self.chance.getrandbits(32), self.work.spawn)
        self.journal = CommitJournal.open(place, JOURNAL, expected=self._is_journal_made)
        self._is_journal_made = True
        if self.journal.damage:
            self.violations.append(LogViolation(LogAnomaly.BLAMED, self.journal.damage))
        return GroupCommit(self._rounds, journal=self.journal), self.journal.of(TOPIC, ZERO)

    def judge_report(self, report: RecoveryReport) -> None:
        self.restored += report.restored is not None
        if report.lost is not None and self.disk_fails:
            # The disk was full: a later start has to find what is missing now.
            raise StorageError(f"not restored yet: {report.lost}")
        if report.lost is not None or report.doubt:
            self.violations.append(LogViolation(LogAnomaly.BLAMED, f"{report.lost} {report.doubt}"))

    def step(self) -> None:
        if self.chance.random() < 0.1:
            self.work.finish()
        super().step()

    def closed(self) -> None:
        self.finish_syncs()
        self.journal.close()


def run_journaled_lives(seed: int, lives: int) -> JournaledLives:
    """Several incarnations, some of them so short that the power goes off during recovery."""
    run = JournaledLives(seed)
    for _ in range(lives):
        cut_at = run.chance.choice([run.chance.randint(1, 30), run.chance.randint(1, 150), None])
        run.live(run.chance.randint(10, 60), cut_at)
        if run.violations:
            return run
    run.live(3, None)
    return run
