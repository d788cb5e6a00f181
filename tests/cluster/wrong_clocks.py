"""Three nodes whose clocks disagree, and whose leaders are killed under load.

    python -m tests.cluster.wrong_clocks --rounds 5

Node 1 is an hour ahead, node 2 an hour behind, and both clocks of node 3 run a tenth too fast: nothing
that keeps records safe may depend on the wall, nor on seconds being equally long everywhere.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.cluster.stage import PARTITIONS, SETTINGS, TOPIC, Verdict, moment, stage_on
from tests.support.clocks import library, running_at, wrong_by
from tests.support.clusters import ClusterProcesses

HOUR_SECONDS = 3600
MISSING = "libfaketime is not installed (Debian: apt-get install libfaketime)"


def run_wrong_clocks(root: Path, rounds: int, rate: int = 300, seed: int = 1) -> tuple[list[float], Verdict]:
    """Kill leaders again and again; returns the waits for the next write, and the result."""
    luck, waits, cluster = random.Random(seed), [], ClusterProcesses(root, *SETTINGS)
    cluster.nodes[1].variables = wrong_by(HOUR_SECONDS)
    cluster.nodes[2].variables = wrong_by(-HOUR_SECONDS)
    cluster.nodes[3].variables = running_at(1.1)
    try:
        cluster.start()
        with stage_on(cluster, rate) as on:
            for _ in range(rounds):
                on.await_in_sync()
                on.load.await_acknowledged(luck.randint(1, rate))
                victim = cluster.leader_of(TOPIC, luck.randrange(PARTITIONS))
                led, killed = on.led_by(victim), moment()
                cluster.nodes[victim].kill()
                waits.append(on.outage(killed, led))
                cluster.nodes[victim].start()
            on.await_in_sync()
            return waits, on.finish()
    finally:
        cluster.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=600, help="records per second")
    given = parser.parse_args()
    if library() is None:
        print(f"skipped: {MISSING}")
        return 0
    with tempfile.TemporaryDirectory(prefix="penstock-clocks-") as root:
        waits, verdict = run_wrong_clocks(Path(root), given.rounds, given.rate)
    print(f"next write after a kill: {', '.join(f'{wait:.2f} s' for wait in waits)}")
    print(f"{verdict.sent} sent, {verdict.acknowledged} acknowledged")
    print("\n".join(verdict.anomalies[:20] or ["nothing lost, doubled, moved or out of order"]))
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
