"""The metrics pipeline in a Spark session of your own, for clusters that bring one.

    penstock up                                        # in another terminal
    penstock generate --count 10000                    # something to read
    python examples/pipeline/submit.py                 # deals with what is there, on this machine
    spark-submit --master spark://host:7077 examples/pipeline/submit.py --follow --config metrics.yaml

`penstock pipeline run` does the same with progress, status and a clean stop.
"""

import argparse
import os
import sys
from pathlib import Path

from pyspark import SparkConf
from pyspark.sql import SparkSession

from penstock.client import Endpoint, TopicAdmin
from penstock.core.model import PenstockError
from penstock.spark.metrics import PIPELINES


def main() -> None:
    """Run both queries: to the end of what is there, or for ever with `--follow`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("metrics.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--follow", action="store_true", help="wait for further records at the end")
    arguments = parser.parse_args()
    pipeline = PIPELINES["metrics"]
    overrides = dict(pair.split("=", 1) for pair in arguments.set)
    try:
        config = pipeline.configure(arguments.config, overrides)
        # Spark would start first, and then say the same on a hundred lines.
        topics = [topic.name for topic in TopicAdmin(Endpoint(config.bootstrap)).list()]
    except PenstockError as error:
        raise SystemExit(str(error)) from None
    if config.topics.inbound not in topics:
        raise SystemExit(f"there is no topic {config.topics.inbound}: fill it with `penstock generate`")

    # The workers need Penstock too: by default the Python that runs this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName("penstock metrics")
    # What spark-submit says wins. Spark's 200 tasks for each batch take longer than the work itself.
    conf.setIfMissing("spark.sql.shuffle.partitions", "4").setIfMissing("spark.ui.enabled", "false")
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    for query in pipeline.start(spark, config, once=not arguments.follow):
        if not arguments.follow:
            # The rollup reads what ingest has stored: one after the other.
            query.awaitTermination()
            rows = sum(one["numInputRows"] for one in query.recentProgress)
            print(f"{query.name}: {rows} rows")
    if arguments.follow:
        spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
