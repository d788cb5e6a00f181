"""What a suite said, held against the list of what it said before.

A list has three parts: `passed`; `skipped`, what the suite leaves out by itself on one node without TLS or
SASL, and why; and `not_yet`, what Penstock cannot do yet, with a reason that begins with one of `REASONS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
class Expected:
    """One suite's list."""

    passed: tuple[str, ...]
    skipped: Mapping[str, str]
    not_yet: Mapping[str, str]


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


def read_list(suite: str) -> Expected:
    """Reasons stand above the tests they hold for."""
    read = yaml.safe_load((Path(__file__).parent / f"{suite}.yaml").read_text())
    skipped, not_yet = (
        {name: reason for reason, names in read[part].items() for name in names}
        for part in ("skipped", "not_yet")
    )
    return Expected(tuple(read["passed"]), skipped, not_yet)


def compare(outcomes: Mapping[str, Outcome], expected: Expected) -> Comparison:
    """A test that should pass must be there and pass; one that nobody listed must not fail."""
    passed = {name for name, outcome in outcomes.items() if outcome is Outcome.PASSED}
    failed = {name for name, outcome in outcomes.items() if outcome is Outcome.FAILED}
    listed = {*expected.passed, *expected.skipped, *expected.not_yet}
    return Comparison(
        lost=tuple(sorted(set(expected.passed) - passed)),
        failed_unlisted=tuple(sorted(failed - set(expected.passed) - set(expected.not_yet))),
        gained=tuple(sorted(passed & {*expected.not_yet, *expected.skipped})),
        unlisted=tuple(sorted(set(outcomes) - failed - listed)),
    )
