"""Take the figures of durability, and print them as one table."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.cluster.nodes import check_tree
from benchmarks.durability.measures import depth_1, end_to_end, partitions, sync_cost
from benchmarks.durability.recovery import recovery
from benchmarks.durability.sides import Comparison
from benchmarks.side_by_side import BASE, KAFKA, THIS, rows, show
from penstock.cli.bench.report import keep, report
from penstock.cli.child import terminated_in_order
from penstock.client import ClientError

ROUNDS = 3
KILLS = 5
SECONDS = 5.0
THIS_TREE = Path(__file__).resolve().parents[2]

MEASURES: dict[str, Callable[[Comparison], None]] = {
    "partitions": partitions,
    "sync-cost": sync_cost,
    "depth-1": depth_1,
    "end-to-end": end_to_end,
    "recovery": recovery,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durability", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), metavar="NAME", help=", ".join(MEASURES))
    parser.add_argument("--base", type=Path, help="a checkout to compare with")
    parser.add_argument("--json", metavar="FILE", help="where every round is kept")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each single load lasts")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each load is put on each side")
    parser.add_argument("--kills", type=int, default=KILLS, help="how often each side is killed (recovery)")
    parser.add_argument("--peer", choices=("kafka", "none"), default="kafka", help="what to compare with")
    parser.add_argument("--directory", help="where data directories are made: on the disk to be measured")
    arguments = parser.parse_args()

    trees = {THIS: THIS_TREE}
    if arguments.base is not None:
        trees = {BASE: arguments.base.resolve(), **trees}
    run = Comparison(
        trees,
        with_kafka=arguments.peer == "kafka",
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        kills=arguments.kills,
        directory=arguments.directory,
    )
    try:
        with terminated_in_order():
            for tree in trees.values():
                check_tree(tree)
            for name in arguments.only or MEASURES:
                MEASURES[name](run)
    except ClientError as error:
        sys.exit(f"durability: {error}")
    sides = [name for name in (BASE, THIS, KAFKA) if _was_measured(run, name)]
    show(rows(run.results, sides))
    if arguments.json:
        commits = {name: _commit(tree) for name, tree in trees.items()}
        notes = {"commits": commits, "rounds": run.rounds, "seconds": run.seconds, "loads": run.loads}
        keep(report(run.results, {**notes, "failures": run.failures}), arguments.json)
    return 1 if run.failures else 0


def _was_measured(run: Comparison, side: str) -> bool:
    return any(side in by_side for figures in run.results.values() for by_side in figures.values())


def _commit(tree: Path) -> str:
    answer = subprocess.run(
        ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "no history"


if __name__ == "__main__":
    sys.exit(main())
