"""Seeds that once failed. Code has changed since, and with it what happens in them; they stay anyway."""

import pytest

from penstock.sim.cluster import SimulatedClusterOptions, options_for, run_cluster

THREE = SimulatedClusterOptions()

# Seed, circumstances (None: drawn from the seed), and what was wrong.
KEPT = [
    (2087, THREE, "a coordinator whose log was made late was never taken over"),
    (2820, THREE, "an answer lost behind an overtaken fetch left a follower outside the ISR"),
    (1312, THREE, "an idle follower that was refused once never came back into the ISR"),
    (243, THREE, "a full disk at the controller ended a node that registered"),
    (141, THREE, "a new leader told the end of the log before it knew it"),
    (20082, None, "duplicates bred fetches without end"),
    (800349, None, "aborts in a lost segment were forgotten when its records were back"),
    (4, None, "a node on a new disk ended because two leaders, one after the other, refused it"),
    (800643, None, "a voter in doubt was sure again once its disk had lost the doubt, too"),
    (930063, None, "a journal without its state brought back a record that had been cut off"),
    (960237, None, "a flipped bit in the term of a raft entry made a damaged log the most up to date"),
    (70016, None, "a node on a new disk gave up while controllers changed"),
    (
        200324,
        options_for(200324, queues=True),
        "a redrive by a node whose clock is an hour ahead was refused",
    ),
]


@pytest.mark.parametrize(("seed", "options", "fault"), KEPT, ids=[fault for _, _, fault in KEPT])
def test_a_seed_that_once_failed_passes(
    seed: int, options: SimulatedClusterOptions | None, fault: str
) -> None:
    assert run_cluster(seed, options).anomalies == (), fault
