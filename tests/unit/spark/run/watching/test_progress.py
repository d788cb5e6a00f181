import json
from typing import Any

from penstock.spark.run.progress import parse_progress

SAID: dict[str, Any] = {
    "id": "9a4b3c",
    "runId": "77",
    "name": "ingest",
    "timestamp": "2026-11-15T12:00:00.000Z",
    "batchId": 7,
    "numInputRows": 1500,
    "inputRowsPerSecond": 900.0,
    "processedRowsPerSecond": 3000.5,
    "durationMs": {"triggerExecution": 500, "addBatch": 400},
    "eventTime": {"watermark": "2026-11-15T11:50:00.000Z"},
    "stateOperators": [
        {"numRowsDroppedByWatermark": 3, "customMetrics": {"numDroppedDuplicateRows": 11}},
        {"numRowsDroppedByWatermark": 1, "customMetrics": {}},
    ],
    "sources": [
        {
            "description": "penstock",
            "startOffset": {"m": {"0": 0, "1": 0}},
            "endOffset": {"m": {"0": 1000, "1": 500}},
            "latestOffset": {"m": {"0": 1000, "1": 740}},
        }
    ],
}


def test_a_batch_is_read_with_its_rates_its_lag_and_what_was_dropped() -> None:
    progress = parse_progress(json.dumps(SAID))

    assert (progress.query, progress.query_id, progress.batch) == ("ingest", "9a4b3c", 7)
    assert (progress.rows, progress.rows_per_second, progress.batch_seconds) == (1500, 3000.5, 0.5)
    assert (progress.rows_dropped_late, progress.duplicates_dropped) == (4, 11)
    assert progress.watermark == "2026-11-15T11:50:00.000Z"
    assert progress.lag_records == 240
    assert progress.positions == {("m", 0): 1000, ("m", 1): 500}


def test_a_batch_that_reaches_past_what_was_latest_is_not_ahead() -> None:
    ahead = {**SAID["sources"][0], "latestOffset": {"m": {"0": 900, "1": 740}}}

    progress = parse_progress(json.dumps({**SAID, "sources": [ahead]}))

    assert progress.lag_records == 240


def test_a_source_without_partitions_has_no_lag_in_records() -> None:
    table = {"description": "a table", "endOffset": {"version": 4}, "latestOffset": {"version": 9}}

    progress = parse_progress(json.dumps({**SAID, "sources": [table]}))

    assert progress.lag_records is None
    assert progress.positions == {}


def test_a_batch_of_which_spark_says_next_to_nothing_is_read_too() -> None:
    progress = parse_progress(
        json.dumps({"id": "9", "name": None, "batchId": 0, "sources": [{"endOffset": None}]})
    )

    assert (progress.query, progress.rows, progress.lag_records) == ("9", 0, None)
