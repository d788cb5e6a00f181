from pathlib import Path

import pytest

from penstock.spark.run.launch import AlreadyRunning, locked


def test_a_second_run_on_the_same_directory_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    directory = tmp_path / "metrics"

    with (
        locked(directory),
        pytest.raises(AlreadyRunning, match="metrics is running already"),
        locked(directory),
    ):
        pass

    with locked(directory):
        pass
