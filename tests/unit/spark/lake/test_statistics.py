"""What a file's statistics say, and when they say nothing."""

import datetime as dt
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.lake.task_files import file_statistics


def statistics(rows: pa.Table, row_group_size: int = 1000) -> dict[str, Any]:
    sink = io.BytesIO()
    collected: list[pq.FileMetaData] = []
    with pq.ParquetWriter(sink, rows.schema, metadata_collector=collected) as writer:
        writer.write_table(rows, row_group_size)
    found: dict[str, Any] = json.loads(file_statistics(collected[0]))
    return found


def test_bounds_span_all_row_groups() -> None:
    found = statistics(pa.table({"id": [5, 1, None, 9]}), row_group_size=1)

    assert found == {
        "numRecords": 4,
        "minValues": {"id": 1},
        "maxValues": {"id": 9},
        "nullCount": {"id": 1},
    }


def test_bounds_are_widened_where_their_text_is_coarser() -> None:
    moment = dt.datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=dt.UTC)
    found = statistics(pa.table({"moment": [moment], "text": ["b" * 40], "day": [moment.date()]}))

    assert found["minValues"] == {
        "moment": "2026-11-15T12:00:00.123Z",
        "text": "b" * 32,
        "day": "2026-11-15",
    }
    assert found["maxValues"] == {
        "moment": "2026-11-15T12:00:00.124Z",
        "text": "b" * 32 + "\U0010ffff",
        "day": "2026-11-15",
    }


def test_what_could_mislead_a_reader_is_left_out() -> None:
    found = statistics(
        pa.table(
            {
                "bytes": [b"x"],
                "flag": [True],
                "infinite": [float("inf")],
                "nothing": pa.array([None], pa.int64()),
                "inside": [{"a": 1}],
                "list": [[1]],
            }
        )
    )

    assert (found["minValues"], found["maxValues"]) == ({}, {})
    assert found["nullCount"] == {"bytes": 0, "flag": 0, "infinite": 0, "nothing": 1}
