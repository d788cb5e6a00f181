"""Rows stay what they are and where they are; batches get a good size."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.spark.errors import DataLost
from penstock.spark.reading.spans import rebatch

MANY_BYTES = 1 << 30


def batch_of(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": pa.array(numbers, pa.int64())})


def sizes(batches: list[pa.RecordBatch]) -> list[int]:
    return [batch.num_rows for batch in batches]


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("number").to_pylist()]


def test_small_batches_are_put_together_until_there_is_enough() -> None:
    given = [batch_of(number) for number in range(10)]

    found = list(rebatch(given, 16, MANY_BYTES))

    assert sizes(found) == [4, 4, 2]
    assert numbers(found) == list(range(10))


def test_a_large_batch_is_cut() -> None:
    found = list(rebatch([batch_of(*range(10))], 4, MANY_BYTES))

    assert sizes(found) == [4, 4, 2]
    assert numbers(found) == list(range(10))


def test_what_waits_goes_before_a_batch_that_is_large_enough() -> None:
    found = list(rebatch([batch_of(0), batch_of(1), batch_of(*range(2, 8)), batch_of(8)], 16, MANY_BYTES))

    assert sizes(found) == [2, 6, 1]
    assert numbers(found) == list(range(9))


@pytest.mark.parametrize("given", [[], [batch_of()], [batch_of(), batch_of()]])
def test_no_rows_are_no_batches(given: list[pa.RecordBatch]) -> None:
    assert list(rebatch(given, 16, MANY_BYTES)) == []


def test_bytes_count_as_well_as_rows() -> None:
    found = list(rebatch([batch_of(number) for number in range(6)], 1000, 64))

    assert sizes(found) == [2, 2, 2]


@pytest.mark.parametrize("rows_max", [1, 2, 3, 5, 100])
def test_no_batch_is_larger_than_allowed(rows_max: int) -> None:
    given = [batch_of(*range(size)) for size in (1, 7, 2, 1, 1, 9, 3)]

    assert max(sizes(list(rebatch(given, rows_max, MANY_BYTES)))) <= rows_max


def test_rows_that_wait_are_handed_on_before_the_news_that_later_ones_are_lost() -> None:
    def cut_short() -> Iterator[pa.RecordBatch]:
        yield batch_of(0)
        yield batch_of(1)
        raise DataLost("metrics", 0, 2, 9)

    found: list[pa.RecordBatch] = []
    with pytest.raises(DataLost):
        found.extend(rebatch(cut_short(), 16, MANY_BYTES))

    assert numbers(found) == [0, 1]
