"""What transactions cost: messages and commits a second, beside Apache Kafka in the same run.

python -m benchmarks.transactions [--brokers 1 3] [--seconds N] [--peer none] [--base CHECKOUT] [--json FILE]

One client (confluent-kafka) writes records of 1 KB to six partitions with acks=all; every broker has a
replica of every partition. Each round puts these loads on each side in turn:

    every 100 ms           a transaction is committed when it is that old; all partitions are part of it
    read_committed         what that wrote, counted: nothing may be missing
    no transactions        the same volume again, from an idempotent producer
    every 1,000 records    or when it has that many
    every record           one record, one partition, one commit at a time: what a transaction costs alone

    flush     how long the last records of a transaction take to be acknowledged
    commit    how long commit_transaction() takes after that, which is EndTxn
    cpu_us    of all brokers with their helpers, by message

`of plain` is the rate over that of the same volume without transactions; `cpu_us_per_commit` the CPU
beyond that of as many messages without transactions, by commit; on a busy machine, from a few dozen
commits, it is a guess and can be negative. A load ends after --seconds or 300,000 records. Penstock
syncs before it acknowledges, and Kafka does not: these are their defaults; with `--promise cached`
neither does, with `durable` both do.

Left out: aborts, consumed offsets as part of a transaction, and more than one producer.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cluster.nodes import check_tree
from benchmarks.durability.sides import EVERY, NONE, BenchTopic, Comparison, topics
from benchmarks.macro.brokers import Promise
from benchmarks.side_by_side import BASE, KAFKA, THIS, Results, note, rows, show
from penstock.cli.bench.report import Figures, keep, percentiles_us, report
from penstock.cli.bench.scenarios import ResourceUsage
from penstock.cli.child import terminated_in_order
from penstock.client import ClientError
from penstock.client.endpoint import client_error, opened

ROUNDS = 3
SECONDS = 5.0
BROKERS = (1, 3)
PARTITIONS = 6
VALUE_BYTES = 1_000
RECORDS_MAX = 300_000
# Records of one partition that are given to the client at once.
CHUNK_RECORDS = 100
COMMIT_SECONDS = 0.1
COMMIT_RECORDS = 1_000
# A flush waits for what is queued: without a bound, its time says only how much that was.
QUEUED_RECORDS = 10_000
# Beyond what a load should take, before it counts as failed.
GRACE_SECONDS = 60.0
CONSUME_RECORDS = 10_000
CONSUME_TURN_SECONDS = 0.5
# Kafka's first seconds are those of its compiler.
WARM_UP_SECONDS = 10.0

BY_TIME, BY_COUNT, SINGLE = "every 100 ms", "every 1,000 records", "every record"
PLAIN, READ = "no transactions", "read_committed"
THIS_TREE = Path(__file__).resolve().parents[1]
PENSTOCK_SETTING = {Promise.DEFAULT: EVERY, Promise.DURABLE: EVERY, Promise.CACHED: NONE}
KAFKA_SETTINGS = {Promise.DURABLE: ("log.flush.interval.messages=1",)}


@dataclass(slots=True)
class Written:
    """What one load wrote, and how long its commits took."""

    records: int = 0
    elapsed_ns: int = 0
    client_ns: int = 0
    flushes_ns: list[int] = field(default_factory=list)
    commits_ns: list[int] = field(default_factory=list)

    def figures(self, before: ResourceUsage, after: ResourceUsage) -> Figures:
        seconds = max(1, self.elapsed_ns) / 1e9
        count = max(1, self.records)
        found: Figures = {"messages_per_s": round(self.records / seconds)}
        if self.commits_ns:
            flushes, commits = percentiles_us(self.flushes_ns), percentiles_us(self.commits_ns)
            found |= {
                "commits_per_s": round(len(self.commits_ns) / seconds, 1),
                "flush_p50_us": flushes["p50_us"],
                "commit_p50_us": commits["p50_us"],
                "commit_p99_us": commits["p99_us"],
            }
        cpu_us = round((after.cpu_ns - before.cpu_ns) / 1_000 / count, 2)
        return {**found, "cpu_us": cpu_us, "client_cpu_us": round(self.client_ns / 1_000 / count, 2)}


@dataclass(frozen=True, slots=True)
class Load:
    """When a transaction has enough, and when the load ends."""

    name: str
    # Records of the open transaction and its age in seconds.
    is_due: Callable[[int, float], bool]
    seconds: float
    records: int = RECORDS_MAX
    chunk_records: int = CHUNK_RECORDS


@dataclass(slots=True)
class Side:
    """A topic of one side, and how many records its first load wrote."""

    topic: BenchTopic
    volume: int = 0


def client(side: Side, **more: Any) -> Any:
    from confluent_kafka import Producer

    return opened(
        Producer,
        side.topic.cluster.endpoint.settings(
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            batch_size=1 << 20,
            queue_buffering_max_messages=QUEUED_RECORDS,
            **more,
        ),
    )


class Writer:
    """Gives a producer records, chunk by chunk, for one partition after the other."""

    def __init__(self, producer: Any, side: Side, load: Load, delivered: Callable[..., None]) -> None:
        self._producer = producer
        self._topic = side.topic
        self._load = load
        self._chunk = [{"value": os.urandom(VALUE_BYTES)} for _ in range(load.chunk_records)]
        self._delivered = delivered
        self._turn = 0
        self._deadline = time.perf_counter() + load.seconds + GRACE_SECONDS

    def write(self) -> int:
        """Queue one chunk; the client's queue is full for a moment if it returns less."""
        partition = self._turn % self._topic.partitions
        self._turn += 1
        queued: int = self._producer.produce_batch(
            self._topic.name, self._chunk, partition=partition, on_delivery=self._delivered
        )
        self._producer.poll(0.001 if queued < len(self._chunk) else 0)
        return queued

    def flush(self) -> None:
        """Wait for every acknowledgement."""
        while self._producer.flush(1.0):
            self.check()

    def check(self) -> None:
        if time.perf_counter() > self._deadline:
            raise ClientError(f"{self._load.name}: not done {GRACE_SECONDS:.0f} s after its time")


