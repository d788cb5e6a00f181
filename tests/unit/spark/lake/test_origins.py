"""Who has brought which offsets, and who may bring them again."""

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.lake import OriginColumns, TableOptions
from penstock.spark.lake.origins import (
    DuplicateFilter,
    OriginRange,
    OriginRanges,
    merged,
    origin_columns,
    record_ends,
    record_origins,
)
from penstock.spark.lake.table import RowsAlreadyThere

TABLE = TableOptions("/lake/raw")
COLUMNS = OriginColumns("topic", "partition", "offset")
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def batch(rows: list[tuple[str | None, int | None, int | None]]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def test_ranges_are_gathered_per_partition_and_rows_without_origin_left_out() -> None:
    ranges = OriginRanges(COLUMNS)

    ranges.note(batch([("t", 0, 5), ("t", 1, 9), ("t", 0, 7)]))
    ranges.note(batch([("t", 0, 3), ("u", 0, 1), (None, None, None)]))

    assert ranges.found() == (
        OriginRange("t", 0, 3, 8),
        OriginRange("t", 1, 9, 10),
        OriginRange("u", 0, 1, 2),
    )
    assert merged([ranges.found(), (OriginRange("t", 0, 8, 20),)])[0] == OriginRange("t", 0, 3, 20)


def test_origin_columns_are_found_by_their_usual_names_and_kinds() -> None:
    odd = pa.schema([("topic", pa.string()), ("partition", pa.string()), ("offset", pa.int64())])

    assert origin_columns(TABLE, SCHEMA) == COLUMNS
    assert origin_columns(TABLE, odd) is None
    assert origin_columns(replace(TABLE, origin_columns=()), SCHEMA) is None
    with pytest.raises(SparkOptionError, match="the rows have no columns a, b, c"):
        origin_columns(replace(TABLE, origin_columns=OriginColumns("a", "b", "c")), SCHEMA)


def test_a_first_commit_records_an_end_and_a_claim_on_nothing() -> None:
    books = record_origins(TABLE, lambda _: None, "q", [OriginRange("t", 0, 5, 10)])

    assert books.ends == {"penstock/t/0": 10}
    assert books.claims == {"penstock/q/t/0": 0}


def test_what_lies_below_a_querys_claim_is_refused_also_in_later_batches() -> None:
    recorded = {"penstock/t/0": 100, "penstock/q/t/0": 50}.get

    assert record_origins(TABLE, recorded, "q", [OriginRange("t", 0, 60, 70)]).ends == {}
    with pytest.raises(RowsAlreadyThere, match=r"t/0 up to offset 49 .* start at offset 50"):
        record_origins(TABLE, recorded, "q", [OriginRange("t", 0, 40, 60)])


def test_a_batch_job_records_ends_and_is_never_refused() -> None:
    books = record_ends({"penstock/t/0": 100}.get, [OriginRange("t", 0, 0, 50), OriginRange("t", 1, 0, 50)])

    assert (books.ends, books.claims) == ({"penstock/t/1": 50}, {})


def test_rows_below_the_claim_are_left_out_where_the_user_wants_them_skipped() -> None:
    recorded = {"penstock/t/0": 6, "penstock/t/1": 3}.get
    rows = [("t", 0, 5), ("t", 0, 6), ("t", 1, 2), ("t", 1, 3), ("u", 0, 0), (None, None, None)]

    kept = DuplicateFilter(COLUMNS, recorded, "q").without(batch(rows))

    assert kept.column("offset").to_pylist() == [6, 3, 0, None]
