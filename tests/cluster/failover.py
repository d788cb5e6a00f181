"""Three nodes whose leaders are killed again and again under load, and what the clients saw.

    python -m tests.cluster.failover --rounds 30

RF 3, min ISR 2, acks=all, idempotent producers, a consumer group of two. Each round kills (SIGKILL)
the leader of a partition, in every third round the leader of the metadata quorum, and starts it
again; the time from the kill to the next accepted write is that of the slowest partition that the
node led, counted to the response for a record that was sent after the kill. At the end a majority is
killed: writes must be refused with an error worth a retry, and go on by themselves afterwards.
"""

import argparse
import os
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.majority import lose_majority
from tests.cluster.stage import PARTITIONS, TOPIC, Stage, Verdict, moment, stage

CONTROLLER_EVERY = 3


@dataclass
class Outcome:
    """What the rounds showed. Times are seconds from the kill."""

    write_seconds: list[float] = field(default_factory=list)
    read_seconds: list[float] = field(default_factory=list)
    start_seconds: list[float] = field(default_factory=list)
    controllers: int = 0
    refusals: list[str] = field(default_factory=list)
    majority_seconds: float | None = None
    verdict: Verdict = field(default_factory=Verdict)


def run_failover(
    root: Path,
    rounds: int,
    seed: int,
    rate: int,
    progress: Callable[[str], None],
    with_majority: bool = True,
) -> Outcome:
    """Kill leaders `rounds` times, then a majority; bounded by count."""
    luck, outcome = random.Random(seed), Outcome()
    with stage(root, rate=rate) as on:
        for number in range(rounds):
            _round(on, outcome, luck, is_for_controller=number % CONTROLLER_EVERY == 0)
            progress(
                f"round {number + 1}: next write after {outcome.write_seconds[-1]:.2f} s, next read after "
                f"{outcome.read_seconds[-1]:.2f} s, {on.load.account.acknowledged} acknowledged"
            )
        if with_majority:
            on.await_in_sync()
            outcome.refusals, outcome.majority_seconds = lose_majority(on, luck)
            progress(f"majority lost: {outcome.refusals}; back after {outcome.majority_seconds:.2f} s")
        on.await_in_sync()
        outcome.verdict = on.finish()
    return outcome


def _round(on: Stage, outcome: Outcome, luck: random.Random, *, is_for_controller: bool) -> None:
    on.await_in_sync()
    on.load.await_acknowledged(luck.randint(1, 500))
    cluster, partition = on.cluster, luck.randrange(PARTITIONS)
    controller = cluster.controller()
    victim = controller if is_for_controller else cluster.leader_of(TOPIC, partition)
    outcome.controllers += victim == controller
    led = on.led_by(victim) or list(range(PARTITIONS))
    killed = moment()
    cluster.nodes[victim].kill()
    outcome.write_seconds.append(on.outage(killed, led))
    outcome.read_seconds.append(on.readers.resumed_since(killed, 60.0) or 60.0)
    began = moment()
    cluster.nodes[victim].start()
    outcome.start_seconds.append((moment() - began) / 1e9)


def summary(outcome: Outcome) -> str:
    verdict = outcome.verdict
    return "\n".join(
        [
            (
                f"{len(outcome.write_seconds)} kills, {outcome.controllers} of them of the controller; "
                f"{verdict.sent} sent, {verdict.acknowledged} acknowledged, {verdict.read} read by the group"
            ),
            f"next accepted write: {_spread(outcome.write_seconds)}",
            f"next record read by the group: {_spread(outcome.read_seconds)}",
            f"restart to ready: {_spread(outcome.start_seconds)}",
            *([f"without a majority: {', '.join(outcome.refusals)}"] if outcome.refusals else []),
            *(verdict.anomalies[:20] or ["nothing lost, doubled, moved or out of order"]),
            *([f"{len(verdict.failed)} failed sends, such as {verdict.failed[0]}"] if verdict.failed else []),
        ]
    )


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return f"p50 {ordered[len(ordered) // 2]:.2f} s, max {ordered[-1]:.2f} s" if ordered else "none"


def _cpu_share(seconds: float) -> float:
    """What this process and the nodes, which have all ended by now, used of all cores."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) / seconds / (os.cpu_count() or 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=3000, help="records per second; half of two cores")
    arguments = parser.parse_args()
    began = moment()
    with tempfile.TemporaryDirectory(prefix="penstock-failover-") as root:
        outcome = run_failover(Path(root), arguments.rounds, arguments.seed, arguments.rate, print)
    print(summary(outcome))
    print(f"nodes and clients used {_cpu_share((moment() - began) / 1e9):.0%} of the machine's cores")
    return 0 if outcome.verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
