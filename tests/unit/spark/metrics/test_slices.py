import pyarrow as pa
import pytest

from penstock.spark.metrics.queries import watermark_in
from penstock.spark.metrics.rollup import slices


def rows(*given: tuple[str, int, float]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "series": pa.array([series for series, _, _ in given]),
            "timestamp": pa.array([ms * 1_000 for _, ms, _ in given], pa.timestamp("us", tz="UTC")),
            "value": pa.array([value for _, _, value in given]),
        }
    )


def test_values_are_put_together_by_series_and_stretch_of_time() -> None:
    batches = [rows(("a", 1_000, 1.0), ("b", 1_999, 2.0)), rows(("a", 1_500, 3.0), ("a", 2_000, 4.0))]

    found = [row for batch in slices(batches, 1_000) for row in batch.to_pylist()]

    assert {(row["series"], row["slice"]): sorted(row["values"]) for row in found} == {
        ("a", 1_000): [1.0, 3.0],
        ("b", 1_000): [2.0],
        ("a", 2_000): [4.0],
    }
    newest = {(row["series"], row["slice"]): row["latest"].timestamp() for row in found}
    assert newest["a", 1_000] == 1.5


def test_of_nothing_there_are_no_slices() -> None:
    assert list(slices([], 1_000)) == []


def test_the_watermark_is_found_in_the_offsets_of_a_batch() -> None:
    text = 'v1\n{"batchWatermarkMs":1763200000000,"batchTimestampMs":5,"conf":{}}\n{"t":{"0":5}}'

    assert watermark_in(text) == 1_763_200_000_000


def test_offsets_without_a_watermark_are_an_error() -> None:
    with pytest.raises(KeyError):
        watermark_in('v1\n{"batchTimestampMs":5}\n{}')
