"""What is put aside is kept, whatever happens next."""

from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.core.model import Offset

if TYPE_CHECKING:
    from tests.unit.storage.log.conftest import Bench


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_that_was_put_aside_survives_a_power_cut(bench: "Bench", which: int) -> None:
    bench.fill(40)
    bench.log.close()
    bench.rounds.finish_all()
    base = bench.files(".log")[which].removesuffix(".log")
    bench.flip(f"{base}.log", 70)
    bench.reopen(clean=False)
    for _ in bench.log.scrub():
        pass

    bench.log.quarantine(Offset(int(base)))

    for seed in range(20):
        survivor = bench.crashable.crash(Random(seed))
        assert survivor.size(f"{bench.log.directory}/quarantine/{base}.log") > 0
        assert not survivor.exists(f"{bench.log.directory}/{base}.log")
