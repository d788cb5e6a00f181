"""The pipeline's half of `penstock demo`: metrics through Spark into tables, and a check of every record.

    generator ──> metrics.inbound ──> penstock pipeline run metrics ──> tables, topics
        |                             (a process of its own)                  |
        └──> its own account, and every point in a file ──> compared <────────┘

The pipeline is the command that anybody would type. While it starts, the generator sends; some of
what it sends is late, repeated or malformed. When the group has read everything, a closing record a
day ahead in time ends every window, and the pipeline is stopped. Then the tables are read by delta-rs
and the topics by a stock client, without Spark; a table of what happened is printed, and the rollups
are drawn as a picture.

The command line starts the broker and passes its address: nothing here imports a node.

Left out: kills and restarts in the middle, which the tests of the pipeline are about.
"""

import json
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

from penstock.client import (
    ClientError,
    ConsumedRecord,
    ConsumerOptions,
    Endpoint,
    GroupAdmin,
    TopicAdmin,
    TopicConsumer,
)
from penstock.client.dead_letters import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC
from penstock.core.model import SECOND
from penstock.runtime.child_command import child_command
from penstock.runtime.loop import MachineClock
from penstock.spark.errors import PipelineError
from penstock.spark.generator import (
    GeneratorAccount,
    GeneratorPlan,
    GeneratorResult,
    MetricStream,
    content_hash,
    read_points,
    rollups,
    send_closing,
    send_metrics,
)
from penstock.spark.generator.expected import open_points
from penstock.spark.generator.records import bytes_hash, point_hash
from penstock.spark.metrics import PIPELINES

NUMBERS = ("count", "sum", "min", "max", "p50", "p95", "p99")
# Sums are made in another order than ours.
RELATIVE_ERROR = 1e-9
READ_RECORDS = 10_000
WindowKey = tuple[int, str, tuple[tuple[str, str], ...], int]
Windows = dict[WindowKey, tuple[float, ...]]
STOP_SECONDS = 60
# The machine may be slow, but something happens within this time or nothing ever will.
SILENCE_SECONDS = 180
# Java compiles thoroughly what runs for hours; of two minutes that takes half.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LINE_SECONDS = 5
MEGABYTE = 1_000_000
WIDTH, HEIGHT = 1_200, 760
COLUMNS = 2
MARGIN, GAP = 24, 24
TITLE_HEIGHT, AXIS_WIDTH, AXIS_HEIGHT, HEAD_HEIGHT = 64, 60, 24, 24
TICKS = 4
MINUTE, FIVE_MINUTES = 60, 300
INK, FAINT, GRID = "#1f2933", "#616e7c", "#e4e7eb"
BAND, MEDIAN, HIGH, MEAN = "#d3e5f3", "#0b69a3", "#c65d07", "#1f2933"
LEGEND = (
    ("min to max, 1 min", BAND, 10),
    ("p50, 1 min", MEDIAN, 3),
    ("p95, 1 min", HIGH, 3),
    ("mean, 5 min", MEAN, 1),
)
Place = Callable[[float], float]
PARTITIONS = 6
SERIES = 72
INTERVAL_MS = 1_000
INGEST, ROLLUP = "metrics-ingest", "metrics-rollup"
LATE, DUPLICATES, MALFORMED = 0.05, 0.01, 0.01
# Small batches on purpose: the demo shows a stream, and each batch is a line.
SETTINGS = {"trigger": "1s", "max_offsets_per_trigger": "200000"}


class ExactnessCheck(NamedTuple):
    """One check: what there should be, what there is, and how often it is there again."""

    name: str
    expected: int
    found: int
    is_exact: bool
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class OutputPaths:
    """Where the pipeline's outputs are."""

    endpoint: Endpoint
    raw_table: str
    rollup_table: str
    rollup_topic: str
    dead_letter_topic: str
    windows_ms: tuple[int, ...]


def check_all(places: OutputPaths, account: GeneratorAccount, points: Path) -> Iterator[ExactnessCheck]:
    """One check after the other, so that somebody can watch."""
    yield check_raw(places.raw_table, account)
    expected = expected_windows(points, places.windows_ms, account.closing_ms or 0)
    yield compare("rollup table", expected, _windows(table_windows(places.rollup_table)))
    yield compare("rollup topic", expected, _windows(topic_windows(places.endpoint, places.rollup_topic)))
    yield check_dead_letters(_records(places.endpoint, places.dead_letter_topic), account)


