import datetime as dt
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkOptionError
from penstock.spark.jobs import JOBS
from penstock.spark.jobs.audit import missing_ranges, ranges
from penstock.spark.jobs.backfill import as_records
from penstock.spark.metrics.measurement import MeasurementDecoder
from penstock.spark.metrics.tables import raw_schema, table_rows

MOMENT = dt.datetime(2026, 11, 15, 12, 0, 0, 250_000, tzinfo=dt.UTC)


def test_jobs_and_pipelines_are_listed_without_loading_spark_or_arrow() -> None:
    program = (
        "import sys, penstock.spark.jobs, penstock.spark.metrics;"
        "print([name for name in ('pyspark', 'pyarrow', 'deltalake') if name in sys.modules])"
    )

    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert listed.stdout.strip() == "[]"


def test_a_jobs_keys_may_come_with_or_without_its_name() -> None:
    short = JOBS["backfill"].configure(None, {"topic": "t", "start": "2026-11-15"})
    long = JOBS["backfill"].configure(None, {"backfill.topic": "t", "backfill.start": "2026-11-15"})

    assert short == long


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, "backfill.topic"),
        ({"topic": "t", "start": "yesterday"}, "backfill.start"),
        ({"topic": "t", "records_per_second": "-1"}, "backfill.records_per_second"),
        ({"topc": "t"}, "topc"),
    ],
)
def test_a_backfill_that_cannot_be_is_refused_before_it_starts(given: dict[str, str], key: str) -> None:
    with pytest.raises(SparkOptionError) as refused:
        JOBS["backfill"].configure(None, given)

    assert refused.value.option == key


def test_one_file_serves_the_pipeline_and_its_jobs(tmp_path: Path) -> None:
    file = tmp_path / "metrics.yaml"
    file.write_text("state_dir: /s\ncompact: {retention_hours: 24, tables: [raw]}\naudit: {fail: yes}\n")

    config = JOBS["compact"].configure(file, {"vacuum": "off"})

    assert config.compact.retention_hours == 24
    assert list(config.compact.tables) == ["raw"]
    assert config.audit.fail
    assert not config.compact.vacuum
    assert config.raw_table == "/s/lake/raw"


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [([], []), ([4], [(4, 4)]), ([1, 2, 3, 7, 9, 10], [(1, 3), (7, 7), (9, 10)])],
)
def test_neighbouring_offsets_are_one_range(offsets: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(ranges(offsets)) == expected


def test_only_so_many_missing_ranges_are_named() -> None:
    partitions: dict[int, dict[str, Any]] = {0: {"missing_at": [1, 3, 5]}, 1: {"missing_at": [0, 1]}, 2: {}}

    assert missing_ranges(partitions, 9) == ["0: 1", "0: 3", "0: 5", "1: 0-1"]
    assert missing_ranges(partitions, 2) == ["0: 1", "0: 3"]


def test_a_row_of_the_table_becomes_the_record_it_was() -> None:
    sent = {"name": "cpu", "value": 1.5, "labels": {"b": "1", "a": "2"}, "timestamp": 5_001, "client": "c"}
    record = pa.record_batch(
        {
            "key": pa.array([b"k"]),
            "value": pa.array([json.dumps(sent).encode()]),
            "topic": pa.array(["in"]),
            "partition": pa.array([3], pa.int32()),
            "offset": pa.array([17], pa.int64()),
            "timestamp": pa.array([MOMENT], pa.timestamp("us", tz="UTC")),
        }
    )
    rows = table_rows(MeasurementDecoder().decode(record), raw_schema(), "timestamp")

    (back,) = as_records(rows).to_pylist()

    assert json.loads(back["value"]) == sent
    assert back["key"] == b"k"
    assert back["timestamp"] == MOMENT
    assert {one["key"]: one["value"] for one in back["headers"]} == {
        "penstock-origin-topic": b"in",
        "penstock-origin-partition": b"3",
        "penstock-origin-offset": b"17",
        "penstock-origin-timestamp": str(int(MOMENT.timestamp() * 1_000)).encode(),
    }
