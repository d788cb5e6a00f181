"""Disks that are full, refuse, or fail a sync, and then lose power: no guarantee is broken."""

import errno
import os
import random
from collections.abc import Sequence

import pytest

from penstock.core.model import StorageError
from penstock.runtime.sync_helper import sync_blocking
from penstock.sim.checkers.durability import LogAnomaly
from penstock.storage.commit import SyncableFile
from penstock.storage.disk import CrashableDisk, Disk, FailingDisk, FailingFile, FailureRule
from penstock.storage.log import RecoveryReport
from tests.property.storage.journal_runs import JournaledLives
from tests.property.storage.log_runs import Lives, Rounds

# More for a long run: PENSTOCK_POWER_CUTS=20000.
POWER_CUTS = int(os.environ.get("PENSTOCK_POWER_CUTS", "1200")) // 2
CHUNKS = 4
OPERATIONS = ["append", "append", "sync", "sync_directory", "rename", "open", "truncate", "remove", "pwrite"]
PLACES = ["", ".log", ".log", "index", "checkpoint.tmp", ".tmp", ".spare"]


class RoundsByAHelper(Rounds):
    """Syncs files under openings of its own, so that it uses up nobody else's failure."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._opened: dict[SyncableFile, SyncableFile] = {}

    def sync_now(self, targets: Sequence[SyncableFile]) -> list[tuple[SyncableFile, OSError]]:
        for target in targets:
            if target not in self._opened:
                self._opened[target] = target.opened_again() if isinstance(target, FailingFile) else target
        failed = dict(sync_blocking([self._opened[target] for target in targets]))
        return [
            (target, failed[self._opened[target]]) for target in targets if self._opened[target] in failed
        ]


class FailingLives(Lives):
    """Lives on a disk that fails now and then. A log that stopped, or cannot start, dies."""

    disk_fails = True

    def __init__(self, seed: int, rounds: type[Rounds] = RoundsByAHelper) -> None:
        super().__init__(seed, self._failing, rounds)
        self.failures = 0

    def _failing(self, disk: CrashableDisk) -> Disk:
        def failure() -> FailureRule:
            return FailureRule(
                self.chance.choice(OPERATIONS),
                self.chance.choice([errno.EIO, errno.ENOSPC]),
                path_ends=self.chance.choice(PLACES),
                after=self.chance.randint(0, 12),
                times=self.chance.choice([1, 1, 3]),
                kept_bytes=self.chance.choice([0, 0, 1, 90, 300, 700]),
            )

        return FailingDisk(disk, [failure() for _ in range(self.chance.randint(1, 3))])

    def start(self) -> None:
        try:
            super().start()
        except StorageError:
            self.failures += 1
            self.dead = True
        else:
            self.dead = False

    def judge_report(self, report: RecoveryReport) -> None:
        super().judge_report(report)
        unread = ("Input/output error", "was not cut")
        if any(words in damage.reason for damage in report.corruption for words in unread):
            # What the device refuses is damage, or is not cut; once it does not, a later start has to know.
            raise StorageError(f"not readable now: {report.corruption}")

    def step(self) -> None:
        if self.dead or self.log.stopped is not None:
            return
        end = self.log.end
        try:
            super().step()
        except StorageError:
            self.failures += 1
            if self.log.end == end:
                self.checker.refused(end)


class FailingJournaledLives(FailingLives, JournaledLives):
    """The same with a journal on the same disk."""


def run_failing(
    seed: int, rounds: type[Rounds] = RoundsByAHelper, lives: type[FailingLives] = FailingLives
) -> FailingLives:
    run = lives(seed, rounds)
    for _ in range(5):
        run.live(run.chance.randint(10, 50), run.chance.choice([run.chance.randint(1, 120), None]))
        if run.violations:
            break
    return run


@pytest.mark.parametrize("lives", [FailingLives, FailingJournaledLives])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_guarantee_is_broken_on_a_disk_that_fails_and_then_loses_power(
    chunk: int, lives: type[FailingLives]
) -> None:
    cuts = failures = 0
    seed = chunk

    while cuts < POWER_CUTS // CHUNKS:
        run = run_failing(seed, lives=lives)
        assert run.violations == [], f"seed {seed}"
        cuts += run.power_cuts
        failures += run.failures
        seed += CHUNKS

    assert failures > cuts // 4


class RoundsThatTryAgain(RoundsByAHelper):
    """A planted bug: a sync that failed is done once more, and the second result counts."""

    def sync_now(self, targets: Sequence[SyncableFile]) -> list[tuple[SyncableFile, OSError]]:
        failures = super().sync_now(targets)
        return super().sync_now([target for target, _ in failures])


def test_a_failed_sync_that_is_tried_again_is_noticed_within_a_hundred_runs() -> None:
    runs = (run_failing(seed, RoundsThatTryAgain) for seed in range(100))

    found = next((run.violations for run in runs if run.violations), [])

    assert {violation.anomaly for violation in found} & {LogAnomaly.LOST, LogAnomaly.BLAMED}
