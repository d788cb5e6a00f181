"""How fast Spark reads topics through Penstock's source, and where it can write them.

    python -m benchmarks.pipeline --records 2000000

A broker and one Spark share the machine's cores. Beside every figure stand what Spark makes of
Arrow batches that cost nothing (`bound`), and Spark's own Kafka connector where its jars can be had.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.maven import PeerUnavailable
from benchmarks.peers.spark_connector import connector_jars, connector_version
from benchmarks.pipeline.bounds import Bound
from penstock.cli.bench.report import commit
from penstock.cli.bench.scenarios import usage_of
from penstock.cli.child import BrokerProcess, throw_away_broker
from penstock.client import BulkProducer, Endpoint, TopicAdmin, load
from penstock.spark.run.session import SparkSessionOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE_BYTES = 232
PARTITIONS = 4
CHUNK = 20_000
ROUNDS = 3

Frame = Callable[[], "DataFrame"]


def main() -> None:
    """Fill a topic, measure everything, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        broker = stack.enter_context(throw_away_broker())
        fill(broker.bootstrap, chosen.records)
        conf = {"spark.driver.memory": "2g"}
        try:
            jars = connector_jars(spark_version())
            conf["spark.jars"] = ",".join(map(str, jars))
            peer = connector_version(jars)
        except PeerUnavailable as why:
            peer = f"not measured: {why}"
        spark = stack.enter_context(
            open_session(SparkSessionOptions("bench", place / "spark", chosen.master, conf))
        )
        figures = measure(spark, broker, chosen.records, place, peer.startswith("not"))
    print(json.dumps({"commit": commit(), "connector": peer, **figures}, indent=2))


def spark_version() -> str:
    from pyspark import __version__

    return str(__version__)


def fill(servers: str, records: int) -> None:
    """A topic with as many metrics of about the same size."""
    TopicAdmin(Endpoint(servers)).create("metrics", PARTITIONS, -1, {})
    sender = BulkProducer(Endpoint(servers))
    made = [value_of(number) for number in range(CHUNK)]
    keys: list[bytes | None] = [b"key-%06d" % (number % 1_000) for number in range(CHUNK)]
    for _ in range(records // CHUNK):
        sender.send("metrics", made, keys)
    sender.finish()


def value_of(number: int) -> bytes:
    metric = {
        "name": load.SHAPES[number % len(load.SHAPES)].name,
        "value": number * 0.37,
        "labels": {"host": f"host-{number % 50:03}", "region": "eu-west", "service": "checkout"},
        "timestamp": 1_700_000_000_000 + number,
        "client": f"client-{number % 1000:06}",
    }
    return json.dumps(metric).encode().ljust(VALUE_BYTES)[:VALUE_BYTES]


def measure(
    spark: "SparkSession", broker: BrokerProcess, records: int, place: Path, without_peer: bool
) -> dict[str, Any]:
    """Every source into every place."""
    spark.dataSource.register(Bound)
    topic = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "metrics"}
    made = {"rows": str(records), "tasks": str(PARTITIONS), "valueBytes": str(VALUE_BYTES)}
    frames: dict[str, Frame] = {
        "bound": lambda: spark.read.format("bound").options(**made).load(),
        "penstock": lambda: spark.read.format("penstock").options(**topic).load(),
    }
    if not without_peer:
        frames["connector"] = lambda: spark.read.format("kafka").options(**topic).load()
    figures: dict[str, Any] = {}
    for to in ("noop", "parquet", "penstock-lake"):
        for name, frame in frames.items():
            best = min(written(frame(), to, place / f"{name}-{to}-{turn}") for turn in range(ROUNDS))
            rate = records / best
            figures[f"{name} to {to}"] = {
                "rows_per_s": round(rate),
                "mb_per_s": round(rate * VALUE_BYTES / 1e6, 1),
            }
            print(name, to, figures[f"{name} to {to}"], flush=True)
    figures["trigger p50 ms"] = trigger_ms(spark, topic, place)
    figures["broker_rss_mb"] = round(usage_of(broker.pid).rss_bytes / 1e6)
    return figures


def written(frame: "DataFrame", to: str, path: Path) -> float:
    began = time.perf_counter()
    frame.write.format(to).mode("overwrite" if to != "penstock-lake" else "append").save(str(path))
    return time.perf_counter() - began


def trigger_ms(spark: "SparkSession", topic: dict[str, str], place: Path) -> dict[str, float]:
    """How long a batch with few records takes, from its start to its end."""
    result = {}
    for to in ("noop", "parquet", "penstock-lake"):
        frame = spark.readStream.format("penstock").options(
            **topic, startingOffsets="earliest", maxOffsetsPerTrigger="4000"
        )
        query = (
            frame.load()
            .writeStream.format(to)
            .option("checkpointLocation", str(place / f"trigger-{to}"))
            .trigger(processingTime="0 seconds")
            .start(str(place / f"triggered-{to}"))
        )
        seen: dict[int, float] = {}
        while len(seen) < 40 and query.isActive:
            for progress in query.recentProgress:
                seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            time.sleep(0.2)
        query.stop()
        result[to] = statistics.median(list(seen.values())[5:])
    return result


if __name__ == "__main__":
    main()