def check_raw(table: str, account: GeneratorAccount) -> ExactnessCheck:
    """Every valid point once; the hash does not depend on the order, and a repeat would change it."""
    rows = 0
    hashes: list[int] = []
    for batch in _table_batches(table, ["name", "value", "labels", "timestamp", "client"]):
        rows += batch.num_rows
        hashes.append(sum(starmap(point_hash, _points(batch))))
    is_exact = rows == account.points and content_hash(hashes) == account.points_hash
    return ExactnessCheck("raw table", account.points, rows, is_exact)


def _points(batch: Any) -> Iterator[tuple[str, float, dict[str, str], int, str]]:
    """The rows as arguments of `point_hash`; times as numbers, since a datetime costs more than the hash."""
    import pyarrow as pa

    moments = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    labels = batch.column("labels").to_pylist(maps_as_pydicts="strict")
    name, value, client = (batch.column(one).to_pylist() for one in ("name", "value", "client"))
    return zip(name, value, labels, moments.to_pylist(), client, strict=True)


def check_dead_letters(records: Iterable[ConsumedRecord], account: GeneratorAccount) -> ExactnessCheck:
    """Every malformed value once; the offset of the record that held it tells a repeat."""
    letters: dict[tuple[bytes | None, ...], bytes | None] = {}
    count = 0
    for record in records:
        headers = dict(record.headers)
        origin = tuple(headers.get(name) for name in (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET))
        letters[origin] = record.value
        count += 1
    found = content_hash(bytes_hash(value) for value in letters.values())
    is_exact = count == len(letters) == account.malformed and found == account.malformed_hash
    return ExactnessCheck("dead letters", account.malformed, len(letters), is_exact, count - len(letters))


def expected_windows(points: Path, windows_ms: Iterable[int], end_ms: int) -> Windows:
    """The rollups worked out from the generator's points, without Spark and without the pipeline."""
    every = list(read_points(points))
    return {
        (window_ms // 1_000, one.name, one.labels, one.start_ms): (
            *(one.records, one.total, one.least, one.most),
            *(one.p50, one.p95, one.p99),
        )
        for window_ms in windows_ms
        for one in rollups(every, window_ms, end_ms)
    }


def compare(name: str, expected: Windows, found: tuple[Windows, int]) -> ExactnessCheck:
    """The same windows with the same numbers, each of them once."""
    windows, rows = found
    is_same = windows.keys() == expected.keys() and all(
        math.isclose(one, other, rel_tol=RELATIVE_ERROR, abs_tol=0.0)
        for key, numbers in expected.items()
        for one, other in zip(numbers, windows[key], strict=True)
    )
    is_exact = is_same and rows == len(windows)
    return ExactnessCheck(name, len(expected), len(windows), is_exact, rows - len(windows))


def table_windows(table: str) -> Iterator[dict[str, Any]]:
    """The rows of the rollup table, in the form of the topic's values."""
    columns = ["window_seconds", "name", "labels", "window_start", *NUMBERS]
    for batch in _table_batches(table, columns):
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield row | {"window_start": _milliseconds(row["window_start"])}


def topic_windows(endpoint: Endpoint, topic: str) -> Iterator[dict[str, Any]]:
    """The values of the rollup topic."""
    import msgspec

    for record in _records(endpoint, topic):
        yield msgspec.json.decode(record.value or b"{}")


def _windows(rows: Iterable[dict[str, Any]]) -> tuple[Windows, int]:
    windows: Windows = {}
    count = 0
    for row in rows:
        labels = tuple(sorted(row["labels"].items()))
        key = (row["window_seconds"], row["name"], labels, row["window_start"])
        windows[key] = tuple(row[name] for name in NUMBERS)
        count += 1
    return windows, count


def _table_batches(table: str, columns: list[str]) -> Iterator[Any]:
    from deltalake import DeltaTable

    # A pipeline that had nothing to write made no table.
    if DeltaTable.is_deltatable(table):
        yield from DeltaTable(table).to_pyarrow_dataset().to_batches(columns=columns)


def _records(endpoint: Endpoint, topic: str) -> Iterator[ConsumedRecord]:
    if topic not in {one.name for one in TopicAdmin(endpoint).list()}:
        return  # likewise
    with TopicConsumer(
        endpoint, topic, ConsumerOptions(batch_records=READ_RECORDS, committed_only=True)
    ) as reader:
        for batch in reader.batches():
            yield from batch


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)


class PipelineEnded(PipelineError):
    """The pipeline ended before it was stopped, or did not get done in time."""


