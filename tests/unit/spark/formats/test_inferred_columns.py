from pathlib import Path

import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.formats import columns
from penstock.spark.formats.schema import infer_columns, to_ddl


def test_columns_are_what_most_values_are() -> None:
    sample = [
        b'{"b":1,"a":"x","t":"2026-01-01T00:00:00Z","o":{"p":true},"l":[1,2.5],"z":null,"e":{}}',
        b'{"b":2.5,"a":"y","o":{"q":[]},"huge":99999999999999999999}',
        b'{"b":"NaN","a":"z"}',
        b"not json",
        None,
    ]

    assert to_ddl(infer_columns(sample)) == (
        "a STRING, b DOUBLE, e STRING, huge DOUBLE, l ARRAY<DOUBLE>,"
        " o STRUCT<p: BOOLEAN, q: ARRAY<STRING>>, t STRING, z STRING"
    )


@pytest.mark.parametrize("sample", [[], [None, b"[1]", b"x"], [b"{}"]])
def test_nothing_to_go_by_is_said(sample: list[bytes | None]) -> None:
    with pytest.raises(SparkOptionError, match="cannot be inferred"):
        infer_columns(sample)


def test_inferred_columns_are_kept_and_used_again(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "columns.ddl"
    options = {"valueFormat": "json", "valueSchemaLocation": f"file://{place}", "valueSampleRecords": "7"}
    asked: list[int] = []

    def sample(count: int) -> list[bytes | None]:
        asked.append(count)
        return [b'{"a":1}']

    first = columns(options, sample)
    again = columns(options, sample)

    assert first == again
    assert asked == [7]
    assert place.read_text() == "a BIGINT\n"
    assert [path.name for path in place.parent.iterdir()] == ["columns.ddl"]


def test_kept_columns_can_be_edited_and_a_slip_is_named_with_its_file(tmp_path: Path) -> None:
    place = tmp_path / "columns.ddl"
    options = {"valueFormat": "json", "valueSchemaLocation": str(place)}
    place.write_text("a DOUBLE")

    assert to_ddl(columns(options, lambda _: [])) == "a DOUBLE"

    place.write_text("a DUBLE")
    with pytest.raises(
        SparkOptionError, match=rf"option valueSchemaLocation: {place}: a: 'duble' is no type"
    ):
        columns(options, lambda _: [])


def test_a_place_that_cannot_be_reached_is_refused() -> None:
    options = {"valueFormat": "json", "valueSchemaLocation": "s3a://bucket/columns"}

    with pytest.raises(SparkOptionError, match="s3a://bucket/columns is not on a file system"):
        columns(options, lambda _: [])
