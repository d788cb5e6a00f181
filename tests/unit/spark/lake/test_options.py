"""What a user may say about a table, and what is refused."""

import pickle
import re
from pathlib import Path

import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake import OriginColumns, table_options
from penstock.spark.lake.table import (
    BATCH_READ_OPTIONS,
    STREAM_READ_OPTIONS,
    TABLE_OPTIONS,
    WRITE_OPTIONS,
    check_names,
)


def test_names_are_found_whatever_their_case() -> None:
    table = table_options(
        {
            "path": "/lake/raw",
            "partitioncolumns": "date, host",
            "targetFileSize": "1000",
            "storage.aws_region": "eu-central-1",
            "onoverlap": "SKIP",
            "origincolumns": "t,p,o",
        }
    )

    assert table.partition_columns == ("date", "host")
    assert table.target_file_bytes == 1000
    assert table.storage_options == {"aws_region": "eu-central-1"}
    assert table.on_overlap == "skip"
    assert table.origin_columns == OriginColumns("t", "p", "o")
    assert pickle.loads(pickle.dumps(table)) == table


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("/lake/raw", "/lake/raw"),
        ("file:///lake/raw", "/lake/raw"),
        ("file:/lake/raw", "/lake/raw"),
        ("s3://bucket/raw", "s3://bucket/raw"),
    ],
)
def test_a_path_is_local_or_an_address(path: str, kept: str) -> None:
    table = table_options({"path": path})

    assert table.path == kept
    assert table.is_local == (not path.startswith("s3"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option path: say where the table is"),
        ({"path": "t", "partitionColumns": "a,a"}, "names a column twice"),
        ({"path": "t", "originColumns": "a,b"}, "is not three columns"),
        ({"path": "t", "targetFileSize": "0"}, "option targetFileSize: 0 is less than 1"),
        ({"path": "t", "targetFileSize": "1 MB"}, "not a whole number"),
        ({"path": "t", "compression": "lzo"}, "option compression: 'lzo' is none of zstd"),
        ({"path": "t", "onOverlap": "merge"}, "option onOverlap: 'merge' is none of"),
        ({"path": "t", "mergeSchema": "perhaps"}, "neither true nor false"),
        ({"path": "t", "tableFormat": "hudi"}, "option tableFormat"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(SparkOptionError, match=message):
        table_options(options)


def test_a_slip_of_the_pen_is_refused() -> None:
    check_names(
        {"Path": "t", "checkpointlocation": "c", "storage.x": "y", "ONOVERLAP": "skip"}, WRITE_OPTIONS
    )

    with pytest.raises(
        SparkOptionError, match="option partitionColumn: there is no such option here; there are path"
    ):
        check_names({"path": "t", "partitionColumn": "day"}, WRITE_OPTIONS)


def test_the_reference_lists_every_option() -> None:
    text = (Path(__file__).parents[4] / "docs/reference/spark-lake.md").read_text()
    listed = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)

    assert sorted(listed) == sorted(
        {
            *TABLE_OPTIONS,
            *WRITE_OPTIONS,
            *BATCH_READ_OPTIONS,
            *STREAM_READ_OPTIONS,
        }
    )
