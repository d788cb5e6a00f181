"""Measure Penstock beside Apache Kafka and the machine's own limits, in one run."""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.macro.brokers import Promise, brokers
from benchmarks.macro.budgets import COLUMNS, Results, best_of, rows
from benchmarks.macro.measures import Measure, measures
from benchmarks.macro.starting import room_for, start_kafka, start_penstock
from benchmarks.peers.maven import PeerUnavailable
from penstock.cli.bench.report import Figures, commit, keep, report
from penstock.cli.bench.scenarios import BenchTarget
from penstock.cli.child import BrokerNotStarted
from penstock.client import ClientError

RESULTS = Path("bench-results")
ROUNDS = 3
QUICK = 0.1


def run(chosen: Sequence[Measure], rounds: int, peer: str, directory: str | None) -> Results:
    """Every measure against every broker, some rounds over."""
    results: Results = {}
    for promise in Promise:
        wanted = [one for one in chosen if one.promise is promise]
        if not wanted:
            continue
        try:
            with brokers(promise, peer, directory) as targets:
                for measure in wanted:
                    for _ in range(min(rounds, measure.rounds_max)):
                        _round(measure, targets, directory, results.setdefault(measure.name, {}))
        except BrokerNotStarted as why:
            print(f"without what needs {promise.name.lower()}: {why}", file=sys.stderr)
    return results


def _round(
    measure: Measure,
    targets: Iterable[BenchTarget],
    directory: str | None,
    found: dict[str, dict[str, object]],
) -> None:
    if measure.limit is not None:
        note(found, "limit", measure.limit(directory))
    for target in targets:
        print(f"{measure.name}: {target.name} (load {load()})", file=sys.stderr, flush=True)
        # What the last measurement left to be written must not be written during this one.
        os.sync()
        try:
            note(found, target.name, measure.run(target))
        except ClientError as error:
            print(f"{measure.name}: {target.name} failed: {error}", file=sys.stderr)


def note(found: dict[str, dict[str, object]], who: str, figures: Figures) -> None:
    """Add a round to what is known."""
    before = found.get(who, {"rounds": [], "load": []})
    rounds, loads = before["rounds"], before["load"]
    assert isinstance(rounds, list)
    assert isinstance(loads, list)
    all_rounds = [*rounds, figures]
    found[who] = {"best": best_of(all_rounds), "rounds": all_rounds, "load": [*loads, load()]}


def load() -> float:
    return round(os.getloadavg()[0], 1)


def starts(results: Results, rounds: int, peer: str, directory: str | None, gigabytes: float) -> None:
    """How long starts take; with gigabytes once, since it is big."""
    if gigabytes and not room_for(directory, gigabytes):
        print(f"without {gigabytes:g} GB on disk: there is no room", file=sys.stderr)
        gigabytes = 0
    kinds = {"penstock": start_penstock, "kafka": start_kafka}
    for name in ("penstock", "kafka") if peer == "kafka" else ("penstock",):
        for number in range(rounds):
            print(f"start: {name} (load {load()})", file=sys.stderr, flush=True)
            os.sync()
            try:
                figures = kinds[name](directory, gigabytes if not number else 0)
            except (PeerUnavailable, ClientError) as why:
                print(f"start: without {name}: {why}", file=sys.stderr)
                break
            note(results.setdefault("start", {}), name, figures)


def show(results: Results) -> None:
    lines = [list(COLUMNS), *rows(results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.macro", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of a tenth of the load")
    parser.add_argument("--peer", choices=("kafka", "none"), default="kafka", help="what to compare with")
    parser.add_argument("--json", type=Path, metavar="OUT", help="bench-results/macro-COMMIT.json without it")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="measures with one of these in their name")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each measure is taken")
    parser.add_argument("--directory", help="where data directories are made: on the disk to be measured")
    parser.add_argument("--gigabytes", type=float, default=0, help="also start with so much on disk (10)")
    arguments = parser.parse_args()

    rounds = 1 if arguments.quick else arguments.rounds
    words: list[str] | None = arguments.only
    chosen = [
        one
        for one in measures(QUICK if arguments.quick else 1.0)
        if words is None or any(word in one.name for word in words)
    ]
    results = run(chosen, rounds, arguments.peer, arguments.directory)
    if words is None or "start" in words:
        starts(results, rounds, arguments.peer, arguments.directory, arguments.gigabytes)
    show(results)
    output = arguments.json or RESULTS / f"macro-{commit()}.json"
    keep(report(results, {"rounds": rounds}), str(output))


if __name__ == "__main__":
    main()
