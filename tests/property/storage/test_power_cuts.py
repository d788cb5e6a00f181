"""The power goes off at every moment, and nothing that was durable is lost."""

import os
from contextlib import suppress

import pytest

from penstock.core.model import Offset
from penstock.storage.disk import PowerCut
from tests.property.storage.log_runs import Lives, run_lives

# More for a long run: PENSTOCK_POWER_CUTS=20000.
POWER_CUTS = int(os.environ.get("PENSTOCK_POWER_CUTS", "1200"))
LIVES = 6
CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_was_reported_durable_survives_power_cuts_at_random_moments(chunk: int) -> None:
    cuts = 0
    seed = chunk

    while cuts < POWER_CUTS // CHUNKS:
        run = run_lives(seed, LIVES)
        assert run.violations == [], f"seed {seed}"
        cuts += run.power_cuts
        seed += CHUNKS


@pytest.mark.parametrize("seed", range(4))
def test_the_power_may_go_off_at_any_operation(seed: int) -> None:
    complete = Lives(seed)
    disk = complete.disk
    complete.live(40, None)

    for operation in range(1, disk.operations + 1):
        run = Lives(seed)
        run.live(40, operation)
        run.live(5, 3 + operation % 20)
        run.live(5, None)
        assert run.violations == [], f"seed {seed}, power off at operation {operation}"


def test_a_log_that_lost_power_while_it_was_thrown_away_goes_on_safely() -> None:
    for operation in range(1, 40):
        for seed in range(6):
            run = Lives(seed)
            run.start()
            run.append()
            run.disk.cut_power_at(operation)
            with suppress(PowerCut):
                run.throw_away()
            run.disk = run.disk.crash(run.chance)

            run.start()
            run.append()
            run.sync()
            run.finish_syncs()
            run.disk = run.disk.crash(run.chance)
            run.start()

            assert run.violations == [], f"seed {seed}, power off at operation {operation}"


def test_the_indexes_of_a_truncated_segment_do_not_come_back() -> None:
    for seed in range(100):
        run = Lives(seed)
        run.start()
        while len(run.log.segments()) < 3:
            run.append()
        run.sync()
        run.finish_syncs()
        run.truncate_to(run.log.segments()[1].base_offset - 2)
        start = Offset(run.log.end + 1)
        while len(run.log.segments()) < 2:
            run.append()
        # This takes a checkpoint, while the new indexes still wait for their sync.
        run.checker.forgetting(start)
        run.checker.forgot(run.log.delete_records(start))

        run.disk = run.disk.crash(run.chance)
        run.start()

        assert run.violations == [], f"seed {seed}"
        assert run.search(run.checker.history, samples=1000) == [], f"seed {seed}"
