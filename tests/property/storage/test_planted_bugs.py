"""The judge is worth its name only if it notices: bugs are planted, and must be found.

Each bug is one that a log could plausibly have. The number of runs is what finding it may take;
without the bug, the same runs find nothing (see test_power_cuts.py and test_bit_rot.py).
"""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from penstock.core.model import Offset
from penstock.sim.checkers.durability import LogAnomaly, LogViolation
from penstock.storage.commit import SyncableFile
from penstock.storage.disk import CrashableDisk, CrashableFile, DiskFailed
from penstock.storage.log import index
from penstock.storage.log.checkpoint import BackgroundCheckpoint
from penstock.storage.log.durability import Done, Durability
from penstock.storage.log.recovery import TailScan
from penstock.storage.log.retention import StartAdvance
from penstock.storage.log.segment import CheckedBatch, headers
from tests.property.storage.log_damage import Harm, grown_log, judge_damaged
from tests.property.storage.log_runs import OnDisk, Rounds, run_lives

RUNS = 400


def first_find(on_disk: OnDisk = lambda disk: disk, rounds: type[Rounds] = Rounds) -> list[LogViolation]:
    """What the first run that notices something notices."""
    for seed in range(RUNS):
        run = run_lives(seed, 5, on_disk, rounds)
        if run.violations:
            return run.violations
    return []


def anomalies(found: list[LogViolation]) -> set[LogAnomaly]:
    return {violation.anomaly for violation in found}


def test_a_new_segment_whose_directory_is_not_synced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_names(self: Durability, done: Done | None = None) -> None:
        if done is not None:
            done(None)

    monkeypatch.setattr(Durability, "request_names", forget_names)

    assert LogAnomaly.LOST in anomalies(first_find())


def test_directories_that_are_never_synced_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CrashableDisk, "sync_directory", lambda self, path: None)

    assert LogAnomaly.LOST in anomalies(first_find())


def test_a_checkpoint_ahead_of_its_data_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_waiting(self: BackgroundCheckpoint) -> None:
        self._log_durable(None)

    monkeypatch.setattr(BackgroundCheckpoint, "start", without_waiting)

    assert anomalies(first_find()) & {LogAnomaly.LOST, LogAnomaly.BLAMED}


def test_a_recovery_that_skips_the_crc_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(scan: TailScan) -> None:
        file = scan.segment.file
        for placed in headers(file, scan.position, scan.segment.size_bytes):
            content = memoryview(file.pread(placed.position, placed.header.size_bytes))
            scan.take(CheckedBatch(placed.position, placed.header, content, placed.position + len(content)))

    monkeypatch.setattr(TailScan, "run", unchecked)

    assert anomalies(first_find()) & {LogAnomaly.BLAMED, LogAnomaly.ALTERED, LogAnomaly.UNKNOWN}


class HastyRounds(Rounds):
    """Says that a round is durable, and syncs it afterwards, if the power is still on by then."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(chance)
        self._late: list[SyncableFile] = []

    def finish(self) -> bool:
        if self._running is None:
            return False
        (targets, _, done), self._running = self._running, None
        done(None)
        for target in self._late:
            with suppress(DiskFailed):  # whoever was notified that it is durable may have closed it
                target.sync()
        self._late = targets
        return True


def test_a_sync_that_is_reported_before_it_ran_is_noticed() -> None:
    assert anomalies(first_find(rounds=HastyRounds)) & {LogAnomaly.LOST, LogAnomaly.BLAMED}


def test_a_start_that_is_raised_before_it_is_durable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_at_once(self: StartAdvance, before: Offset, done: Done) -> None:
        self._state.start = before
        done(None)

    monkeypatch.setattr(StartAdvance, "raise_to", raise_at_once)

    assert LogAnomaly.START in anomalies(first_find())


def forget_to_sync(monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    honest: Callable[[CrashableFile], None] = CrashableFile.sync

    def sync(self: CrashableFile) -> None:
        if not self.path.endswith(suffix):
            honest(self)

    monkeypatch.setattr(CrashableFile, "sync", sync)


def test_a_log_file_that_is_never_synced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_to_sync(monkeypatch, ".log")

    assert anomalies(first_find()) & {LogAnomaly.LOST, LogAnomaly.BLAMED, LogAnomaly.LOOKUP}


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_that_is_trusted_without_a_check_is_noticed(
    monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    def trusting(shape: index.IndexRowFormat, content: memoryview) -> index.Words:
        return index.decode_words(shape, content[: len(content) - index.FOOTER_BYTES])

    monkeypatch.setattr(index, "parse_sealed", trusting)
    monkeypatch.setattr(index.SealedIndex, "distrust", lambda self: None)

    assert find_in_damaged_indexes(suffix) & {LogAnomaly.LOST, LogAnomaly.BLAMED, LogAnomaly.LOOKUP}


def find_in_damaged_indexes(suffix: str) -> set[LogAnomaly]:
    """What the first flipped bit that is noticed leads to."""
    for seed in range(RUNS // 5):
        run = grown_log(seed, clean=True)
        # The last segment's index is compared with the checkpoint; the bug is in the others.
        for path in [path for path in run.disk.files() if path.endswith("." + suffix)][:-1]:
            for byte in range(0, run.disk.size(path) - index.FOOTER_BYTES, index.WORD_BYTES):
                # Numbers are small here, so it is the lowest bits that make them smaller.
                found = judge_damaged(run, Harm(path, byte * 8 + 5 + seed % 4, None))
                if found:
                    return anomalies(found)
    return set()
