"""Rows by partition, and partition values as text."""

import datetime as dt

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake.table import check_partition_columns, directory, split, to_scalar, to_text


def test_rows_are_split_by_all_partition_columns_together() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "id": [0, 1, 2, 3, 4, 5],
            "a": ["x", "y", "x", None, "x", None],
            "b": [1, 1, 2, 1, 1, 1],
        }
    )
    rest = pa.schema([("id", pa.int64())])

    parts = {values: rows.column("id").to_pylist() for values, rows in split(batch, ["a", "b"], rest)}

    assert parts == {("x", "1"): [0, 4], ("y", "1"): [1], ("x", "2"): [2], (None, "1"): [3, 5]}


def test_rows_of_one_partition_are_not_copied() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [0, 1], "a": ["x", "x"]})

    ((values, rows),) = split(batch, ["a"], pa.schema([("id", pa.int64())]))

    assert values == ("x",)
    assert rows.column("id").buffers()[1].address == batch.column("id").buffers()[1].address


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.string(), None),
        ("ä/b", pa.string(), "ä/b"),
        (-7, pa.int32(), "-7"),
        (True, pa.bool_(), "true"),
        (dt.date(2026, 11, 15), pa.date32(), "2026-11-15"),
        (
            dt.datetime(2026, 11, 15, 1, 2, 3, 4, tzinfo=dt.UTC),
            pa.timestamp("us", "UTC"),
            "2026-11-15 01:02:03.000004",
        ),
        (
            dt.datetime(2026, 11, 15, 1, 2, 3, 4, tzinfo=dt.UTC).replace(tzinfo=None),
            pa.timestamp("us"),
            "2026-11-15 01:02:03.000004",
        ),
    ],
)
def test_a_value_survives_its_text(value: object, kind: pa.DataType, text: str | None) -> None:
    assert to_text(value) == text
    assert to_scalar(text, kind) == pa.scalar(value, kind)


def test_the_empty_text_is_null_as_everywhere_in_delta() -> None:
    assert to_text("") is None


def test_directories_hold_any_text() -> None:
    assert directory(["a", "b c"], ("x/y=%", None)) == "a=x%2Fy%3D%25/b%20c=__HIVE_DEFAULT_PARTITION__/"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["nope"], "the rows have no column 'nope'"),
        (["list"], "column 'list' is list"),
        (["real"], "column 'real' is double"),
        (["list", "real", "id"], "column 'list'"),
    ],
)
def test_columns_that_make_no_directories_are_refused(columns: list[str], message: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("list", pa.list_(pa.int64())), ("real", pa.float64())])

    with pytest.raises(SparkOptionError, match=message):
        check_partition_columns(schema, columns)


def test_a_column_must_be_left_to_write() -> None:
    with pytest.raises(SparkOptionError, match="at least one column must be left"):
        check_partition_columns(pa.schema([("id", pa.int64())]), ["id"])
