"""Attack nodes that this command starts, and print what well-behaved clients felt.

See `benchmarks.attacks` for what the columns mean.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.attacks.attack import Attack
from benchmarks.attacks.catalog import ATTACKS
from benchmarks.attacks.figures import HEADING, AttackResult
from benchmarks.attacks.niceness import set_session_niceness
from benchmarks.attacks.run import Timeline, run_attack
from benchmarks.attacks.together import PHASE_HEADING, TogetherResult, run_together
from benchmarks.micro.__main__ import commit, machine
from penstock.cli.child import terminated_in_order


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the attacks and end")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these attacks or families only")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument("--seconds", type=float, default=10, help="how long each attack lasts")
    parser.add_argument("--recovery", type=float, default=8, help="seconds between an attack and `after`")
    parser.add_argument("--all-at-once", action="store_true", help="every attacker together")
    parser.add_argument("--minutes", type=float, default=60, help="how long all together")
    parser.add_argument("--kill", action="store_true", help="kill -9 a node at half time, and start it again")
    parser.add_argument("--json", type=Path, help="where the figures go, all of them")
    parser.add_argument(
        "--niceness",
        type=int,
        default=0,
        help="of nodes and well-behaved clients; below 0 (for root) where others keep the machine busy",
    )
    given = parser.parse_args()
    # Whoever is started inherits it; attackers add theirs.
    niceness = os.nice(given.niceness)
    if given.niceness:
        set_session_niceness(os.getpid(), niceness)
    chosen = [
        one for one in ATTACKS if given.only is None or one.name in given.only or one.family in given.only
    ]
    if given.list or not chosen:
        for one in ATTACKS:
            print(f"{one.family:12} {one.name:24} {one.description}")
        return 0 if given.list else 2
    if given.all_at_once:
        return _all_at_once(chosen, given)
    timeline = Timeline(attack_seconds=given.seconds, recovery_seconds=given.recovery)
    print(HEADING, flush=True)
    results = []
    for attack in chosen:
        result = run_attack(attack, given.nodes, timeline)
        results.append(result)
        print(result.row(), flush=True)
        print(f"{'':24} {result.attackers} {result.events}", file=sys.stderr, flush=True)
        if given.json is not None:
            _write(given.json, results)
    return 1 if any(one.misses() for one in results) else 0


def _all_at_once(chosen: list[Attack], given: argparse.Namespace) -> int:
    result = run_together(chosen, given.nodes, given.minutes, given.kill)
    print(PHASE_HEADING)
    for phase in result.phases:
        print(phase.row())
    print(f"after {result.after_mb:.0f} MB; {result.account}; starts {result.restart_seconds} s", end="")
    print(f"; nodes that ended: {result.nodes_ended}")
    print(f"{result.attackers}\n{result.events}", file=sys.stderr)
    if given.json is not None:
        _write(given.json, [result])
    return 1 if result.account.misses() or result.nodes_ended or None in result.restart_seconds else 0


def _write(path: Path, results: Sequence[AttackResult | TogetherResult]) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    report = {
        "commit": commit(),
        "when": now,
        "machine": machine(),
        "results": [one.as_json() for one in results],
    }
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    with terminated_in_order():
        sys.exit(main())
