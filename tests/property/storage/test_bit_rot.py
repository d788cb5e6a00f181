"""Disks that flip bits and lose the ends of files: what is hurt is named, the rest stays right."""

import os
import random

import pytest

from tests.property.storage.log_damage import Harm, grown_log, judge_damaged, some_harm

# More for a long run: PENSTOCK_DAMAGES=20000.
DAMAGES = int(os.environ.get("PENSTOCK_DAMAGES", "400"))
CHUNKS = 8
PER_LOG = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_damage_is_repaired_or_reported_and_never_read_as_good(chunk: int) -> None:
    kinds: set[str] = set()

    for seed in range(chunk, DAMAGES // PER_LOG, CHUNKS):
        run = grown_log(seed, clean=seed % 2 == 0)
        chance = random.Random(seed)
        for _ in range(PER_LOG):
            harm = some_harm(run.disk, chance)
            kinds.add(harm.kind)
            assert judge_damaged(run, harm) == [], f"seed {seed}, {harm}"

    assert {"log", "index", "timeindex", "snapshot", "checkpoint", "leader-epochs"} <= kinds


def test_every_file_of_a_log_may_be_missing_as_if_it_had_been_emptied() -> None:
    for seed in range(6):
        run = grown_log(seed, clean=True)

        for path in run.disk.files():
            harm = Harm(path, None, 0)
            assert judge_damaged(run, harm) == [], f"seed {seed}, {harm}"


def test_every_byte_of_a_batch_is_guarded() -> None:
    run = grown_log(3, clean=True)
    path = next(path for path in run.disk.files() if path.endswith(".log"))

    for byte in range(min(run.disk.size(path), 250)):
        harm = Harm(path, byte * 8 + byte % 8, None)
        assert judge_damaged(run, harm) == [], f"{harm}"
