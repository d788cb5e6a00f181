"""A Spark session with Spark's own connector: one request per line in, one response per line out, both JSON.

python -m tests.spark.connector.session_process JAR,JAR DIRECTORY
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from penstock.spark.drop_in import install
from penstock.spark.run.session import environment
from tests.spark.conftest import CONF
from tests.spark.connector.guide import EXAMPLES, Bench, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = ("topic", "partition", "offset")


class Serving:
    """What can be asked for: one method each."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    def read(self, form: str, options: dict[str, str]) -> list[dict[str, Any]]:
        rows = self._spark.read.format(form).options(**options).load()
        return [json.loads(str(row)) for row in rows.orderBy(*ORDER).toJSON().collect()]

    def write(self, form: str, count: int, columns: list[str], options: dict[str, str]) -> None:
        rows = self._spark.range(count).selectExpr(*columns)
        rows.write.format(form).options(**options).mode("append").save()

    def stream(
        self, forms: tuple[str, str], source: dict[str, str], sink: dict[str, str]
    ) -> list[dict[str, Any]]:
        rows = self._spark.readStream.format(forms[0]).options(**source).load()
        writer = rows.select("key", "value", "headers").writeStream.format(forms[1]).options(**sink)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [json.loads(one.json) for one in query.recentProgress]

    def example(self, name: str, form: str, servers: str, directory: str) -> Outcome:
        """What an example of the guide gives with a format, or the first line of why it does not run."""
        try:
            return EXAMPLES[name](Bench(self._spark, form, servers, Path(directory)))
        except PySparkException as error:
            return str(error).strip().splitlines()[0]


def serve(jars: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    install()
    os.environ.update(environment("local[2]"))
    builder = SparkSession.builder.master("local[2]").appName("connector")
    own = {"spark.sql.warehouse.dir": directory, "spark.local.dir": directory, "spark.jars": jars}
    for name, value in (CONF | own).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    serving = Serving(spark)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(serving, request.pop("ask"))(**request)}
        except PySparkException as error:
            answer = {"failed": str(error)[:2_000]}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    serve(*sys.argv[1:])
