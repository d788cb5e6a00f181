"""`penstock generate`: made-up metrics into a topic."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.client import BulkProducer, Endpoint
from penstock.spark.generator.records import GeneratorAccount, GeneratorPlan, MetricStream, Pair

COUNT_DEFAULT = 100_000
TOPIC = "metrics.inbound"
PROGRESS_SECONDS = 0.2
Count = Annotated[
    int | None, typer.Option(min=0, help=f"How many records; {COUNT_DEFAULT:,} unless --seconds is given.")
]
Seconds = Annotated[float | None, typer.Option(min=0, help="Stop after this time.")]
Rate = Annotated[
    float | None, typer.Option(min=0.1, help="Records a second; as fast as possible without it.")
]
SeriesCount = Annotated[int, typer.Option(min=1, max=1_000_000, help="How many series there are.")]
IntervalMs = Annotated[
    int, typer.Option("--interval-ms", min=1, help="The time between two points of a series.")
]
Late = Annotated[float, typer.Option(min=0, max=1, help="Which share comes out of order.")]
LateMsMax = Annotated[int, typer.Option("--late-ms-max", min=0, help="How late a record is at most.")]
Duplicates = Annotated[float, typer.Option(min=0, max=1, help="Which share comes again.")]
Malformed = Annotated[float, typer.Option(min=0, max=1, help="Which share is not valid.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed makes the same records.")]
StartMs = Annotated[
    int | None,
    typer.Option("--start-ms", min=0, help="The first time, in ms since 1970; else so that it ends now."),
]
Close = Annotated[
    bool, typer.Option("--close", help="End with a record a day ahead, which ends every window.")
]
Points = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write every valid point to a .ndjson or .parquet file.")
]
Bootstrap = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT,...",
        envvar="PENSTOCK_BOOTSTRAP",
        help="Where the brokers are; also `PENSTOCK_BOOTSTRAP`.",
    ),
]
ClientOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-X", metavar="KEY=VALUE", help="A setting of librdkafka; may be repeated."),
]
CHUNK_RECORDS = 4_096
CHUNK_SECONDS = 0.05
CLOSING_AHEAD_MS = 86_400_000


def generate(  # noqa: PLR0913 - one parameter per flag
    *,
    topic: Annotated[str, typer.Option(help="Where the records go.")] = TOPIC,
    count: Count = None,
    seconds: Seconds = None,
    rate: Rate = None,
    series: SeriesCount = 72,
    interval_ms: IntervalMs = 1_000,
    late: Late = 0.0,
    late_ms_max: LateMsMax = 30_000,
    duplicates: Duplicates = 0.0,
    malformed: Malformed = 0.0,
    seed: Seed = 0,
    start_ms: StartMs = None,
    close: Close = False,
    points: Points = None,
    bootstrap: Bootstrap = "127.0.0.1:9092",
    options: ClientOptions = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the account as JSON.")] = False,
) -> None:
    """Send metrics as a fleet of hosts would: some late, some twice, some malformed.

    What was sent is shown at the end, with hashes of the valid points and of the malformed
    values that do not depend on the order. Ctrl-C and SIGTERM end it early: what the account
    holds was sent and confirmed all the same.
    """
    from penstock.client import Endpoint
    from penstock.client.login_file import login_options, refuse_secrets
    from penstock.spark.generator.records import GeneratorPlan

    given = dict(_assignment(text) for text in options or ())
    refuse_secrets("--option", given)
    wanted = COUNT_DEFAULT if count is None and seconds is None else count
    start = _start_ms(wanted, series, interval_ms) if start_ms is None else start_ms
    plan = GeneratorPlan(wanted, start, series, interval_ms, late, duplicates, malformed, late_ms_max, seed)
    endpoint = Endpoint(bootstrap, {**login_options(os.environ), **given})
    outcome = _run(plan, endpoint, topic, GeneratorLimits(rate, seconds), points, close=close)
    _show(topic, outcome, as_json)


def _run(
    plan: "GeneratorPlan",
    endpoint: "Endpoint",
    topic: str,
    limits: "GeneratorLimits",
    points: Path | None,
    *,
    close: bool,
) -> "GeneratorResult":
    from penstock.client import reach
    from penstock.spark.generator.expected import open_points
    from penstock.spark.generator.records import MetricStream

    reach(endpoint)
    with ExitStack() as stack:
        kept = None if points is None else stack.enter_context(open_points(points))
        stream = MetricStream(plan, None if kept is None else kept.add)
        stop = stack.enter_context(_told_to_stop())
        advance = stack.enter_context(_progress(topic, plan.count))
        outcome = send_metrics(endpoint, topic, stream, limits, advance, stop)
        if close:
            send_closing(endpoint, topic, stream)
    return outcome


def _start_ms(count: int | None, series: int, interval_ms: int) -> int:
    """So far back that the last record is of now; or now, if nobody knows how many there will be."""
    now_ms = time.time_ns() // 1_000_000
    return now_ms - -(-(count or 0) // series) * interval_ms


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"{text}: expected key=value", param_hint="--option")
    return key.strip(), value


@contextmanager
def _told_to_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM are noted, and heeded between two chunks."""
    told: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: told.append(number)) for number in numbers]
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _progress(topic: str, count: int | None) -> Iterator[Callable[[int], None]]:
    """A line that is rewritten on a terminal; elsewhere one line at the start."""
    live = sys.stderr.isatty()
    began = shown = time.perf_counter()
    sent = 0
    total = "" if count is None else f" of {count:,}"

    def advance(records: int) -> None:
        nonlocal sent, shown
        sent += records
        now = time.perf_counter()
        if live and now - shown >= PROGRESS_SECONDS:
            shown = now
            sys.stderr.write(f"\r\x1b[K{sent:,}{total} records to {topic}, {sent / (now - began):,.0f}/s")
            sys.stderr.flush()

    if not live:
        sys.stderr.write(f"sending{total.removeprefix(' of')} records to {topic}\n")
    try:
        yield advance
    finally:
        if live:
            sys.stderr.write("\r\x1b[K")


