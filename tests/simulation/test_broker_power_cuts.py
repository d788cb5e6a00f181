"""A whole node under power cuts, kills and failing disks: nothing acknowledged is lost or doubled."""

from dataclasses import replace

import pytest

from penstock.core.replica import ACCEPTED, ProducerStates
from penstock.services.partitions import Fsync, Partition
from penstock.simulation.broker import BrokerOptions, run_broker
from penstock.simulation.broker.world import NODE

SEEDS = range(1, 41)
# Every planted bug must be found within this many seeds.
SEEDS_FOR_A_BUG = range(1, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_doubled_moved_or_reordered(seed: int) -> None:
    verdict = run_broker(seed)

    assert verdict.anomalies == ()
    assert verdict.faults["power-cut"] + verdict.faults["power-cut-in-write"] > 0


def test_the_seeds_add_up_to_five_hundred_power_cuts() -> None:
    cuts = sum(
        count
        for seed in SEEDS
        for kind, count in run_broker(seed, BrokerOptions(batches=1)).faults.items()
        if kind.startswith("power-cut")
    )

    assert cuts >= 500


def test_a_run_is_repeated_by_its_seed() -> None:
    assert run_broker(3) == run_broker(3)


def found(**node: object) -> list[str]:
    anomalies: list[str] = []
    for seed in SEEDS_FOR_A_BUG:
        anomalies += run_broker(seed, node=replace(NODE, **node)).anomalies  # type: ignore[arg-type]
    return anomalies


def test_acknowledging_before_the_sync_is_found() -> None:
    assert any(anomaly.startswith(("lost", "unseen")) for anomaly in found(fsync=Fsync.NONE))


def test_forgetting_what_producers_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStates, "check", lambda self, header: ACCEPTED)

    assert any(anomaly.startswith("duplicate") for anomaly in found())


def test_a_high_watermark_ahead_of_the_disk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Partition, "high_watermark", property(lambda self: self.log.end, lambda self, _: None)
    )

    # What was acknowledged too early and lost leaves a hole in the producer's sequence.
    assert any(anomaly.startswith(("lost", "unseen", "refused")) for anomaly in found())
