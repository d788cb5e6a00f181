"""Record batches of a topic as Arrow batches: the way from a broker into a Spark task.

    spans         `OffsetRange`, `OffsetRangeReader`, the columns and options; batches of an even size
    reader        the two readers, and which of them serves which settings: our own on plain sockets,
                  or librdkafka for SASL and TLS
    fetcher       a span as a run of Fetch responses, the next one requested ahead; when to retry
    decoder       the batches of a response to Arrow columns
    record_ends   where each record ends; the one loop, compiled by `make native`

A span is a half-open range of offsets of one partition. Reading it gives every record that the log
still has in it and nothing else: control records and, for a reader of committed records, records of
aborted transactions are left out; gaps that compaction made are passed over. If the log no longer
reaches down to the first offset or up to the last, `DataLost` names the offsets that are missing.
A broker that goes away is waited for; after `timeout_ms` without progress there is one error.

Left out: fetch sessions and reading from followers, which serve consumers that stay; a task reads
its span once. Through librdkafka a log is not seen to end where compaction took its very last
records: such a span ends in an error after `timeout_ms`.
"""

from penstock.spark.reading.reader import open_reader
from penstock.spark.reading.spans import OffsetRange, OffsetRangeReader, record_schema

__all__ = ["OffsetRange", "OffsetRangeReader", "record_schema", "open_reader"]
