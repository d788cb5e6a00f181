"""Run a foreign suite against fresh brokers, and compare what passes with the list kept here.

    python -m tests.compatibility.suites.run librdkafka|kafka-python [options]

Exit status: 0 as listed or better, 1 something that passed before fails, 2 the suite cannot be run here.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Protocol

from tests.compatibility.suites import kafka_python, librdkafka
from tests.compatibility.suites.downloads import Unavailable
from tests.compatibility.suites.outcomes import Asked, Comparison, Expected, Outcome, compare, read_list


class Suite(Protocol):
    """What the module of a suite offers."""

    def prepare(self, work: Path) -> Path: ...
    def execute(self, tests: Path, directory: Path, asked: Asked) -> dict[str, Outcome]: ...


SUITES: dict[str, Suite] = {"librdkafka": librdkafka, "kafka-python": kafka_python}
ATTEMPTS_MORE = 2
WORK = Path(__file__).parents[3] / "build" / "suites"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--all", action="store_true", help="also what the list says cannot pass yet")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this test; repeatable")
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers the cluster has")
    parser.add_argument("--whole", action="store_true", help="also what librdkafka leaves out to be quick")
    parser.add_argument("--minutes", type=float, default=15, help="bound for the run itself")
    asked = parser.parse_args(arguments)
    expected = read_list(asked.suite, asked.brokers)
    leave_out = frozenset(() if asked.all or asked.only else expected.not_yet)
    chosen = Asked(frozenset(asked.only), leave_out, asked.brokers, asked.minutes * 60, asked.whole)
    try:
        outcomes = _outcomes(asked.suite, chosen)
        for _ in range(ATTEMPTS_MORE):
            lost = [name for name in expected.races if outcomes.get(name) is Outcome.FAILED]
            if lost:
                print(f"{asked.suite}: a race was lost, and is run again: {', '.join(lost)}", flush=True)
                again = _outcomes(asked.suite, chosen.again(lost))
                outcomes |= {name: again[name] for name in lost}
    except Unavailable as reason:
        print(f"{asked.suite}: cannot be run here: {reason}")
        return 2
    if asked.only:
        outcomes = {name: outcome for name, outcome in outcomes.items() if name in asked.only}
        expected = _part(expected, asked.only)
    comparison = compare(outcomes, expected)
    _report(asked.suite, outcomes, expected, comparison)
    return 1 if comparison.is_regression else 0


def _outcomes(name: str, asked: Asked) -> dict[str, Outcome]:
    suite = SUITES[name]
    print(f"{name}: fetching and building into {WORK} (once)", flush=True)
    tests = suite.prepare(WORK)
    print(f"{name}: running on {asked.brokers} broker(s), with output in {tests}/output-*.log", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        return suite.execute(tests, Path(directory), asked)


def _part(expected: Expected, only: list[str]) -> Expected:
    return Expected(
        tuple(name for name in expected.passed if name in only),
        {name: reason for name, reason in expected.skipped.items() if name in only},
        {name: reason for name, reason in expected.not_yet.items() if name in only},
        {name: reason for name, reason in expected.fails_too.items() if name in only},
    )


def _report(name: str, outcomes: dict[str, Outcome], expected: Expected, comparison: Comparison) -> None:
    counts = Counter(outcome.value for outcome in outcomes.values())
    print(f"{name}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}")
    for test, reason in expected.not_yet.items():
        print(f"  not yet              {test}: {reason}")
    for test, reason in expected.fails_too.items():
        outcome = outcomes[test].value if test in outcomes else "not run"
        print(f"  as with Kafka        {test}: {outcome}; {reason}")
    for title, tests in (
        ("PASSED BEFORE", comparison.lost),
        ("FAILED, NOT LISTED", comparison.failed_unlisted),
        ("passes now", comparison.gained),
        ("not listed", comparison.unlisted),
    ):
        for test in tests:
            print(f"  {title:20} {test}: {outcomes[test].value if test in outcomes else 'not run'}")
    print(f"{name}: {'regression' if comparison.is_regression else 'as listed or better'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
