"""The same columns, record by record, with the reader that everything else in Penstock uses.

It settles what the fast way leaves open: what is wrong with a record, and what is merely unusual.
"""

from collections.abc import Iterable

import pyarrow as pa

from penstock.client.consumer import PolledRecord
from penstock.core.records import CorruptBatch, read_records
from penstock.pipeline.reading.decoding.batches import Shown, named
from penstock.pipeline.reading.decoding.rows import row_batch
from penstock.pipeline.reading.spans import Span


def exact_batch(shown: Iterable[Shown], span: Span, schema: pa.Schema) -> pa.RecordBatch:
    """The records of these batches that belong to the span; raises `CorruptBatch`."""
    rows: list[PolledRecord] = []
    for header, batch in shown:
        appended = header.is_log_append_time
        try:
            rows += [
                PolledRecord(one.offset, one.timestamp, appended, one.key, one.value, one.headers)
                for one in read_records(batch)
                if span.start <= one.offset < span.end
            ]
        except CorruptBatch as broken:
            raise named(header, broken) from None
    return row_batch(rows, span, schema)
