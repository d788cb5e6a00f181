"""Arrow batches of a good size: small ones are put together, large ones are cut."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.pipeline.errors import DataLost

# Putting batches together copies them, and what each batch costs on its way to Spark is no longer
# felt at a quarter of the largest size: from there on a batch is handed on as it is.
_ENOUGH = 4


def grouped(batches: Iterable[pa.RecordBatch], rows_max: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at most `rows_max` rows, and not many small ones."""
    rows_enough, bytes_enough = max(1, rows_max // _ENOUGH), bytes_max // _ENOUGH
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        for batch in batches:
            if batch.num_rows >= rows_enough or batch.nbytes >= bytes_enough:
                yield from _together(waiting)
                waiting, rows, size = [], 0, 0
                for start in range(0, batch.num_rows, rows_max):
                    yield batch.slice(start, rows_max)
                continue
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= rows_enough or size >= bytes_enough:
                yield from _together(waiting)
                waiting, rows, size = [], 0, 0
    except DataLost:
        # Somebody may go on behind what is lost; what came before it is not.
        yield from _together(waiting)
        raise
    yield from _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) == 1:
        yield from (batch for batch in batches if batch.num_rows)
    elif batches:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
