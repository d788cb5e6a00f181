"""How long a Spark query stands still when the leader of the partition that it reads is killed.

    python -m benchmarks.pipeline.leader_kill [--rounds 5]

Three nodes, a topic of one partition with three replicas, a record every 10 ms, a query with a trigger
of 100 ms. In each round, with nodes of its own, the leader's process gets SIGKILL.

    written   from the kill to the first acknowledged record that was sent after it
    read      from the kill to the end of the first batch that has such a record; 60 if there was none by then
    before    from sending a record to the end of its batch, at the median, while nothing is amiss

Beside our format stands Spark's own Kafka connector where its jars can be had, against the same nodes.
Timing depends on the machine: compare by ratio.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks.cluster.nodes import nodes
from benchmarks.peers.maven import PeerUnavailable
from benchmarks.peers.spark_connector import connector_jars, connector_version
from penstock.cli.bench.report import commit
from penstock.client import Endpoint, TopicAdmin
from penstock.client.endpoint import opened
from penstock.spark.run.session import SparkSessionOptions, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES = 3
TOPIC = "read"
EVERY_SECONDS = 0.01
STEADY_BATCHES = 10
SECONDS_MAX = 60.0
# Spark gives a Python worker ten seconds to start, which no setting changes.
TOO_SLOW = "Python worker failed to connect back"
T = TypeVar("T")


class NeverRead(Exception):
    """A query, or the topic that it reads, did not come back."""


class QueryFailed(Exception):
    """A query gave up."""


class Sender:
    """Sends the time, again and again, and remembers the newest that was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        settings = Endpoint(bootstrap).settings(linger_ms=0, message_timeout_ms=int(SECONDS_MAX * 1_000))
        self._producer: Any = opened(Producer, settings)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.acknowledged: list[tuple[float, float]] = []

    def _send(self) -> None:
        while not self._is_over.wait(EVERY_SECONDS):
            self._producer.produce(TOPIC, str(time.monotonic()), on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: object, message: Any) -> None:
        if error is None:
            self.acknowledged.append((float(message.value()), time.monotonic()))

    @contextmanager
    def sending(self) -> Iterator["Sender"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._is_over.set()
            self._thread.join()
            self._producer.purge()
            self._producer.flush(1)


class Reader:
    """A query that notes, for each batch, the newest record and when the batch had ended."""

    def __init__(self, spark: "SparkSession", form: str, bootstrap: str) -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
        rows = spark.readStream.format(form).options(**options).load()
        newest = rows.selectExpr("CAST(CAST(value AS STRING) AS DOUBLE) AS sent")
        self.batches: list[tuple[float, float]] = []
        self._query = (
            newest.writeStream.foreachBatch(self._note).trigger(processingTime="100 milliseconds").start()
        )

    def _note(self, rows: "DataFrame", _batch: int) -> None:
        first = rows.agg({"sent": "max"}).first()
        if first is not None and first[0] is not None:
            self.batches.append((float(first[0]), time.monotonic()))

    def check(self) -> None:
        if (failed := self._query.exception()) is not None:
            raise QueryFailed(f"{str(failed).splitlines()[0]}")

    def stop(self) -> None:
        self._query.stop()


def main() -> None:
    """Run the rounds, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args()
    conf = {"spark.driver.memory": "1g"}
    forms = ["penstock"]
    try:
        from pyspark import __version__

        jars = connector_jars(str(__version__))
        conf["spark.jars"] = ",".join(map(str, jars))
        peer = connector_version(jars)
        forms.append("kafka")
    except PeerUnavailable as why:
        peer = f"not measured: {why}"
    figures: dict[str, list[dict[str, float]]] = {form: [] for form in forms}
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        spark = stack.enter_context(
            open_session(SparkSessionOptions("bench", place / "spark", chosen.master, conf))
        )
        for _ in range(chosen.rounds):
            for form in forms:
                figures[form].append(_one_round(spark, form))
                print(form, figures[form][-1], file=sys.stderr, flush=True)
    print(
        json.dumps(
            {
                "commit": commit(),
                "connector": peer,
                "load": os.getloadavg()[0],
                "seconds": {form: summary(rounds) for form, rounds in figures.items()},
            },
            indent=2,
        )
    )


def _one_round(spark: "SparkSession", form: str) -> dict[str, float]:
    """One kill; begun anew where the machine was too busy for Spark."""
    while True:
        try:
            return measure(spark, form)
        except QueryFailed as why:
            if TOO_SLOW not in str(why):
                raise
            print(form, f"is tried again: {why}", file=sys.stderr, flush=True)


def measure(spark: "SparkSession", form: str) -> dict[str, float]:
    """One kill."""
    with nodes(NODES) as cluster, ExitStack() as stack:
        admin = TopicAdmin(Endpoint(cluster.bootstrap))
        admin.create(TOPIC, 1, NODES, {})
        sender = stack.enter_context(Sender(cluster.bootstrap).sending())
        reader = Reader(spark, form, cluster.bootstrap)
        stack.callback(reader.stop)
        first = _until(reader, lambda: len(reader.batches))
        _until(reader, lambda: len(reader.batches) >= first + STEADY_BATCHES)
        before = median(ended - sent for sent, ended in reader.batches[first:])
        (partition,) = admin.describe(TOPIC).partitions
        killed = time.monotonic()
        os.kill(cluster.pids[partition.leader - 1], signal.SIGKILL)
        written = _until(reader, lambda: _first_after(sender.acknowledged, killed))
        try:
            read = _until(reader, lambda: _first_after(reader.batches, killed))
        except NeverRead:
            read = killed + SECONDS_MAX
    return {"before": before, "written": written - killed, "read": read - killed}


def _first_after(noted: list[tuple[float, float]], killed: float) -> float:
    """When the first record that was sent after the kill was there; 0 if none was."""
    return next((seen for sent, seen in list(noted) if sent > killed), 0.0)


def _until(reader: Reader, look: Callable[[], T]) -> T:
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := look()):
        reader.check()
        if time.monotonic() > deadline:
            raise NeverRead(f"nothing within {SECONDS_MAX:.0f} s")
        time.sleep(0.01)
    return found


def summary(rounds: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Median and worst of each figure."""
    return {
        name: {
            "median": round(median(one[name] for one in rounds), 2),
            "max": round(max(one[name] for one in rounds), 2),
        }
        for name in rounds[0]
    }


if __name__ == "__main__":
    main()
