"""One seed is one run, whatever process it happens in."""

import json
import os
import subprocess
import sys

import pytest

from penstock.sim.cluster import run_cluster


def in_a_process_of_its_own(seed: int, hash_seed: int) -> dict[str, object]:
    said = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "sim", "--seed", str(seed), "--json"],
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    verdict: dict[str, object] = json.loads(said.stdout)
    del verdict["events_per_second"]
    return verdict


@pytest.mark.parametrize("seed", [3, 42])
def test_a_seed_gives_the_same_trace_in_processes_with_different_hash_seeds(seed: int) -> None:
    here = json.loads(run_cluster(seed).to_json())

    assert in_a_process_of_its_own(seed, hash_seed=1) == here
    assert in_a_process_of_its_own(seed, hash_seed=2) == here


def test_different_seeds_give_different_traces() -> None:
    assert len({run_cluster(seed).trace for seed in range(5)}) == 5
