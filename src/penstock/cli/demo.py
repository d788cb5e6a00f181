"""`penstock demo`: a broker at work, from nothing to a table of what happened.

    series ──> blocks ──> stock client ──> broker (a child process) ──> consumer group ──> account
       |                                                                                     |
       └────────────── the demo's own account of what it sent ───────── must be the same ────┘

The broker is `penstock up` in a process of its own, with free ports, a throw-away data
directory and the default settings: acknowledged means on disk. With pyspark installed, the metrics
pipeline then runs on it (`penstock.spark.demo`); without, the broker is shown alone. The client is
confluent-kafka, as anybody would use it. What comes back is compared record by record, in the order
of each partition, with what was sent; a difference ends the demo with exit code 1.

Measurements are made up in blocks, and the clock runs only while a block is on its way: from
the first record handed to the client until the last one is acknowledged. What is shown is the
broker and the client, not the generator.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import typer

from penstock.cli.child import BrokerProcess
from penstock.client import ConsumerOptions, Endpoint, GroupAdmin, TopicConsumer
from penstock.client.load import SHAPES, BlockProducer, series_of, value_at
from penstock.core.model import MILLISECOND, SECOND, PenstockError
from penstock.core.records import Record, murmur2_partition
from penstock.runtime.loop import MachineClock

TOPIC = "metrics"
GROUP = "demo"
PARTITIONS = 6
MESSAGES_DEFAULT = 1_000_000
PIPELINE_MESSAGES_DEFAULT = 500_000
BROKER_TRIALS = (f"consume {TOPIC} --count 3 --json", f"group describe {GROUP}")
PIPELINE_TRIALS = ("consume metrics.rollup --count 3 --json", "group describe metrics-ingest")
# Beside us, not below: the pipeline is loaded by name, as commands are.
PIPELINE_STORY = "penstock.spark.demo:run_demo"
MESSAGES = typer.Option(
    None,
    "--messages",
    min=1,
    max=50_000_000,
    help="How many measurements to send; 500,000 through Spark, else a million.",
)
PLOT = typer.Option(Path("penstock-demo.svg"), "--plot", help="Where the plot of the rollups goes.")
BROKER_ONLY = typer.Option(False, "--broker-only", help="Show the broker alone, without Spark.")
ONCE = typer.Option(False, "--once", help="Stop after the table, also on a terminal.")
FLUSH_PIECES = 10_000
HOSTS = 12
INTERVAL_MS = 1_000
BLOCK_RECORDS = 50_000
READ_RECORDS = 10_000
Advance = Callable[[int], None]
MEGABYTE = 1_000_000


def demo(
    *,
    messages: int | None = MESSAGES,
    once: bool = ONCE,
    plot: Path = PLOT,
    broker_only: bool = BROKER_ONLY,
) -> None:
    """Show Penstock at work: a broker, metrics, the Spark pipeline, and a check of every record.

    The metrics are partly late, repeated and malformed. What the pipeline made of them is compared
    with the generator's own account; a difference is exit code 1. The broker has free ports
    and a throw-away directory. On a terminal it stays up until Ctrl-C, to be tried out. Without
    pyspark, the broker is shown alone.
    """
    from penstock.cli.child import throw_away_broker

    with_spark = not broker_only and find_spec("pyspark") is not None
    with throw_away_broker() as child:
        if with_spark:
            _tell_story(child, messages or PIPELINE_MESSAGES_DEFAULT, plot)
        else:
            _show_broker(child, messages or MESSAGES_DEFAULT)
            if not broker_only:
                sys.stdout.write("For the pipeline on Spark: pip install 'penstock[spark,jdk]'\n")
        if not once and sys.stdout.isatty() and sys.stdin.isatty():
            _stay_up(child, *(PIPELINE_TRIALS if with_spark else BROKER_TRIALS))


def _tell_story(child: "BrokerProcess", messages: int, plot: Path) -> None:
    from penstock.cli.commands import load

    run_demo: Any = load("the pipeline", PIPELINE_STORY)
    run_demo(child.bootstrap, Path(child.data_dir).parent / "pipeline", messages, plot)


def _show_broker(child: "BrokerProcess", messages: int) -> None:
    from penstock.cli.bench.scenarios import usage_of

    outcome = stream_through(child, messages)
    show_report(outcome, child.start_ns, usage_of(child.pid).rss_bytes)


def stream_through(child: "BrokerProcess", messages: int) -> "DemoResult":
    """Send, read back and compare."""
    from penstock.cli.output import progress_bar
    from penstock.client import Endpoint, TopicAdmin

    endpoint = Endpoint(child.bootstrap)
    outcome = DemoResult(PARTITIONS)
    TopicAdmin(endpoint).create(TOPIC, PARTITIONS, -1, {})
    with progress_bar(f"streaming {messages} measurements to {child.bootstrap}", messages) as advance:
        sent = send_all(endpoint, TOPIC, messages, outcome, advance)
    with progress_bar("reading them back in a consumer group", messages) as advance:
        read = read_all(endpoint, TOPIC, GROUP, outcome, advance)
    sent.check(read)
    return outcome


def _stay_up(child: "BrokerProcess", *trials: str) -> None:
    import signal

    sys.stdout.write(
        f"\nThe broker stays up at {child.bootstrap} (health: http://{child.http}/health); for example:\n"
        + "".join(f"  penstock {trial} --bootstrap {child.bootstrap}\n" for trial in trials)
        + "Ctrl-C stops it and removes its data.\n"
    )
    sys.stdout.flush()
    try:
        signal.pause()
    except KeyboardInterrupt:
        sys.stdout.write("\n")


class DemoFailed(PenstockError):
    """What came back is not what was sent."""


class RecordDigests:
    """The records of each partition in order: how many, and a digest of all of them."""

    def __init__(self, partitions: int) -> None:
        self.counts = [0] * partitions
        self._digests = [hashlib.blake2b() for _ in range(partitions)]
        self._pieces: list[list[bytes]] = [[] for _ in range(partitions)]

    def note(self, partition: int, key: bytes, value: bytes, timestamp_ms: int) -> None:
        pieces = self._pieces[partition]
        # Lengths first, so that no two different records look alike.
        pieces.append(b"%d %d %d " % (timestamp_ms, len(key), len(value)))
        pieces.append(key)
        pieces.append(value)
        self.counts[partition] += 1
        if len(pieces) >= FLUSH_PIECES:
            self._flush(partition)

    def _flush(self, partition: int) -> None:
        self._digests[partition].update(b"".join(self._pieces[partition]))
        self._pieces[partition].clear()

    @property
    def records(self) -> int:
        return sum(self.counts)

    def check(self, other: "RecordDigests") -> None:
        """Raise unless the other account is exactly this one."""
        for partition, count in enumerate(self.counts):
            if other.counts[partition] != count:
                raise DemoFailed(
                    f"partition {partition}: {other.counts[partition]} records came back instead of {count}"
                )
            for account in (self, other):
                account._flush(partition)
            if self._digests[partition].digest() != other._digests[partition].digest():
                raise DemoFailed(f"partition {partition}: what came back differs from what was sent")


def records(count: int, first_timestamp: int) -> Iterator[Record]:
    """`count` measurements in the order of their time, keyed by series."""
    every = [series_of(host, shape) for host in range(HOSTS) for shape in SHAPES]
    totals = dict.fromkeys((series.key for series in every), 0.0)
    for index in range(count):
        turn, place = divmod(index, len(every))
        series = every[place]
        timestamp = first_timestamp + turn * INTERVAL_MS
        # A hash stands in for chance: the same record every time, and nothing to seed.
        chance = ((index + 1) * 2_654_435_761 >> 7) % 1_000 / 500 - 1
        value = value_at(series.shape, series.host / HOSTS, timestamp, chance)
        if series.shape.counts_up:
            value = totals[series.key] = totals[series.key] + value
        digits = series.shape.digits
        content = (
            f"{series.before_value}{round(value, digits) if digits else int(value)}"
            f"{series.before_time}{timestamp}{series.after_time}"
        )
        yield Record(index, timestamp, series.key, content.encode(), ())


@dataclass(slots=True)
class DemoLag:
    """How far behind the group was: in records, and as the age of the first one it had not read."""

    records: int
    seconds: float | None


@dataclass(slots=True)
class DemoResult:
    """What happened, stage by stage."""

    partitions: int
    sent: int = 0
    sent_bytes: int = 0
    sending_ns: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    read: int = 0
    read_bytes: int = 0
    reading_ns: int = 0
    lag_halfway: DemoLag | None = None
    lag_at_end: DemoLag | None = None


def send_all(
    endpoint: Endpoint, topic: str, messages: int, outcome: DemoResult, advance: Advance
) -> RecordDigests:
    """Send made-up measurements block by block; returns the account of them."""
    account = RecordDigests(outcome.partitions)
    stream = BlockProducer(endpoint, topic)
    first_timestamp = MachineClock().wall() - messages * 14  # 72 measurements a second, up to about now
    for block in _blocks(messages, first_timestamp, account):
        outcome.sent_bytes += sum(len(key) + len(value) for key, value, _ in block)
        stream.send(block)
        outcome.sent += len(block)
        advance(len(block))
    outcome.sending_ns, outcome.latencies_ns = stream.elapsed_ns, stream.latencies_ns
    return account


def _blocks(
    messages: int, first_timestamp: int, account: RecordDigests
) -> Iterator[list[tuple[bytes, bytes, int]]]:
    partition_of: dict[bytes, int] = {}
    series = records(messages, first_timestamp)
    while taken := list(islice(series, BLOCK_RECORDS)):
        block = []
        for record in taken:
            key, value = record.key or b"", record.value or b""
            if key not in partition_of:
                # The broker's client must choose as the Java client would, and as we do.
                partition_of[key] = murmur2_partition(key, len(account.counts))
            account.note(partition_of[key], key, value, record.timestamp)
            block.append((key, value, record.timestamp))
        yield block


def read_all(
    endpoint: Endpoint, topic: str, group: str, outcome: DemoResult, advance: Advance
) -> RecordDigests:
    """Read everything as a group of one, committing halfway and at the end; returns the account of it."""
    account = RecordDigests(outcome.partitions)
    clock = MachineClock()
    with TopicConsumer(endpoint, topic, ConsumerOptions(group=group, batch_records=READ_RECORDS)) as reader:
        began, paused_ns = clock.now(), 0
        for batch in reader.batches():
            for read in batch:
                if read.offset != account.counts[read.partition]:
                    raise DemoFailed(
                        f"partition {read.partition}: offset {read.offset} "
                        f"instead of {account.counts[read.partition]}"
                    )
                key, value = read.key or b"", read.value or b""
                account.note(read.partition, key, value, read.timestamp_ms or 0)
                outcome.read_bytes += len(key) + len(value)
            reader.dealt_with(batch)
            advance(len(batch))
            if outcome.lag_halfway is None and account.records * 2 >= outcome.sent:
                paused = clock.now()
                reader.commit()
                outcome.lag_halfway = lag_of(endpoint, group)
                paused_ns += clock.now() - paused
        reader.commit()
        outcome.reading_ns = clock.now() - began - paused_ns
    outcome.read = account.records
    outcome.lag_at_end = lag_of(endpoint, group)
    return account


def lag_of(endpoint: Endpoint, group: str) -> DemoLag:
    partitions = GroupAdmin(endpoint).describe(group).partitions
    ages = [one.lag_seconds for one in partitions if one.lag_seconds is not None]
    # Nothing was committed yet in a partition of which nothing was read: all of it is still to come.
    behind = sum((one.end or 0) if one.lag is None else one.lag for one in partitions)
    return DemoLag(behind, max(ages, default=None))


def show_report(outcome: DemoResult, start_ns: int, rss_bytes: int) -> None:
    """Print the table; a terminal gets colours, a file does not."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Penstock, fsync: every", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows(outcome, start_ns, rss_bytes):
        table.add_row(name, value)
    Console().print(table)


