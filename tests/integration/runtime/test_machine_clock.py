"""The clock of a node, in a machine that has slept."""

import subprocess
import sys

import pytest

SLEPT_S = 86_400
# In a time namespace, the two clocks differ as they do after a sleep of that length.
UNSHARE = ("unshare", "--time", "--boottime", str(SLEPT_S))
SCRIPT = """
import time
from penstock.runtime.loop import MachineClock
print((MachineClock().now() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 10**9)
"""


def test_time_in_which_the_machine_slept_counts() -> None:
    try:
        subprocess.run([*UNSHARE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no time namespaces here: {error}")

    shown = subprocess.run(
        [*UNSHARE, sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True
    )

    assert abs(int(shown.stdout) - SLEPT_S) <= 1
