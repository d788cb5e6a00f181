"""Records to Arrow columns: damaged batches behind a good CRC, judged as the exact reader judges them."""

import random
from importlib import import_module

from fuzz.harness import Target
from fuzz.targets.records import LIMIT_BYTES, around, one_payload, resealed, some_batches
from penstock.client.visible_batches import shown_batches
from penstock.core.records import CompressionType, CorruptBatch, check_batches, read_header, read_records
from penstock.spark.reading import OffsetRange
from penstock.spark.reading.decoder import arrow_batches

# Loaded before memory is measured: decoding loads them when it first needs them.
for _name in ("numpy", "pandas", "pyarrow.compute"):
    import_module(_name)

EVERYTHING = OffsetRange("topic", 0, 0, 1 << 62)


def decode(data: bytes) -> int:
    """How many rows the columns have."""
    headers = check_batches(data, compacted=True)
    shown = shown_batches(memoryview(data), headers, (), EVERYTHING.end)
    return sum(batch.num_rows for batch in arrow_batches(shown, EVERYTHING, True))


def seed_batches(rng: random.Random) -> bytes:
    """Good batches; read once, so that what Arrow and numpy load on first use is not counted later."""
    data = some_batches(rng)
    decode(data)
    return data


def decode_resealed(data: bytes) -> None:
    decode(resealed(data))


def both_ways(data: bytes) -> None:
    """Columns and records come of the same bytes, or neither."""
    batch = around(data, CompressionType.NONE)
    try:
        rows = decode(batch)
    except CorruptBatch as refused:
        try:
            list(read_records(batch, LIMIT_BYTES))
        except CorruptBatch:
            raise refused from None
        raise AssertionError(f"records were read that columns refuse: {refused}") from refused
    assert rows == len(list(read_records(batch, LIMIT_BYTES))) == read_header(batch).record_count


TARGETS = (
    # Arrow's own memory is not counted; an arena, its positions and the columns are.
    Target("reading.columns", seed_batches, decode_resealed, (CorruptBatch,), 512),
    Target("reading.records", one_payload, both_ways, (CorruptBatch,), 512),
)
