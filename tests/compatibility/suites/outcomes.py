"""What a suite said, held against the list of what it said before.

A list has five parts: `passed`; `skipped`, what the suite leaves out by itself without TLS or SASL, and why;
`not_yet`, what Penstock cannot do yet, with a reason that begins with one of `REASONS`;
`fails_on_several`, what passes on one broker alone, with a reason that holds for Kafka too; and
`races`, what is among `passed` and runs a race that the broker cannot decide: it is run again if it fails.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import yaml

REASONS = (
    "ACLs",
    "KIP-848",
    "TLS and SASL",
    "quotas",
    "several brokers",
    "share groups",
    "transactions",
)


class Outcome(Enum):
    """How one test of a suite ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Asked:
    """Which tests shall run (those named, or all but some), on how many brokers, and for how long at most.

    `whole` is for a suite that leaves out what takes long unless it is asked for.
    """

    only: frozenset[str]
    leave_out: frozenset[str]
    brokers: int
    seconds: float
    whole: bool = False

    def again(self, names: Collection[str]) -> "Asked":
        """Some of the tests, once more."""
        return replace(self, only=frozenset(names))

    def wants(self, name: str) -> bool:
        return name in self.only if self.only else name not in self.leave_out


@dataclass(frozen=True)
class Expected:
    """One suite's list."""

    passed: tuple[str, ...]
    skipped: Mapping[str, str]
    not_yet: Mapping[str, str]
    fails_too: Mapping[str, str] = field(default_factory=dict)
    races: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """What differs from the list: the first two are regressions, the others call for a better list."""

    lost: tuple[str, ...]
    failed_unlisted: tuple[str, ...]
    gained: tuple[str, ...]
    unlisted: tuple[str, ...]

    @property
    def is_regression(self) -> bool:
        return bool(self.lost or self.failed_unlisted)


def read_list(suite: str, brokers: int = 1) -> Expected:
    """Reasons stand above the tests they hold for."""
    read = yaml.safe_load((Path(__file__).parent / f"{suite}.yaml").read_text())
    skipped, not_yet, several, races = (
        {name: reason for reason, names in read[part].items() for name in names}
        for part in ("skipped", "not_yet", "fails_on_several", "races")
    )
    fails_too = several if brokers > 1 else {}
    return Expected(
        tuple(name for name in read["passed"] if name not in fails_too), skipped, not_yet, fails_too, races
    )


def compare(outcomes: Mapping[str, Outcome], expected: Expected) -> Comparison:
    """A test that should pass must be there and pass; one that nobody listed must not fail.

    What fails with Kafka too depends on which broker is asked first: it may pass.
    """
    passed = {name for name, outcome in outcomes.items() if outcome is Outcome.PASSED}
    failed = {name for name, outcome in outcomes.items() if outcome is Outcome.FAILED}
    may_fail = {*expected.not_yet, *expected.fails_too}
    listed = {*expected.passed, *expected.skipped, *may_fail}
    return Comparison(
        lost=tuple(sorted(set(expected.passed) - passed)),
        failed_unlisted=tuple(sorted(failed - set(expected.passed) - may_fail)),
        gained=tuple(sorted(passed & {*expected.not_yet, *expected.skipped})),
        unlisted=tuple(sorted(set(outcomes) - failed - listed)),
    )