class PipelineMonitor:
    """What the pipeline said last about each query, kept up to date by a thread."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._changed = threading.Condition()
        self._queries: dict[str, dict[str, Any]] = {}
        self.batches: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._follow, name="pipeline", daemon=True)
        self._thread.start()

    def query(self, name: str) -> dict[str, Any]:
        """A query's last progress; only its name before the first, and nothing before it starts."""
        with self._changed:
            return self._queries.get(name, {})

    def wait_until(self, what: str, is_so: Callable[[], bool], turn: Callable[[], None]) -> None:
        """Wait, looking again a few times a second; raises `PipelineEnded` if it cannot come true."""
        clock = MachineClock()
        last_word = clock.now()
        heard = -1
        while not is_so():
            turn()
            if self._process.poll() is not None:
                raise PipelineEnded(f"the pipeline ended before {what}: {self._complaint()}")
            if heard != len(self.batches):
                heard, last_word = len(self.batches), clock.now()
            if clock.now() - last_word > SILENCE_SECONDS * SECOND:
                raise PipelineEnded(f"the pipeline said nothing for {SILENCE_SECONDS} s, before {what}")
            with self._changed:
                self._changed.wait(0.25)

    def stop(self) -> None:
        """Ask it to stop, and see that it does so in order."""
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise PipelineEnded(f"the pipeline did not stop within {STOP_SECONDS} s") from None
        if code:
            raise PipelineEnded(f"the pipeline ended with exit code {code}: {self._complaint()}")
        self._thread.join()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            with self._changed:
                if event["event"] == "started":
                    self._queries[event["name"]] = event
                elif event["event"] == "progress":
                    self._queries[event["name"]] = event
                    self.batches.append(event)
                self._changed.notify_all()

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        lines = self._process.stderr.read().strip().splitlines()
        return lines[-1].removeprefix("penstock: ") if lines else "it said nothing"


