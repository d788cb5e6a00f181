"""The metrics pipeline under spark-submit, for clusters that bring a session of their own.

    spark-submit --master spark://host:7077 examples/pipeline/submit.py --config metrics.yaml --once

`penstock pipeline run` does the same with progress, status and a clean stop.
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.pipeline.metrics import PIPELINES


def main() -> None:
    """Run both queries: to the end of what is there with `--once`, for ever without."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--once", action="store_true")
    arguments = parser.parse_args()
    pipeline = PIPELINES["metrics"]
    overrides = dict(pair.split("=", 1) for pair in arguments.set)
    config = pipeline.configure(arguments.config, overrides)

    spark = SparkSession.builder.appName("penstock metrics").getOrCreate()
    for query in pipeline.start(spark, config, once=arguments.once):
        if arguments.once:
            # The rollup reads what ingest has stored: one after the other.
            query.awaitTermination()
            rows = sum(one["numInputRows"] for one in query.recentProgress)
            print(f"{query.name}: {rows} rows")
    if not arguments.once:
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
