"""Record batches to Arrow columns: records per second and core, without a broker.

`python -m benchmarks.pipeline.decoding`. Records of 232 bytes of JSON with a key, in one Fetch
answer of 8 MiB: header, CRC, unpacking, columns. CPU time, best of several rounds.
"""

import json
from functools import partial

from benchmarks.micro.measure import time_us
from penstock.client.visible_batches import shown_batches
from penstock.core.model import LeaderEpoch, Offset
from penstock.core.records import CompressionType, Record, read_header, stamp, write_batch
from penstock.spark.reading import OffsetRange
from penstock.spark.reading.decoder import NATIVE, arrow_batches

ANSWER_BYTES = 8 << 20
VALUE_BYTES = 232
NOW_MS = 1_700_000_000_000
HEADERS = (("trace", b"0123456789abcdef"), ("origin", b"host-17"))


def value(number: int) -> bytes:
    """One metric, of which the number differs."""
    metric = {
        "name": "http.server.duration",
        "value": number * 0.37,
        "labels": {"host": f"host-{number % 50:03}", "region": "eu-west-1", "service": "checkout"},
        "timestamp": NOW_MS + number,
        "client": f"client-{number % 1000:06}",
    }
    return json.dumps(metric).encode().ljust(VALUE_BYTES)[:VALUE_BYTES]


def answer(batch_records: int, codec: CompressionType, with_headers: bool) -> bytes:
    """As many equal batches as make up an answer, at the offsets they would have."""
    headers = HEADERS if with_headers else ()
    records = [Record(0, NOW_MS + n, b"key-%06d" % n, value(n), headers) for n in range(batch_records)]
    batch = write_batch(records, codec=codec)
    count = max(1, ANSWER_BYTES // (batch_records * VALUE_BYTES))
    out = bytearray(bytes(batch) * count)
    for number in range(count):
        stamp(out, number * len(batch), Offset(number * batch_records), LeaderEpoch(0))
    return bytes(out)


def decode(records: bytes, include_headers: bool) -> int:
    """Everything a reader does with an answer."""
    headers, position = [], 0
    while position < len(records):
        headers.append(read_header(records, position))
        position += headers[-1].size_bytes
    span = OffsetRange("metrics", 0, 0, headers[-1].next_offset)
    shown = shown_batches(memoryview(records), headers, (), span.end)
    return sum(batch.num_rows for batch in arrow_batches(shown, span, include_headers))


def run() -> dict[str, float]:
    """Millions of records per second, by records per batch, codec and headers."""
    results = {"native": float(NATIVE)}
    for batch_records in (1, 64, 4000):
        for codec in CompressionType:
            for with_headers in (False, True):
                if batch_records != 4000 and (with_headers or codec is not CompressionType.NONE):
                    continue
                given = answer(batch_records, codec, with_headers)
                name = f"{batch_records}_{codec.name.lower()}{'_headers' if with_headers else ''}_m_s"
                rows = decode(given, with_headers)
                results[name] = rows / time_us(partial(decode, given, with_headers))
    return results


if __name__ == "__main__":
    for name, figure in run().items():
        print(f"{name:28} {figure:8.2f}")
