"""Kafka record batches (magic 2): the bytes on the wire are the bytes on disk.

A batch is a header of 61 bytes and records that may be compressed together. The
broker treats the records as opaque: `check_client_batch` checks what a producer sent by
its header, its CRC-32C and its first bytes, `stamp` writes the two fields in front of the
CRC, and the batch goes to the log as it came. `check_batch` is for batches of a log. Only
where needed are records walked: `read_records` decodes them,
`validate_records` checks them without building any, and both unpack compressed
records into a bounded buffer. `docs/formats/record-batch.md` draws the bytes.

* `batch` is the header: read, check, stamp; `record` the records: read, write, rewrite;
* `client_batch` is what a producer may write, and what not;
* `slices` finds and cuts out records without decoding them, and decodes many at a time;
* `builder` makes batches of many records, for a client that sends them;
* `compression` packs and unpacks them, `varints` are their integers;
* `validation` walks every record of a batch; `control` are the markers of transactions;
* `partitioner` says which partition a key belongs to.

`NATIVE` says whether the hot modules run compiled (`make native`) or as Python.

Left out: message formats 0 and 1, which Kafka itself no longer writes.
"""

from penstock.core.records import varints
from penstock.core.records.batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    BatchIncomplete,
    Buffer,
    CompressionType,
    CorruptBatch,
    InvalidRecord,
    RecordsTooLarge,
    UnsupportedMagic,
    check_batch,
    check_batches,
    pack_place,
    read_header,
    stamp,
    stamp_log_append_time,
)
from penstock.core.records.client_batch import ONE_BATCH, check_client_batch
from penstock.core.records.control import ControlRecord, ControlType, read_control, write_control_batch
from penstock.core.records.partitioner import murmur2_partition
from penstock.core.records.record import Record, read_records, rewrite_batch, write_batch
from penstock.core.records.slices import (
    NO_APPEND_TIME,
    IndexedRecords,
    RecordSlice,
    index_records,
    records_in,
)
from penstock.core.records.validation import validate_records

NATIVE = not (varints.__file__ or "").endswith(".py")

__all__ = [
    "HEADER_BYTES",
    "TRANSACTIONAL",
    "PREFIX_BYTES",
    "Buffer",
    "CompressionType",
    "BatchHeader",
    "read_header",
    "check_batch",
    "check_client_batch",
    "ONE_BATCH",
    "check_batches",
    "stamp",
    "pack_place",
    "stamp_log_append_time",
    "Record",
    "read_records",
    "RecordSlice",
    "NO_APPEND_TIME",
    "IndexedRecords",
    "index_records",
    "records_in",
    "validate_records",
    "write_batch",
    "rewrite_batch",
    "ControlType",
    "ControlRecord",
    "read_control",
    "write_control_batch",
    "murmur2_partition",
    "NATIVE",
    "CorruptBatch",
    "BatchIncomplete",
    "UnsupportedMagic",
    "RecordsTooLarge",
    "InvalidRecord",
]
