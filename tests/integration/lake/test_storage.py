from pathlib import Path

import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake import table_options
from penstock.spark.lake.table import open_table


def test_a_file_where_a_table_should_be_is_refused_with_its_path(tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    place.write_text("a,b\n")

    with pytest.raises(
        SparkOptionError, match=r"option path: .*rows\.csv is a file, and a table is a directory"
    ):
        open_table(table_options({"path": str(place)}))


def test_a_directory_that_holds_no_table_is_a_table_yet_to_come(tmp_path: Path) -> None:
    assert open_table(table_options({"path": str(tmp_path)})) is None
