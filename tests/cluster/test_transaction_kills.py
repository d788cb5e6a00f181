import random
from pathlib import Path

from tests.cluster.transaction_kills import run


def test_nodes_and_copiers_that_are_killed_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """The short form of `make kills`."""
    outcome = run(tmp_path, kills=3, luck=random.Random(7))

    assert outcome.anomalies == []
    assert outcome.fed == outcome.copied > 0
    assert set(outcome.kills) == {"node", "copier"}
