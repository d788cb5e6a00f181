"""Encrypted logs lose nothing that was durable, whatever is done to their keys, and have nothing in clear."""

import os
from contextlib import suppress

import pytest

from penstock.storage.disk import PowerCut
from penstock.storage.log.keys import LogKeys
from penstock.storage.sealing import BrokenSeal
from tests.property.storage.log_runs import live_on
from tests.property.storage.sealed_runs import (
    SealedJournaledLives,
    SealedKeyedLives,
    SealedLives,
    in_clear,
)

# More for a long run: PENSTOCK_POWER_CUTS=20000.
POWER_CUTS = int(os.environ.get("PENSTOCK_POWER_CUTS", "240"))
LIVES = 6
CHUNKS = 4


@pytest.mark.parametrize("switches", [False, True])
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_was_reported_durable_survives_power_cuts_at_random_moments(chunk: int, switches: bool) -> None:
    cuts, seed = 0, chunk

    while cuts < POWER_CUTS // CHUNKS:
        run = SealedLives(seed, switches=switches)
        live_on(run, LIVES)
        assert run.violations == [], f"seed {seed}"
        if not switches:
            assert in_clear(run.disk, run.log) == [], f"seed {seed}"
        cuts += run.power_cuts
        seed += CHUNKS


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_so_it_does_with_a_journal_which_has_nothing_in_clear_either(chunk: int) -> None:
    cuts, seed = 0, chunk

    while cuts < POWER_CUTS // CHUNKS:
        run = SealedJournaledLives(seed)
        live_on(run, LIVES)
        assert run.violations == [], f"seed {seed}"
        assert in_clear(run.disk, run.log) == [], f"seed {seed}"
        cuts += run.power_cuts
        seed += CHUNKS


@pytest.mark.parametrize("seed", range(3))
def test_the_power_may_go_off_at_any_operation(seed: int) -> None:
    complete = SealedLives(seed)
    disk = complete.disk
    complete.live(40, None)

    for operation in range(1, disk.operations + 1):
        run = SealedLives(seed)
        run.live(40, operation)
        run.live(5, 3 + operation % 20)
        run.live(5, None)
        assert run.violations == [], f"seed {seed}, power off at operation {operation}"


@pytest.mark.parametrize("seed", range(8))
def test_power_cuts_lose_no_latest_record_of_a_compacted_log(seed: int) -> None:
    run = SealedKeyedLives(seed)

    for _ in range(12):
        run.live(60, run.chance.randint(1, 250))
    run.live(60, None)

    assert run.complaints == []


def deed_cut_at(seed: int, deed: str, cut_at: int | None) -> tuple[SealedLives, int]:
    """A log with some segments, and power that goes off at an operation of one deed."""
    run = SealedLives(seed)
    run.start()
    while len(run.log.segments()) < 4:
        run.append()
        run.sync()
        run.finish_syncs()
    run.log.checkpoint()
    run.finish_syncs()
    before = run.disk.operations
    run.disk.cut_power_at(None if cut_at is None else cut_at)
    with suppress(PowerCut):
        match deed:
            case "rotate":
                run.deeds.rotate(run.log)
            case "reseal":
                run.deeds.reseal(run.log, run.disk)
            case "truncate":
                run.truncate_to(int(run.log.segments()[1].base_offset) + 1)
            case "throw away":
                run.throw_away()
            case "roll":
                run.log.roll()
                run.append()
                run.sync()
        run.finish_syncs()
        run.append()
        run.sync()
        run.finish_syncs()
    operations = run.disk.operations - before
    run.disk = run.disk.crash(run.chance)
    return run, operations


@pytest.mark.parametrize("deed", ["rotate", "reseal", "truncate", "throw away", "roll"])
def test_no_operation_of_a_change_of_keys_is_a_bad_moment_to_lose_power(deed: str) -> None:
    for seed in range(4):
        _, operations = deed_cut_at(seed, deed, None)
        assert operations > 3
        for operation in range(1, operations + 1):
            run, _ = deed_cut_at(seed, deed, operation)
            run.live(5, None)
            run.live(5, None)
            assert run.violations == [], f"seed {seed}, {deed}, power off at operation {operation}"


def test_the_runs_include_rotations_and_segments_that_are_resealed() -> None:
    runs = [SealedLives(seed) for seed in range(10)]
    for run in runs:
        live_on(run, LIVES)

    assert sum(run.deeds.resealed for run in runs) > 3
    assert sum(run.deeds.rewrapped for run in runs) > 3


def test_a_key_that_is_used_before_it_is_on_disk_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that all of this rests on."""

    def hasty(self: LogKeys, *_: object) -> None:
        self.table = type(self.table)(
            self.table.context,
            (
                *self.table.rows[:-1],
                self.table.rows[-1]._replace(key_id=(key := self.vault.vault.new_key()).key_id),
            ),
            {**self.table.keys, key.key_id: key},
            self.table.spare,
        )

    monkeypatch.setattr(LogKeys, "take_spare", hasty)

    assert any(found_by(seed) for seed in range(20))


def found_by(seed: int) -> bool:
    run = SealedLives(seed)
    try:
        live_on(run, LIVES)
    except BrokenSeal:
        return True
    return bool(run.violations)
