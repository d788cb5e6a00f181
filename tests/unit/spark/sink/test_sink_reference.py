"""The reference page says what the code does."""

import re
from pathlib import Path

import pyarrow as pa

from penstock.spark.formats.schema import parse_ddl
from penstock.spark.formats.value_decoder import KNOWN, SAMPLE_RECORDS
from penstock.spark.sink.options import COLUMNS, sink_columns

PAGE = (Path(__file__).parents[4] / "docs" / "reference" / "spark-sink.md").read_text()


def first_cells(heading: str) -> set[str]:
    """The names in the first column of the tables below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def test_the_page_lists_every_column() -> None:
    assert first_cells("Columns") == COLUMNS
    assert not any(sink_columns(pa.schema([("value", pa.string())]), "t"))


def test_the_page_lists_every_option() -> None:
    assert first_cells("Options") >= {"kafka.bootstrap.servers", "topic", "delivery", "kafka.*"}
    assert "`txnAppId`, `txnVersion`" in PAGE
    assert {name.lower() for name in first_cells("valueFormat")} == KNOWN
    assert f"| `valueSampleRecords` | {SAMPLE_RECORDS} |" in PAGE


def test_the_columns_in_the_example_can_be_read() -> None:
    found = re.search(r'"valueSchema", "([^"]+)"', PAGE)

    assert found is not None
    assert parse_ddl(found[1]).names == ["name", "value", "labels", "timestamp"]