def _show(topic: str, outcome: "GeneratorResult", as_json: bool) -> None:
    account = outcome.account.summary()
    figures: dict[str, Any] = {
        "topic": topic,
        **account,
        "value_bytes": outcome.value_bytes,
        "seconds": round(outcome.seconds, 3),
        "records_per_second": round(outcome.records / max(outcome.seconds, 1e-9)),
        "stopped_early": outcome.stopped,
    }
    if as_json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
        return
    for name, value in figures.items():
        grouped = isinstance(value, int) and not isinstance(value, bool) and not name.endswith("_ms")
        shown = f"{value:,}" if grouped else value
        sys.stdout.write(f"{name.replace('_', ' '):20} {shown}\n")


@dataclass(frozen=True, slots=True)
class GeneratorResult:
    """What was sent and confirmed, how long that took, and the account of it."""

    account: GeneratorAccount
    records: int
    value_bytes: int
    seconds: float
    stopped: bool


@dataclass(frozen=True, slots=True)
class GeneratorLimits:
    """How fast at most, and when to stop; None is no limit."""

    rate: float | None = None
    seconds: float | None = None


def send_metrics(
    endpoint: Endpoint,
    topic: str,
    stream: MetricStream,
    limits: GeneratorLimits | None = None,
    advance: Callable[[int], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> GeneratorResult:
    """Send a stream until it ends, the time is up or `stop` says so; ClientError if a record is lost.

    Whatever ends it, all that the account holds was sent and confirmed.
    """
    sending = _Sending(BulkProducer(endpoint), topic, limits or GeneratorLimits(), advance, stop)
    stopped = False
    for pairs in stream.intervals():
        sending.add(pairs)
        if sending.is_over():
            stopped = True
            sending.add(stream.rest())
            break
    sending.flush()
    records = sending.sender.finish()
    seconds = time.perf_counter() - sending.began
    return GeneratorResult(stream.account, records, sending.value_bytes, seconds, stopped)


def send_closing(endpoint: Endpoint, topic: str, stream: MetricStream) -> int:
    """Send the closing record, a day after everything that was made; returns its time."""
    last = stream.account.last_ms
    after_ms = (stream.timestamp_ms if last is None else last) + CLOSING_AHEAD_MS
    key, value = stream.closing(after_ms)
    sender = BulkProducer(endpoint)
    sender.send(topic, [value], [key])
    sender.finish()
    return after_ms


class _Sending:
    """Gathers records into chunks and hands them over when they are due."""

    def __init__(
        self,
        sender: BulkProducer,
        topic: str,
        limits: GeneratorLimits,
        advance: Callable[[int], None],
        stop: Callable[[], bool],
    ) -> None:
        self.sender = sender
        self.value_bytes = 0
        self._topic = topic
        self._limits = limits
        self._advance = advance
        self._stop = stop
        self._chunk: list[Pair] = []
        self._sent = 0
        rate = limits.rate
        self._chunk_records = (
            CHUNK_RECORDS if rate is None else max(1, min(CHUNK_RECORDS, int(rate * CHUNK_SECONDS)))
        )
        sender.partitions(topic)
        self.began = time.perf_counter()

    def add(self, pairs: list[Pair]) -> None:
        self._chunk += pairs
        while len(self._chunk) >= self._chunk_records:
            due, self._chunk = self._chunk[: self._chunk_records], self._chunk[self._chunk_records :]
            self._send(due)

    def flush(self) -> None:
        if self._chunk:
            due, self._chunk = self._chunk, []
            self._send(due)

    def is_over(self) -> bool:
        seconds = self._limits.seconds
        return self._stop() or (seconds is not None and time.perf_counter() - self.began >= seconds)

    def _send(self, pairs: list[Pair]) -> None:
        self._wait_for_turn()
        values = [value for _, value in pairs]
        self.sender.send(self._topic, values, [key for key, _ in pairs])
        self.value_bytes += sum(len(value) for value in values if value)
        self._sent += len(pairs)
        self._advance(len(pairs))

    def _wait_for_turn(self) -> None:
        if self._limits.rate is None:
            return
        due = self.began + self._sent / self._limits.rate
        while (left := due - time.perf_counter()) > 0 and not self.is_over():
            # In pieces, so that a signal does not have to wait for a slow rate.
            time.sleep(min(left, CHUNK_SECONDS))
