"""`format("penstock-lake")`: Delta tables for Spark, without a JAR.

Spark looks for modules called `pyspark_*` and registers the `DefaultSource` that it finds there. This
one is thin on purpose, since Spark imports it whenever it looks; what it does is in
`penstock.spark.lake`, which is imported when a query uses the format.

Left out: `partitionBy`, which Spark refuses for sources written in Python: give the option
`partitionColumns` instead.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from penstock.spark.lake.sink import LakeStreamWriter, LakeWriter
from penstock.spark.lake.source import LakeReader, LakeStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """A table as a source and as a sink, for batch jobs and for streaming queries."""

    @classmethod
    def name(cls) -> str:
        return "penstock-lake"

    def schema(self) -> "StructType":
        from penstock.spark.lake.source import asked_schema

        return asked_schema(self.options)

    def reader(self, schema: "StructType") -> "LakeReader":
        from penstock.spark.lake.source import LakeReader

        return LakeReader(self.options, schema)

    def streamReader(self, schema: "StructType") -> "LakeStreamReader":
        from penstock.spark.lake.source import LakeStreamReader

        return LakeStreamReader(self.options, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "LakeWriter":
        from penstock.spark.lake.sink import LakeWriter, asked_table_to_write

        return LakeWriter(asked_table_to_write(self.options, schema), schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "LakeStreamWriter":
        from penstock.spark.lake.sink import LakeStreamWriter, asked_table_to_write

        return LakeStreamWriter(asked_table_to_write(self.options, schema), schema, overwrite)
