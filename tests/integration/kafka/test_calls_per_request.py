"""The way of a request through the code stays as short as it is."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.micro.calls import LIMITS, CallCount, exceeded

REPOSITORY = Path(__file__).parents[3]


def test_no_request_takes_more_calls_than_its_limit() -> None:
    # A process of its own: the node needs a main thread, and its signals.
    counted = subprocess.run(
        [sys.executable, "-m", "benchmarks.micro.calls", "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert counted.returncode == 0, counted.stderr
    found = {kind: CallCount(**figures) for kind, figures in json.loads(counted.stdout).items()}
    assert found.keys() == LIMITS.keys()
    assert exceeded(found) == []


def test_a_way_that_has_become_longer_is_named() -> None:
    longer = {**LIMITS, "Fetch": LIMITS["Fetch"]._replace(calls=LIMITS["Fetch"].calls + 1)}

    assert exceeded(longer) == [f"Fetch: {longer['Fetch'].calls} calls, at most {LIMITS['Fetch'].calls}"]
