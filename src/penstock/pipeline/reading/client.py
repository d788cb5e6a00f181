"""The reader on librdkafka."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from penstock.pipeline.reading.options import ReaderOptions
from penstock.pipeline.reading.spans import Span


class ClientReader:
    """For what our own reader does not speak: SASL and TLS."""

    def __init__(self, settings: Mapping[str, str], options: ReaderOptions) -> None:
        self._settings = dict(settings)
        self._options = options

    def close(self) -> None:
        raise NotImplementedError

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError
