import os
import random
from pathlib import Path

import pytest

from tests.spark.exactness.kill_rounds import Rounds
from tests.spark.exactness.trial import QUICK, verdicts

RECORDS = 24_000
# Two, so that windows close while something is killed.
ROUNDS = 2
# Each kill has a part of the records, which take a little longer than its random moment.
RATE = RECORDS / ROUNDS / 3 / 8


@pytest.mark.skipif("PENSTOCK_SPARK_KILLS" not in os.environ, reason="it takes minutes: make sparkkills")
@pytest.mark.timeout(3_600)  # several JVMs, one after the other, on a machine that may be busy
def test_every_record_counts_once_when_driver_executor_and_one_of_three_brokers_are_killed(
    tmp_path: Path,
) -> None:
    with Rounds(tmp_path, "local-cluster[2,1,1024]", RATE, random.Random(1), QUICK, brokers=3) as rounds:
        outcome = rounds.run(RECORDS, ROUNDS)

    assert verdicts(outcome.checks) == []
    assert len(outcome.checks) == 5
    assert outcome.kills == dict.fromkeys(("broker", "executor", "driver"), ROUNDS)
