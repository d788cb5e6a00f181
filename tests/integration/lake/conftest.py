"""A table that is not there yet."""

from pathlib import Path

import pytest

from penstock.spark.lake import TableOptions


@pytest.fixture
def table(tmp_path: Path) -> TableOptions:
    return TableOptions(str(tmp_path / "table"))