@contextmanager
def running_pipeline(bootstrap: str, state_dir: Path, settings: dict[str, str]) -> Iterator[PipelineMonitor]:
    """Run the metrics pipeline while the context lasts."""
    chosen = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    process = subprocess.Popen(
        child_command(
            "penstock.cli",
            [
                *("pipeline", "run", "metrics", "--json"),
                *("--bootstrap", bootstrap, "--state-dir", str(state_dir), *chosen),
                *("--conf", f"spark.driver.extraJavaOptions={SHORT_LIVED_JAVA}"),
            ],
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Ctrl-C is for us; we stop the pipeline when it is time.
        start_new_session=True,
    )
    try:
        yield PipelineMonitor(process)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(slots=True)
class DemoFindings:
    """What happened."""

    outcome: GeneratorResult | None = None
    batches: list[dict[str, Any]] = field(default_factory=list)
    checks: list[ExactnessCheck] = field(default_factory=list)
    lag_records_max: int = 0
    lag_at_end: int | None = None
    plot: Path | None = None

    @property
    def account(self) -> GeneratorAccount:
        assert self.outcome is not None
        return self.outcome.account


class DemoProgress:
    """Progress for whoever waits: one line that moves on a terminal, lines elsewhere; on stderr."""

    def __init__(self) -> None:
        self._clock = MachineClock()
        self._began = self._shown_at = self._clock.now()
        self._is_live = sys.stderr.isatty()
        self._sent = 0

    def say(self, text: str) -> None:
        self.close()
        sys.stderr.write(f"[{(self._clock.now() - self._began) / SECOND:5.1f} s] {text}\n")
        sys.stderr.flush()

    def show(self, sent: int | None, following: PipelineMonitor) -> None:
        """The figures as they stand."""
        self._sent = self._sent if sent is None else sent
        pause = SECOND // 4 if self._is_live else LINE_SECONDS * SECOND
        if self._clock.now() - self._shown_at < pause:
            return
        self._shown_at = self._clock.now()
        line = f"{self._sent:,} sent, {_query(following.query(INGEST))}; {_query(following.query(ROLLUP))}"
        if self._is_live:
            sys.stderr.write(f"\r\x1b[K{line[:150]}")
            sys.stderr.flush()
        else:
            self.say(line)

    def sent(self, outcome: GeneratorResult) -> None:
        rate = outcome.records / max(outcome.seconds, 1e-9)
        self.say(f"sent {outcome.records:,} records, {rate:,.0f}/s")

    def close(self) -> None:
        """Make room for what comes after the line that moves."""
        if self._is_live:
            sys.stderr.write("\r\x1b[K")


def _query(said: dict[str, Any]) -> str:
    if not said:
        return "Spark is starting"
    if "rows" not in said:
        return f"{said['name']} is in its first batch"
    lag = said.get("lag_records")
    behind = "" if lag is None else f", lag {lag:,}"
    return f"{said['name']}: {said['rows']:,} rows, {said['rows_per_second']:,.0f}/s{behind}"


def show_report(findings: DemoFindings) -> None:
    """Print the table; a terminal gets colours, a file does not."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Metrics through Penstock and Spark", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows(findings):
        table.add_row(name, value)
    Console().print(table)


def rows(findings: DemoFindings) -> Iterator[tuple[str, str]]:
    """The lines of the table."""
    account, outcome = findings.account, findings.outcome
    assert outcome is not None
    checks = {check.name: check for check in findings.checks}
    size = f"{outcome.value_bytes / MEGABYTE:.1f} MB"
    yield "ingested", f"{account.records:,} records ({size}), {account.late:,} of them late"
    yield "stored", f"{checks['raw table'].found:,} in the raw table"
    yield (
        "duplicates removed",
        f"{_total(findings, INGEST, 'duplicates_dropped'):,} of {account.duplicates:,} sent",
    )
    yield "dead letters", f"{checks['dead letters'].found:,} of {account.malformed:,} malformed records"
    yield "rollups", f"{checks['rollup table'].found:,} windows of 1 and 5 minutes, in a table and in a topic"
    yield "dropped as late", f"{_total(findings, INGEST, 'rows_dropped_late'):,}"
    yield "exactness", _verdict(findings)
    yield (
        "send rate",
        f"{outcome.records / max(outcome.seconds, 1e-9):,.0f} records/s, acknowledged when on disk",
    )
    for name in (INGEST, ROLLUP):
        yield f"{name} rate", _rate(findings, name)
    yield "lag", f"{findings.lag_records_max:,} records at most, {findings.lag_at_end} at the end"
    yield "plot", str(findings.plot)


def _verdict(findings: DemoFindings) -> str:
    wrong = [
        f"{check.name} has {check.found:,} of {check.expected:,}, and {check.repeats:,} repeats"
        for check in findings.checks
        if not check.is_exact
    ]
    if wrong:
        return f"NOT exact: {'; '.join(wrong)}"
    names = ", ".join(check.name for check in findings.checks)
    return f"exact by count and content, without repeats: {names}"


def _total(findings: DemoFindings, query: str, name: str) -> int:
    """The last word of a query on something that adds up."""
    said = [batch[name] for batch in findings.batches if batch["name"] == query]
    return int(said[-1]) if said else 0


def _rate(findings: DemoFindings, query: str) -> str:
    batches = [batch for batch in findings.batches if batch["name"] == query]
    seconds = sum(batch["batch_seconds"] for batch in batches)
    total = _total(findings, query, "rows")
    return f"{total / max(seconds, 1e-9):,.0f} rows/s over {len(batches)} batches, {seconds:.1f} s in all"


class PlotWindow(NamedTuple):
    """One window of one series."""

    start_ms: int
    seconds: int
    mean: float
    least: float
    greatest: float
    p50: float
    p95: float


class PlotPanel(NamedTuple):
    """Where one metric is drawn."""

    name: str
    x: float
    y: float
    width: float
    height: float


def draw_rollups(table: str, path: Path) -> Path:
    """Read the rollup table and write the picture; returns where it is."""
    path.write_text("\n".join(svg(first_of_each(rows_of(table)))) + "\n")
    return path


def rows_of(table: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(table):
        return []  # there was nothing to roll up
    columns = ["name", "series", "window_start", "window_seconds", "count", "sum", "min", "max", "p50", "p95"]
    rows: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_dataset().to_table(columns=columns).to_pylist()
    return rows


def first_of_each(rows: Iterable[dict[str, Any]]) -> dict[str, list[PlotWindow]]:
    """By metric: the windows of its first series, in the order of time."""
    rows = list(rows)
    first: dict[str, str] = {}
    for row in rows:
        first[row["name"]] = min(row["series"], first.get(row["name"], row["series"]))
    found: dict[str, list[PlotWindow]] = {name: [] for name in sorted(first)}
    for row in rows:
        if row["series"] == first[row["name"]]:
            found[row["name"]].append(
                PlotWindow(
                    round(row["window_start"].timestamp() * 1_000),
                    row["window_seconds"],
                    row["sum"] / row["count"],
                    *(row["min"], row["max"], row["p50"], row["p95"]),
                )
            )
    return {name: sorted(windows) for name, windows in found.items()}


def svg(metrics: dict[str, list[PlotWindow]]) -> Iterator[str]:
    """The lines of the file."""
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    yield _text(MARGIN, 36, "Rollups of one host", INK, size=20)
    for number, (meaning, color, height) in enumerate(LEGEND):
        x = WIDTH / 2 - 20 + number * 150
        yield f'<rect x="{x}" y="{32 - height / 2}" width="20" height="{height}" fill="{color}"/>'
        yield _text(x + 26, 36, meaning, FAINT)
    for panel in _panels(list(metrics)):
        yield from _drawn(panel, metrics[panel.name])
    yield "</svg>"


def _panels(names: Sequence[str]) -> Iterator[PlotPanel]:
    lines = max(1, -(-len(names) // COLUMNS))
    width = (WIDTH - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS
    height = (HEIGHT - TITLE_HEIGHT - MARGIN - (lines - 1) * GAP) / lines
    for number, name in enumerate(names):
        line, column = divmod(number, COLUMNS)
        x = MARGIN + column * (width + GAP) + AXIS_WIDTH
        y = TITLE_HEIGHT + line * (height + GAP) + HEAD_HEIGHT
        yield PlotPanel(name, x, y, width - AXIS_WIDTH, height - HEAD_HEIGHT - AXIS_HEIGHT)


def _drawn(panel: PlotPanel, windows: Sequence[PlotWindow]) -> Iterator[str]:
    bottom, top = min(one.least for one in windows), max(one.greatest for one in windows)
    first = min(one.start_ms for one in windows)
    last = max(one.start_ms + one.seconds * 1_000 for one in windows)

    def x(moment_ms: float) -> float:
        return panel.x + panel.width * (moment_ms - first) / (last - first)

    def y(value: float) -> float:
        return panel.y + panel.height * (1 - (value - bottom) / ((top - bottom) or 1.0))

    yield _text(panel.x, panel.y - 8, panel.name, INK, size=14)
    for tick in range(TICKS):
        value, moment_ms = (
            low + (high - low) * tick / (TICKS - 1) for low, high in ((bottom, top), (first, last))
        )
        yield f'<path d="M{panel.x:.1f},{y(value):.1f} h{panel.width:.1f}" stroke="{GRID}"/>'
        yield _text(panel.x - 6, y(value) + 4, _short(value), FAINT, anchor="end")
        anchor = "start" if tick == 0 else "end" if tick == TICKS - 1 else "middle"
        yield _text(x(moment_ms), panel.y + panel.height + 16, _clock(moment_ms), FAINT, anchor=anchor)
    yield from _lines(windows, x, y)


def _lines(windows: Sequence[PlotWindow], x: Place, y: Place) -> Iterator[str]:
    minutes = [(one.start_ms + 30_000, one) for one in windows if one.seconds == MINUTE]
    edge = [(moment, one.greatest) for moment, one in minutes]
    edge += [(moment, one.least) for moment, one in reversed(minutes)]
    yield f'<polygon points="{_plot_points(edge, x, y)}" fill="{BAND}"/>'
    for color, line in (
        (HIGH, [(moment, one.p95) for moment, one in minutes]),
        (MEDIAN, [(moment, one.p50) for moment, one in minutes]),
    ):
        points = _plot_points(line, x, y)
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    for one in windows:
        if one.seconds == FIVE_MINUTES:
            ends = [(one.start_ms, one.mean), (one.start_ms + FIVE_MINUTES * 1_000, one.mean)]
            yield f'<polyline points="{_plot_points(ends, x, y)}" stroke="{MEAN}" stroke-width="1"/>'


def _plot_points(places: Iterable[tuple[float, float]], x: Place, y: Place) -> str:
    return " ".join(f"{x(moment_ms):.1f},{y(value):.1f}" for moment_ms, value in places)


def _text(x: float, y: float, text: str, color: str, *, size: int = 12, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _clock(moment_ms: float) -> str:
    return datetime.fromtimestamp(moment_ms / 1_000, UTC).strftime("%H:%M")


def _short(value: float) -> str:
    for size, suffix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{suffix}"
    return f"{value:.3g}"


class NotExactlyOnce(PipelineError):
    """What the pipeline made of the records is not what it should be."""


def run_demo(bootstrap: str, directory: Path, messages: int, plot: Path) -> None:
    """Run the whole story against a broker; raises `NotExactlyOnce` after the table if something is amiss."""
    watch = DemoProgress()
    findings = DemoFindings()
    endpoint = Endpoint(bootstrap)
    config = PIPELINES["metrics"].configure(
        None, {"bootstrap": bootstrap, "state_dir": str(directory), **SETTINGS}
    )
    TopicAdmin(endpoint).create(config.topics.inbound, PARTITIONS, -1, {})
    points = directory / "points.parquet"
    directory.mkdir(parents=True, exist_ok=True)
    watch.say("starting the pipeline: penstock pipeline run metrics")
    with running_pipeline(bootstrap, directory, SETTINGS) as following, open_points(points) as kept:
        stream = MetricStream(_plan(messages), kept.add)
        send(endpoint, config.topics.inbound, stream, findings, following, watch)
        await_ingested(endpoint, config.groups.ingest, findings, following, watch)
        await_rolled_up(endpoint, config.topics.inbound, stream, following, watch)
        watch.say("stopping the pipeline")
        following.stop()
    findings.batches = following.batches
    findings.lag_at_end = lag_of(endpoint, config.groups.ingest)
    places = OutputPaths(
        endpoint,
        config.raw_table,
        config.rollup_table,
        config.topics.rollup,
        config.topics.dead_letter,
        tuple(map(int, config.windows)),
    )
    for check in check_all(places, findings.account, points):
        watch.say(f"checked {check.name}: {'exact' if check.is_exact else 'NOT exact'}")
        findings.checks.append(check)
    findings.plot = draw_rollups(config.rollup_table, plot)
    watch.close()
    show_report(findings)
    if wrong := [check.name for check in findings.checks if not check.is_exact]:
        raise NotExactlyOnce(f"not exact: {', '.join(wrong)}")


def _plan(messages: int) -> GeneratorPlan:
    start_ms = MachineClock().wall() - -(-messages // SERIES) * INTERVAL_MS
    return GeneratorPlan(messages, start_ms, SERIES, INTERVAL_MS, LATE, DUPLICATES, MALFORMED)


def send(
    endpoint: Endpoint,
    topic: str,
    stream: MetricStream,
    findings: DemoFindings,
    following: PipelineMonitor,
    watch: DemoProgress,
) -> None:
    """Send everything as fast as the broker takes it, while the pipeline starts and begins to read."""
    watch.say(f"sending metrics to {topic}, some late, some repeated, some malformed")
    sent = 0

    def advance(records: int) -> None:
        nonlocal sent
        sent += records
        watch.show(sent, following)

    findings.outcome = send_metrics(endpoint, topic, stream, advance=advance)
    watch.sent(findings.outcome)


def await_ingested(
    endpoint: Endpoint, group: str, findings: DemoFindings, following: PipelineMonitor, watch: DemoProgress
) -> None:
    """Wait until the broker says that the group has read everything."""
    clock = MachineClock()
    asked_at = 0

    def is_done() -> bool:
        nonlocal asked_at
        if clock.now() - asked_at < SECOND // 2:
            return False
        asked_at = clock.now()
        lag = lag_of(endpoint, group)
        findings.lag_records_max = max(findings.lag_records_max, lag or 0)
        return lag == 0

    following.wait_until("everything was read", is_done, lambda: watch.show(None, following))


def await_rolled_up(
    endpoint: Endpoint,
    topic: str,
    stream: MetricStream,
    following: PipelineMonitor,
    watch: DemoProgress,
) -> None:
    """Send the closing record, and wait until the rollup has closed every window before it."""
    watch.say("everything is read; a closing record ends the last windows")
    last_ms = stream.account.last_ms or 0
    send_closing(endpoint, topic, stream)
    is_done = _passed(following, last_ms)
    following.wait_until("the last windows were closed", is_done, lambda: watch.show(None, following))


def _passed(following: PipelineMonitor, last_ms: int) -> Callable[[], bool]:
    longest_ms = 3_600_000

    def is_done() -> bool:
        watermark = following.query(ROLLUP).get("watermark")
        if not watermark:
            return False
        return datetime.fromisoformat(watermark).timestamp() * 1_000 > last_ms + longest_ms

    return is_done


def lag_of(endpoint: Endpoint, group: str) -> int | None:
    """How many records the group has not read; unknown before it has committed anything."""
    try:
        partitions = GroupAdmin(endpoint).describe(group).partitions
    except ClientError:
        return None
    if len(partitions) < PARTITIONS or any(one.lag is None for one in partitions):
        return None
    return sum(one.lag or 0 for one in partitions)
