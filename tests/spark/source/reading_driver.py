"""A driver that reads a topic until it is killed; says so when it has read something.

python -m tests.spark.source.reading_driver SERVERS TOPIC DIRECTORY
"""

import os
import sys

from penstock.spark.run.session import environment
from tests.spark.conftest import CONF


def read(servers: str, topic: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    os.environ.update(environment("local[1]"))
    builder = SparkSession.builder.master("local[1]").appName("reading driver")
    for name, value in (CONF | {"spark.sql.warehouse.dir": directory, "spark.local.dir": directory}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    query = rows.writeStream.format("noop").trigger(processingTime="100 milliseconds").start()
    query.processAllAvailable()
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    read(*sys.argv[1:])
