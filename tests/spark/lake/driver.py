"""A query that copies one table into another, as a program that can be killed at its commit.

python driver.py SOURCE TARGET CHECKPOINT before|after FLAG: at its second batch it writes the file
FLAG and stands still, before or after the commit.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from penstock.spark.lake.sink import LakeStreamWriter, Messages, asked_table_to_write
from pyspark_penstock_lake import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

SOURCE, TARGET, CHECKPOINT, HOLD, FLAG = sys.argv[1:]


class HeldWriter(LakeStreamWriter):
    """Stands still at its second commit."""

    def __init__(self, options: dict[str, str], schema: "StructType") -> None:
        self._hold, self._flag = options.pop("hold"), options.pop("flag")
        super().__init__(asked_table_to_write(options, schema), schema, overwrite=False)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        if self._hold == "before":
            self._stand_still(batchId)
        LakeStreamWriter.commit(self, messages, batchId)
        if self._hold == "after":
            self._stand_still(batchId)

    def _stand_still(self, batch_id: int) -> None:
        if batch_id > 0:
            Path(self._flag).touch()
            time.sleep(120)


class HeldLake(DefaultSource):
    """The table sink with that writer."""

    @classmethod
    def name(cls) -> str:
        return "held-lake"

    def streamWriter(self, schema: "StructType", overwrite: bool) -> LakeStreamWriter:  # noqa: N802
        return HeldWriter(dict(self.options), schema)


builder = SparkSession.builder.master("local[2]")
for name, value in {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.dataSource.register(HeldLake)
rows = spark.readStream.format("penstock-lake").option("maxFilesPerTrigger", 2).load(SOURCE)
writer = rows.writeStream.format("held-lake").option("hold", HOLD).option("flag", FLAG)
query = writer.option("checkpointLocation", CHECKPOINT).trigger(availableNow=True).start(TARGET)
query.awaitTermination()
