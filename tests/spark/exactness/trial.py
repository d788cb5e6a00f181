"""The metrics pipeline as a process, beside the generator's own account of what it was sent."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.client import Endpoint, TopicAdmin
from penstock.spark.demo import SHORT_LIVED_JAVA, ExactnessCheck, OutputPaths, check_all
from penstock.spark.generator import (
    GeneratorLimits,
    GeneratorPlan,
    MetricStream,
    open_points,
    send_closing,
    send_metrics,
)
from penstock.spark.generator.expected import PointFile
from penstock.spark.metrics import PIPELINES
from tests.spark.exactness.processes import TOO_SLOW, PipelineProcess

PARTITIONS = 4
SERIES = 72
INTERVAL_MS = 1_000
LATE_MS_MAX = 30_000
LATE, DUPLICATES, MALFORMED = 0.05, 0.01, 0.05
DRAIN_SECONDS = 1_200.0
# Not the best that the broker can do: a trial must not pass by promising less.
EXACTLY_ONCE = {"delivery": "exactly-once"}

# What makes a small trial quick; the defaults are for those that run for hours.
_QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JAVA,
    "spark.executor.extraJavaOptions": SHORT_LIVED_JAVA,
}
QUICK = [word for name, value in _QUICK.items() for word in ("--conf", f"{name}={value}")]

# Rows, and rows that are not repeats, as Spark counts them.
_COUNT = """\
import sys
from pathlib import Path
from pyspark.sql import functions as F
from penstock.spark.run.session import SparkSessionOptions, open_session
with open_session(SparkSessionOptions("check", Path(sys.argv[2]), "local[2]")) as spark:
    rows = spark.read.format("penstock-lake").load(sys.argv[1])
    point, origin = F.struct("series", "client", "timestamp"), F.struct("partition", "offset")
    print(*rows.agg(F.count("*"), F.countDistinct(point), F.countDistinct(origin)).first())
"""


class Trial:
    """One pipeline with topics of its own: send, drain, close the windows, judge."""

    def __init__(
        self,
        servers: str,
        directory: Path,
        master: str,
        settings: dict[str, str],
        arguments: Sequence[str] = (),
    ) -> None:
        settings = EXACTLY_ONCE | settings
        self._directory = directory
        self._points = directory / "points.parquet"
        self.endpoint = Endpoint(servers)
        state = directory / "state"
        self.config = PIPELINES["metrics"].configure(
            None, {"bootstrap": servers, "state_dir": str(state), **settings}
        )
        TopicAdmin(self.endpoint).create(self.config.topics.inbound, PARTITIONS, -1, {})
        chosen = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self.pipeline = PipelineProcess(servers, state, master, [*chosen, *arguments])
        self._kept: PointFile
        self._stream: MetricStream | None = None

    def send(
        self,
        records: int,
        limits: GeneratorLimits | None = None,
        advance: Callable[[int], None] = lambda _: None,
        interval_ms: int = INTERVAL_MS,
    ) -> None:
        """Send measurements, some late, some repeated, some malformed, and keep the account."""
        start_ms = time.time_ns() // 1_000_000 - records // SERIES * interval_ms
        late_ms_max = max(LATE_MS_MAX, 2 * interval_ms)
        plan = GeneratorPlan(records, start_ms, SERIES, interval_ms, LATE, DUPLICATES, MALFORMED, late_ms_max)
        self._kept = open_points(self._points)
        self._stream = MetricStream(plan, self._kept.add)
        send_metrics(self.endpoint, self.config.topics.inbound, self._stream, limits, advance)

    def written(self) -> int:
        """How many records the output topics hold, committed or not."""
        topics = (self.config.topics.rollup, self.config.topics.dead_letter)
        there = {one.name for one in TopicAdmin(self.endpoint).list()}
        described = [TopicAdmin(self.endpoint).describe(one) for one in topics if one in there]
        return sum(partition.end_offset or 0 for topic in described for partition in topic.partitions)

    def drain(self) -> None:
        """Run the pipeline until it has read everything."""
        self.pipeline.start("--once")
        code = self.pipeline.wait(DRAIN_SECONDS)
        while self.pipeline.was_too_slow:
            self.pipeline.start("--once")
            code = self.pipeline.wait(DRAIN_SECONDS)
        assert code == 0, f"the pipeline ended with {code}:\n{self.pipeline.last_words()}"

    def judge(self) -> list[ExactnessCheck]:
        """Read the rest, close all windows, and compare everything with the account."""
        self.drain()
        # The closing record must be read after all the others.
        assert self._stream is not None, "nothing was sent"
        with self._kept:
            send_closing(self.endpoint, self.config.topics.inbound, self._stream)
        self.drain()
        config = self.config
        places = OutputPaths(
            *(self.endpoint, config.raw_table, config.rollup_table),
            *(config.topics.rollup, config.topics.dead_letter, tuple(map(int, config.windows))),
        )
        return list(check_all(places, self._stream.account, self._points))

    def judge_by_spark(self) -> ExactnessCheck:
        """The raw table once more, read by Spark."""
        assert self._stream is not None, "nothing was sent"
        ran = self._count_by_spark()
        while TOO_SLOW in ran.stderr:
            ran = self._count_by_spark()
        assert ran.returncode == 0, f"Spark could not read {self.config.raw_table}: {ran.stderr[-1_000:]}"
        rows, points, origins = map(int, ran.stdout.split())
        expected = self._stream.account.points
        return ExactnessCheck("raw, by Spark", expected, rows, rows == points == origins == expected)

    def _count_by_spark(self) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", _COUNT, self.config.raw_table, str(self._directory / "check")],
            capture_output=True,
            text=True,
            check=False,
        )


def verdicts(checks: Sequence[ExactnessCheck]) -> list[str]:
    """What is not exact, in words; nothing if every output, topics included, holds all of it once."""
    return [
        f"{one.name}: expected {one.expected:,}, found {one.found:,} (and {one.repeats:,} repeats)"
        for one in checks
        if not one.is_exact
    ]
