"""What the two queries read: a topic as measurements, and the raw table as slices."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, InputPartition

from penstock.pipeline.errors import BadOption
from penstock.pipeline.lake import running_query
from penstock.pipeline.lake.readers import LakeStreamReader
from penstock.pipeline.metrics.decoding import NO_WATERMARK_MS, SCHEMA_DDL, Decoder
from penstock.pipeline.metrics.rollup import SLICES_DDL
from penstock.pipeline.metrics.slices import slices
from penstock.pipeline.metrics.watermark import batch_watermark_ms
from penstock.pipeline.settings import integer_option, option
from penstock.pipeline.source import TopicStream, source_options
from penstock.pipeline.source.tasks import task_reading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

MEASUREMENTS = "penstock-measurements"
WATERMARK_CHECKPOINT = "watermarkcheckpoint"
AHEAD_MS = "aheadms"
OURS = (WATERMARK_CHECKPOINT, AHEAD_MS)
SLICES = "penstock-slices"
SLICE_MS = "slicems"


class MeasurementSource(DataSource):
    """`format("penstock-measurements")`: the source's options, and the checkpoint of the query.

    With `watermarkCheckpoint` late rows are told from good ones as Spark would tell them; with
    `aheadMs` those that are so much newer than their records are malformed.
    """

    @classmethod
    def name(cls) -> str:
        return MEASUREMENTS

    def schema(self) -> str:
        return SCHEMA_DDL

    def streamReader(self, schema: "StructType") -> "MeasurementStream":  # noqa: ARG002
        return MeasurementStream(self.options)


class MeasurementStream(TopicStream):
    """A topic whose records are decoded where they are read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        ours = {name: value for name, value in options.items() if name.lower() not in OURS}
        super().__init__(source_options(ours, streaming=True), task_reading(ours))
        self._checkpoint = option(options, WATERMARK_CHECKPOINT)
        self._ahead_ms = integer_option(options, AHEAD_MS, None, 0)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """In a task."""
        decoder = Decoder(self._watermark_ms(), self._ahead_ms)
        for batch in super().read(partition):
            yield decoder.decode(batch)

    def _watermark_ms(self) -> int:
        if self._checkpoint is None:
            return NO_WATERMARK_MS
        query = running_query()
        if query is None:
            raise BadOption("watermarkCheckpoint", "only a streaming query has a watermark")
        return batch_watermark_ms(self._checkpoint, query.batch_id)


class SliceSource(DataSource):
    """`format("penstock-slices")`: the raw table, `sliceMs` at a time."""

    @classmethod
    def name(cls) -> str:
        return SLICES

    def schema(self) -> str:
        return SLICES_DDL

    def streamReader(self, schema: "StructType") -> "SliceStream":  # noqa: ARG002
        return SliceStream(self.options)


class SliceStream(LakeStreamReader):
    """A table whose rows are put together where they are read.

    Versions are never split between batches: a row that ingest took together with a newer one would
    come after it here, and could find its window closed.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        from pyspark.sql.types import DoubleType, StringType, StructType, TimestampType

        columns = StructType().add("series", StringType()).add("timestamp", TimestampType())
        ours = {name: value for name, value in options.items() if name.lower() != SLICE_MS}
        super().__init__(ours, columns.add("value", DoubleType()))
        self._slice_ms = integer_option(options, SLICE_MS, 60_000, 1)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """In a task."""
        return slices(super().read(partition), self._slice_ms)
