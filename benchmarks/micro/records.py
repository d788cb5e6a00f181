"""Record batches: header, check of 64 KB, writing and reading records, the codecs."""

import os
from functools import partial

from benchmarks.micro.measure import figures
from penstock.core.model import LeaderEpoch, Offset
from penstock.core.records import (
    NATIVE,
    CompressionType,
    Record,
    check_batch,
    read_header,
    read_records,
    stamp,
    validate_records,
    write_batch,
)

RECORDS = 100
VALUE_BYTES = 100
NOW_MS = 1_700_000_000_000


def records(count: int, value_bytes: int) -> list[Record]:
    return [
        Record(0, NOW_MS + i, b"key-%d" % i, os.urandom(value_bytes // 2).hex().encode())
        for i in range(count)
    ]


def run() -> dict[str, float]:
    batch = write_batch(records(RECORDS, VALUE_BYTES))
    large = write_batch(records(1, 65_400))
    results = {
        "native": float(NATIVE),
        "batch_bytes": float(len(batch)),
        "large_batch_bytes": float(len(large)),
    }
    results |= figures("read_header", lambda: read_header(batch))
    results |= figures("check_batch_64kb", lambda: check_batch(large))
    results |= figures("stamp", lambda: stamp(batch, 0, Offset(7), LeaderEpoch(1)))
    results |= figures("read_100_records", lambda: list(read_records(batch)))
    results |= figures("validate_100_records", lambda: validate_records(batch))
    sample = records(RECORDS, VALUE_BYTES)
    results |= figures("write_100_records", lambda: write_batch(sample))
    for codec in (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD):
        packed = write_batch(sample, codec=codec)
        results |= figures(f"read_100_records_{codec.name.lower()}", partial(_read_all, packed))
    return results


def _read_all(batch: bytearray) -> list[Record]:
    return list(read_records(batch))
