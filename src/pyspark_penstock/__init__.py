"""`format("penstock")` for Spark: this module's name is all it takes to register it.

Spark imports every top-level module named `pyspark_…` and registers its `DefaultSource`; it does so
in a process of its own, whenever a session first meets a Python data source. What is done is done in
`penstock.spark`, which is imported when a topic is read or written.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark.errors import in_one_line
from penstock.spark.orphan import end_with_parent

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Topics, read and written, in batches and as streams."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        end_with_parent()

    @classmethod
    def name(cls) -> str:
        return "penstock"

    @in_one_line
    def schema(self) -> "StructType":
        """The official connector's columns."""
        from penstock.spark.source import columns

        return columns(self.options)

    @in_one_line
    def reader(self, schema: "StructType") -> "DataSourceReader":
        from penstock.spark.source import batch_reader

        return batch_reader(self.options, schema)

    @in_one_line
    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from penstock.spark.source import stream_reader

        return stream_reader(self.options, schema)

    @in_one_line
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceArrowWriter":
        from penstock.spark.errors import SparkOptionError
        from penstock.spark.sink import batch_writer

        if overwrite:
            raise SparkOptionError("mode", "a topic cannot be overwritten; use append")
        return batch_writer(self.options, schema)

    @in_one_line
    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":
        from penstock.spark.sink import stream_writer

        return stream_writer(self.options, schema)
