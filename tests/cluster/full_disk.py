"""Three nodes under load, the disk of one of which fills up, and is given room again.

    python -m tests.cluster.full_disk --rounds 5

A node without room must resign: what it leads goes to others, and nobody waits for it. With room
it catches up and is in sync again. Nothing that was acknowledged may be lost, and nothing twice.
"""

import argparse
import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.stage import PARTITIONS, SETTINGS, Verdict, moment, stage_on
from tests.support.clusters import ClusterProcesses, until
from tests.support.small_disk import small_disk

MEGABYTES = 64
PIECE_BYTES = 1 << 20
VICTIM = 2


def run_full_disk(root: Path, rounds: int, rate: int = 300, seed: int = 1) -> tuple[list[float], Verdict]:
    """Fill the disk of one node again and again; returns the longest waits for a write, and the result."""
    cluster, luck, waits = ClusterProcesses(root, *SETTINGS), random.Random(seed), []
    place = root / f"node-{VICTIM}"
    with small_disk(place, MEGABYTES):
        try:
            cluster.start()
            with stage_on(cluster, rate) as on:
                for _ in range(rounds):
                    on.await_in_sync()
                    began = moment()
                    with full(place):
                        until(lambda: not on.led_by(VICTIM), f"node {VICTIM} leads nothing")
                        waits.append(on.outage(began, range(PARTITIONS)))
                        on.load.await_acknowledged(luck.randint(1, rate))
                on.await_in_sync()
                return waits, on.finish()
        finally:
            cluster.close()


@contextlib.contextmanager
def full(place: Path) -> Iterator[None]:
    """Leave no room on the disk that a directory is on."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (PIECE_BYTES, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
        os.fsync(file.fileno())
    try:
        yield
    finally:
        ballast.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=600, help="records per second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-full-") as root:
        waits, verdict = run_full_disk(Path(root), given.rounds, given.rate)
    print(f"next write after the disk was full: {', '.join(f'{wait:.2f} s' for wait in waits)}")
    print(f"{verdict.sent} sent, {verdict.acknowledged} acknowledged")
    print("\n".join(verdict.anomalies[:20] or ["nothing lost, doubled, moved or out of order"]))
    return 0 if verdict.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
