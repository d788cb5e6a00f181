"""The reader that speaks the protocol itself."""

from collections.abc import Iterator

import pyarrow as pa

from penstock.core.records import CorruptBatch
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.reading.cluster import Cluster
from penstock.pipeline.reading.decoding import arrow_batches, shown_batches
from penstock.pipeline.reading.fetching import Fetched, SpanFetch
from penstock.pipeline.reading.grouping import grouped
from penstock.pipeline.reading.options import ReaderOptions
from penstock.pipeline.reading.spans import Span


class WireReader:
    """Plain sockets, our own codec, Arrow out of the bytes as they came."""

    def __init__(self, bootstrap: str, options: ReaderOptions) -> None:
        self._cluster = Cluster(bootstrap, options)
        self._options = options

    def close(self) -> None:
        self._cluster.close()

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        answers = SpanFetch(self._cluster, span, self._options).answers()
        decoded = (batch for fetched in answers for batch in self._decoded(fetched, span))
        return grouped(decoded, self._options.rows_max, self._options.batch_bytes_max)

    def _decoded(self, fetched: Fetched, span: Span) -> Iterator[pa.RecordBatch]:
        aborted = fetched.aborted if self._options.committed_only else ()
        try:
            shown = shown_batches(fetched.records, fetched.headers, aborted, span.end)
            yield from arrow_batches(shown, span, self._options.include_headers)
        except CorruptBatch as broken:
            raise PipelineError(f"{span}: broken records: {broken}") from None