class Deliveries:
    """The first record that could not be delivered, which is one too many."""

    def __init__(self) -> None:
        self.failure: Any = None

    def note(self, error: Any, _message: Any) -> None:
        if error is not None and self.failure is None:
            self.failure = error

    def check(self, what: str) -> None:
        if self.failure is not None:
            raise client_error(what, self.failure)


def transact(side: Side, load: Load) -> Written:
    """Transactions one after the other until the load's time or volume is over."""
    from confluent_kafka import KafkaException

    deliveries = Deliveries()
    producer = client(side, transactional_id=f"bench-{os.urandom(6).hex()}")
    writer = Writer(producer, side, load, deliveries.note)
    found = Written()
    try:
        producer.init_transactions(GRACE_SECONDS)
        began, cpu = time.perf_counter_ns(), time.process_time_ns()
        end = began + load.seconds * 1e9
        while found.records < load.records and time.perf_counter_ns() < end:
            producer.begin_transaction()
            records, opened_s = 0, time.perf_counter()
            while not load.is_due(records, time.perf_counter() - opened_s):
                records += writer.write()
                writer.check()
            flushing = time.perf_counter_ns()
            writer.flush()
            committing = time.perf_counter_ns()
            producer.commit_transaction(GRACE_SECONDS)
            found.flushes_ns.append(committing - flushing)
            found.commits_ns.append(time.perf_counter_ns() - committing)
            found.records += records
        found.elapsed_ns = time.perf_counter_ns() - began
        found.client_ns = time.process_time_ns() - cpu
    except KafkaException as error:
        raise client_error(load.name, error) from error
    deliveries.check(load.name)
    return found


