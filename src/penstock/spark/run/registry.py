"""What can be run: pipelines, which go on until they are stopped, and jobs, which end by themselves.

`penstock.spark.metrics.PIPELINES` and `penstock.spark.jobs.JOBS` map names to these.
Listing them must not import pyspark: `penstock pipeline --help` stays fast, and works without it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from penstock.spark.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# What `penstock pipeline run` passes on among the overrides, beside what --set says.
BOOTSTRAP = "bootstrap"


class Pipeline(Protocol):
    """Streaming queries that belong together."""

    @property
    def summary(self) -> str:
        """One line for `penstock pipeline list`."""

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> Any:
        """Read the YAML file, if one is given, then the overrides; raises `SparkOptionError` for a wrong one.

        Among the overrides are `bootstrap` (host:port) and `state_dir` (where checkpoints and, unless
        they are set otherwise, tables live) if the command line gave them. If the result has an
        attribute `state_dir`, the run keeps its status and its log below that directory.
        """

    def start(self, spark: "SparkSession", config: Any, *, once: bool = False) -> Iterable["StreamingQuery"]:
        """Start the queries, each with a `queryName` of its own and a checkpoint.

        Without `once` all of them are started together. With it each runs as AvailableNow, and the
        next one is asked for when the one before has ended: a generator function lets a query
        that reads what another one wrote see all of it.
        """

    def checkpoint(self, config: Any) -> Path:
        """The directory below which the checkpoints of all queries are."""

    def connection(self, config: Any) -> Mapping[str, str]:
        """Settings of librdkafka for the broker that is read from (`bootstrap.servers` …).

        With them the runner asks how old the first unread record is.
        """

    def identity(self, config: Any) -> Mapping[str, str]:
        """What cannot change while a checkpoint lives: topics, tables, windows, watermark."""

    def drops_nothing(self, config: Any) -> Mapping[str, str]:
        """Queries that must not drop rows as too late, and what to do if one did: the run fails then."""


class BatchJob(Protocol):
    """Work with an end, and a report of it."""

    @property
    def summary(self) -> str:
        """One line for `penstock pipeline list`."""

    def configure(self, path: Path | None, overrides: Mapping[str, str]) -> Any:
        """As a pipeline's."""

    def run(self, spark: "SparkSession", config: Any) -> Mapping[str, Any]:
        """Do it; returns what `penstock pipeline run` shows: names and plain values."""


class UnknownPipeline(PipelineError):
    """Nothing of that name can be run."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no pipeline or job {name!r}; known are {', '.join(sorted(known))}")
        self.name = name
