"""The power goes off at every moment of a log with a journal, and nothing that was durable is lost."""

import os

import pytest

from tests.property.storage.journal_runs import JournaledLives, run_journaled_lives

# More for a long run: PENSTOCK_POWER_CUTS=20000.
POWER_CUTS = int(os.environ.get("PENSTOCK_POWER_CUTS", "600"))
LIVES = 6
CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_was_reported_durable_survives_power_cuts_at_random_moments(chunk: int) -> None:
    cuts = 0
    seed = chunk

    while cuts < POWER_CUTS // CHUNKS:
        run = run_journaled_lives(seed, LIVES)
        assert run.violations == [], f"seed {seed}"
        cuts += run.power_cuts
        seed += CHUNKS


def test_the_runs_include_logs_that_are_continued_from_the_journal() -> None:
    assert any(run_journaled_lives(seed, LIVES).restored for seed in range(40))


@pytest.mark.parametrize("seed", range(4))
def test_the_power_may_go_off_at_any_operation(seed: int) -> None:
    complete = JournaledLives(seed)
    disk = complete.disk
    complete.live(40, None)

    for operation in range(1, disk.operations + 1):
        run = JournaledLives(seed)
        run.live(40, operation)
        run.live(5, 3 + operation % 40)
        run.live(5, None)
        assert run.violations == [], f"seed {seed}, power off at operation {operation}"