def write_plain(side: Side, load: Load) -> Written:
    """The same records without transactions."""
    deliveries = Deliveries()
    producer = client(side)
    writer = Writer(producer, side, load, deliveries.note)
    found = Written()
    # As with transactions, the connections are there before the time begins.
    writer.write()
    writer.flush()
    began, cpu = time.perf_counter_ns(), time.process_time_ns()
    while found.records < load.records:
        found.records += writer.write()
        writer.check()
    writer.flush()
    found.elapsed_ns = time.perf_counter_ns() - began
    found.client_ns = time.process_time_ns() - cpu
    deliveries.check(load.name)
    return found


def read_committed(side: Side, seconds: float) -> Written:
    """Read the topic from its start until every committed record was seen."""
    from confluent_kafka import Consumer, TopicPartition

    settings = side.topic.cluster.endpoint.settings(
        group_id="bench",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_wait_max_ms=100,
    )
    consumer: Any = opened(Consumer, settings)
    found = Written()
    began, cpu = time.perf_counter_ns(), time.process_time_ns()
    deadline = time.perf_counter() + seconds + GRACE_SECONDS
    try:
        partitions = range(side.topic.partitions)
        consumer.assign([TopicPartition(side.topic.name, partition, 0) for partition in partitions])
        while found.records < side.volume:
            messages = consumer.consume(CONSUME_RECORDS, CONSUME_TURN_SECONDS)
            for message in messages:
                if message.error() is not None:
                    raise client_error(READ, message.error())
            found.records += len(messages)
            if time.perf_counter() > deadline:
                raise ClientError(f"{READ}: {found.records:,} of {side.volume:,} records read")
        found.elapsed_ns = time.perf_counter_ns() - began
        found.client_ns = time.process_time_ns() - cpu
    finally:
        consumer.close()
    if found.records > side.volume:
        raise ClientError(f"{READ}: {found.records:,} records read, {side.volume:,} were committed")
    return found


def _measured(side: Side, load: Callable[[Side], Written]) -> Figures:
    cluster = side.topic.cluster
    before = cluster.usage()
    found = load(side)
    return found.figures(before, cluster.usage())


def _first(load: Load, side: Side) -> Figures:
    def counted(one: Side) -> Written:
        found = transact(one, load)
        one.volume = found.records
        return found

    return _measured(side, counted)


def _plain(seconds: float, side: Side) -> Figures:
    if not side.volume:
        raise ClientError("the first load failed, and so there is no volume to compare with")
    load = Load(PLAIN, lambda _records, _age: False, seconds, side.volume)
    return _measured(side, partial(write_plain, load=load))


def by_time(seconds: float) -> Load:
    return Load(BY_TIME, lambda _records, age_s: age_s >= COMMIT_SECONDS, seconds)


def by_count(seconds: float) -> Load:
    return Load(BY_COUNT, lambda records, _age: records >= COMMIT_RECORDS, seconds)


def single(seconds: float) -> Load:
    return Load(SINGLE, lambda records, _age: records >= 1, seconds, chunk_records=1)


def take_round(run: Comparison, number: int, prefix: str, sides: Mapping[str, Side]) -> None:
    """All loads on all sides, once."""

    def take(name: str, load: Callable[[Side], Figures]) -> None:
        run.take(f"{prefix}, {name}", sides, load, range(number, number + 1))

    take(BY_TIME, partial(_first, by_time(run.seconds)))
    # Now, as long as nothing else is in the topic.
    take(READ, partial(_measured, load=partial(read_committed, seconds=run.seconds)))
    take(PLAIN, partial(_plain, run.seconds))
    take(BY_COUNT, partial(_measured, load=partial(transact, load=by_count(run.seconds))))
    take(SINGLE, partial(_measured, load=partial(transact, load=single(run.seconds))))


