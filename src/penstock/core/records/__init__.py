"""Kafka record batches (magic 2): the bytes on the wire are the bytes on disk.

A batch is a header of 61 bytes and records that may be compressed together. The
broker treats the records as opaque: `check_batch` reads the header and the CRC-32C,
`stamp` writes the two fields in front of the CRC, and the batch goes to the log as
it came. `docs/formats/record-batch.md` draws the bytes.

Left out: message formats 0 and 1, which Kafka itself no longer writes.
"""

from penstock.core.records.batch import check_batch, check_batches, stamp, stamp_log_append_time
from penstock.core.records.buffers import Buffer
from penstock.core.records.errors import (
    BatchIncomplete,
    CorruptBatch,
    InvalidRecord,
    RecordsTooLarge,
    UnsupportedMagic,
)
from penstock.core.records.header import HEADER_BYTES, PREFIX_BYTES, BatchHeader, Codec, read_header
from penstock.core.records.record import Record
from penstock.core.records.writer import write_batch

__all__ = [
    "HEADER_BYTES",
    "PREFIX_BYTES",
    "Buffer",
    "Codec",
    "BatchHeader",
    "read_header",
    "check_batch",
    "check_batches",
    "stamp",
    "stamp_log_append_time",
    "Record",
    "write_batch",
    "CorruptBatch",
    "BatchIncomplete",
    "UnsupportedMagic",
    "RecordsTooLarge",
    "InvalidRecord",
]
