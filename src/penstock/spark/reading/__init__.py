"""Record batches of a topic as Arrow batches: the way from a broker into a Spark task.

    spans         what is asked for and what comes back: `OffsetRange`, `OffsetRangeReader`, the columns
    options       what the settings of a client mean to a reader
    opening       which of the two readers serves these settings
    wire          our own: plain sockets and our own codec
      cluster     who leads a partition, and a connection (of `penstock.client`) to it
      fetching    a span as a run of Fetch answers, the next one asked for ahead
      trouble     what an error code means for a span: try again, give up, or data lost
      decoding    the batches of an answer to Arrow columns
      grouping    small Arrow batches put together, large ones cut
    client        the same through librdkafka, for SASL and TLS

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