def derive(results: Results, prefix: str) -> None:
    """Add what follows from two loads: the share of the plain rate, and the CPU of a commit."""
    plain = results.get(f"{prefix}, {PLAIN}", {})
    for name in (BY_TIME, BY_COUNT):
        measure = f"{prefix}, {name}"
        found = results.get(measure, {})
        for side in list(found.get("messages_per_s", {})):
            own, base = _by_round(found, side), _by_round(plain, side)
            if len(own) != len(base):
                # A load failed on this side: which rounds belong together is not known any more.
                continue
            for with_commits, without in zip(own, base, strict=True):
                rate, extra_us = with_commits["messages_per_s"], with_commits["cpu_us"] - without["cpu_us"]
                figures = {
                    "of plain": round(rate / without["messages_per_s"], 3),
                    "cpu_us_per_commit": round(extra_us * rate / with_commits["commits_per_s"], 1),
                }
                note(results, measure, side, figures)


def _by_round(figures: Mapping[str, Mapping[str, Sequence[float]]], side: str) -> list[Figures]:
    """The figures of one side, round by round."""
    columns = {name: by_side[side] for name, by_side in figures.items() if side in by_side}
    rounds = min(map(len, columns.values()), default=0)
    return [{name: values[index] for name, values in columns.items()} for index in range(rounds)]


def measure(run: Comparison, brokers: int, promise: Promise) -> None:
    """A cluster of each side, and all rounds on it."""
    prefix = f"{brokers} broker{'s' if brokers > 1 else ''}"
    setting, theirs = PENSTOCK_SETTING[promise], KAFKA_SETTINGS.get(promise, ())
    with run.clusters(setting, brokers, with_kafka=True, kafka_settings=theirs) as clusters:
        for number in range(-1, run.rounds):
            with topics(clusters, PARTITIONS) as found:
                sides = {name: Side(topic) for name, topic in found.items()}
                if number < 0:
                    _warm_up(sides.values())
                else:
                    take_round(run, number, prefix, sides)
    derive(run.results, prefix)


def _warm_up(sides: Iterable[Side]) -> None:
    for side in sides:
        print(f"warm-up: {side.topic.cluster.name}", file=sys.stderr, flush=True)
        transact(side, by_count(WARM_UP_SECONDS))


def sides_of(results: Results) -> Sequence[str]:
    """Which sides have figures, in the order of the table."""
    seen = {side for figures in results.values() for by_side in figures.values() for side in by_side}
    return [name for name in (BASE, THIS, KAFKA) if name in seen]


def main() -> int:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.transactions", description=__doc__, formatter_class=formatter
    )
    parser.add_argument("--brokers", nargs="+", type=int, default=list(BROKERS), metavar="N", help="sizes")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each load lasts")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each load is put on each side")
    parser.add_argument("--peer", choices=("kafka", "none"), default="kafka", help="what to compare with")
    parser.add_argument("--base", type=Path, help="a checkout to compare with")
    promises = [one.name.lower() for one in Promise]
    parser.add_argument("--promise", choices=promises, default="default", help="what acknowledged means")
    parser.add_argument("--directory", help="where data directories are made: on the disk to be measured")
    parser.add_argument("--json", metavar="FILE", help="where every round is kept")
    arguments = parser.parse_args()

    trees = {THIS: THIS_TREE}
    if arguments.base is not None:
        trees = {BASE: arguments.base.resolve(), **trees}
    promise = Promise[arguments.promise.upper()]
    run = Comparison(
        trees,
        with_kafka=arguments.peer == "kafka",
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        directory=arguments.directory,
    )
    try:
        with terminated_in_order():
            for tree in trees.values():
                check_tree(tree)
            for count in arguments.brokers:
                measure(run, count, promise)
    except ClientError as error:
        sys.exit(f"transactions: {error}")
    show(rows(run.results, sides_of(run.results)))
    print(promise.value)
    if arguments.json:
        notes = {"promise": promise.value, "rounds": run.rounds, "seconds": run.seconds, "loads": run.loads}
        keep(report(run.results, {**notes, "failures": run.failures}), arguments.json)
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