def rows(outcome: DemoResult, start_ns: int, rss_bytes: int) -> Iterator[tuple[str, str]]:
    """The lines of the table."""
    yield "broker", f"ready after {start_ns / MILLISECOND:.0f} ms, {rss_bytes / MEGABYTE:.0f} MB at the end"
    size = f"{outcome.sent_bytes / MEGABYTE:.1f} MB"
    yield (
        "messages sent",
        f"{outcome.sent:,} ({size}) to {outcome.partitions} partitions, each acknowledged when on disk",
    )
    yield "send rate", _rate(outcome.sent, outcome.sent_bytes, outcome.sending_ns)
    yield "publish latency", _latencies(outcome.latencies_ns)
    yield "messages read", f"{outcome.read:,} by a consumer group, all exactly as sent"
    yield "read rate", f"{_rate(outcome.read, outcome.read_bytes, outcome.reading_ns)}, each one checked"
    yield "lag halfway", _lag(outcome.lag_halfway)
    yield "lag at the end", _lag(outcome.lag_at_end)


def _rate(records: int, size_bytes: int, elapsed_ns: int) -> str:
    seconds = max(1, elapsed_ns) / SECOND
    return f"{records / seconds:,.0f} messages/s, {size_bytes / seconds / MEGABYTE:.1f} MB/s"


def _latencies(latencies_ns: list[int]) -> str:
    if not latencies_ns:
        return "too few messages to tell"
    ordered = sorted(latencies_ns)
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    shown = [f"{name} {ordered[int(len(ordered) * share)] / MILLISECOND:.1f} ms" for name, share in shares]
    return f"{', '.join(shown)} under full load, the client's queue included"


def _lag(lag: DemoLag | None) -> str:
    if lag is None:
        return "not seen"
    age = "age not known" if lag.seconds is None else f"the oldest {lag.seconds:,.1f} s old"
    return f"{lag.records:,} messages, {age}" if lag.records else "0 messages, 0 s"
