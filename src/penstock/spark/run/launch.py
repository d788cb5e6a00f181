"""A run from its start to its end: session, queries, what is shown, and the stop."""

import fcntl
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from penstock.core.model import SECOND
from penstock.runtime.loop import MachineClock
from penstock.spark.errors import PipelineError
from penstock.spark.run.checkpoint import claim_checkpoint
from penstock.spark.run.display import Display
from penstock.spark.run.failures import RunFailed, in_one_line, why
from penstock.spark.run.progress import RunMonitor, RunState, RunStatus, board_listener, lag_watched
from penstock.spark.run.registry import BatchJob, Pipeline
from penstock.spark.run.session import SparkSessionOptions, open_session
from penstock.spark.run.status import RunMetrics, StatusFile, serve_metrics

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOCK_NAME = "lock"
ASKING = (signal.SIGTERM, signal.SIGINT)
TURN_SECONDS = 0.25
PAUSE_SECONDS = 0.05
# A batch that ends within this time is waited for: stopping in the middle loses nothing but its work.
GRACE_SECONDS = 5
# Spark calls the listener a moment after the query has ended.
LAST_EVENT_SECONDS = 5


class AlreadyRunning(PipelineError):
    """Another process runs the pipeline on this state directory."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory; the kernel lets go of it even if we are killed."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_NAME).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"{directory.name} is running already on {directory.parent}; "
                "`penstock pipeline status` shows it, and another --state-dir runs a second one"
            ) from None
        yield


class StopRequested(BaseException):
    """Somebody asked for a stop before there was anything to stop in order."""


class StopSignals:
    """Takes the signals while the context lasts, and remembers that one came."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._before: dict[int, Any] = {}
        self.interrupts = False

    def __enter__(self) -> "StopSignals":
        self._before = {number: signal.getsignal(number) for number in ASKING}
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def take(self) -> None:
        """Take the signals (back: Spark's context has a handler of its own for Ctrl-C)."""
        for number in ASKING:
            signal.signal(number, self._on_signal)

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until a stop is asked for; returns whether it is."""
        return self._asked.wait(seconds)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self._asked.set()
        if self.interrupts:
            raise StopRequested


@dataclass(frozen=True, slots=True)
class QuerySupervisor:
    """Looks after queries, a few times a second.

    `drops_nothing` names the queries that must not drop rows as too late, and what to do if one does.
    """

    board: RunMonitor
    stop: StopSignals
    report: Callable[[], None]
    log: Path
    drops_nothing: Mapping[str, str] = field(default_factory=dict)

    def supervise(self, queries: Iterable["StreamingQuery"], once: bool) -> None:
        """Follow all of them together, or with `once` one after the other; raises `RunFailed`."""
        if not once:
            self._follow(list(queries), until_ended=False)
            return
        for query in queries:
            self._follow([query], until_ended=True)
            if self.stop.asked:
                return

    def _follow(self, queries: list["StreamingQuery"], until_ended: bool) -> None:
        try:
            while not self.stop.wait(TURN_SECONDS):
                self.report()
                self._refuse_dropped()
                ended = [query for query in queries if not query.isActive]
                for query in ended:
                    self._check(query, until_ended)
                if len(ended) == len(queries):
                    break
            else:
                self._let_batches_end(queries)
        finally:
            with suppress(RunFailed), in_one_line("stopping", self.log):
                for query in queries:
                    query.stop()
                self._await_last_events()
        # The last batch of a query is reported after its end.
        self._refuse_dropped()

    def _check(self, query: "StreamingQuery", may_end: bool) -> None:
        error = query.exception()
        if error is not None:
            raise RunFailed(f"query {query.name} failed: {why(error)} (more in {self.log})")
        if not may_end:
            raise RunFailed(f"query {query.name} ended by itself (more in {self.log})")

    def _refuse_dropped(self) -> None:
        for query in self.board.view().queries:
            if query.rows_dropped_late and query.name in self.drops_nothing:
                raise RunFailed(
                    f"query {query.name}: {query.rows_dropped_late} rows came too late and were dropped, so"
                    f" what it wrote is not complete: {self.drops_nothing[query.name]} (more in {self.log})"
                )

    def _let_batches_end(self, queries: list["StreamingQuery"]) -> None:
        """Wait until each query is between two batches, or has finished the one it was in."""
        deadline = MachineClock().now() + GRACE_SECONDS * SECOND
        before = self._batches()
        for query in queries:
            while query.isActive and query.status["isTriggerActive"] and MachineClock().now() < deadline:
                if self._batches().get(query.name) != before.get(query.name):
                    break
                _pause()

    def _await_last_events(self) -> None:
        deadline = MachineClock().now() + LAST_EVENT_SECONDS * SECOND
        while MachineClock().now() < deadline:
            if all(query.state is not RunState.RUNNING for query in self.board.view().queries):
                return
            _pause()

    def _batches(self) -> dict[str | None, int | None]:
        return {query.name: query.batch for query in self.board.view().queries}


def _pause() -> None:
    threading.Event().wait(PAUSE_SECONDS)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says about a run."""

    name: str
    state_dir: Path
    master: str
    conf: Mapping[str, str]
    once: bool = False
    metrics: str | None = None

    @property
    def directory(self) -> Path:
        """Where the run keeps its own files: status, log, lock."""
        return self.state_dir / self.name.replace("/", "_").replace(":", "_")

    @property
    def session(self) -> SparkSessionOptions:
        return SparkSessionOptions(f"penstock {self.name}", self.directory, self.master, self.conf)


def run_pipeline(pipeline: Pipeline, config: Any, options: RunOptions, display: Display) -> RunStatus:
    """Run until everything has ended or a stop is asked for; raises `RunFailed` if a query fails."""
    board, metrics = RunMonitor(options.name), RunMetrics()
    with ExitStack() as held:
        stop = held.enter_context(StopSignals())
        held.enter_context(locked(options.directory))
        claim_checkpoint(pipeline.checkpoint(config), options.name, pipeline.identity(config))
        if options.metrics:
            served = held.enter_context(serve_metrics(options.metrics, metrics))
            display.say(f"metrics at http://{served}/metrics")
        status = StatusFile(options.directory, {"master": options.master, "log": str(options.session.log)})

        def report() -> None:
            view = board.view()
            metrics.show(view)
            status.write(view)
            display.show(view)

        held.callback(lambda: display.end(board.view()))
        held.callback(report)
        display.say(f"{options.name}: starting Spark at {options.master}, its log is {options.session.log}")
        report()
        with outcome_noted(board):
            stop.interrupts = True
            spark = held.enter_context(open_session(options.session))
            stop.interrupts = False
            stop.take()
            spark.streams.addListener(board_listener(board, [metrics.count]))
            board.running()
            with (
                lag_watched(board, pipeline.connection(config)),
                in_one_line(options.name, options.session.log),
            ):
                queries = pipeline.start(spark, config, once=options.once)
                QuerySupervisor(
                    board, stop, report, options.session.log, pipeline.drops_nothing(config)
                ).supervise(queries, options.once)
    return board.view()


@contextmanager
def outcome_noted(board: RunMonitor) -> Iterator[None]:
    """Let the board say how the run ended, whatever ended it."""
    try:
        yield
    except StopRequested:
        board.stopped()
    except BaseException as error:
        board.failed(str(error) or type(error).__name__)
        raise
    else:
        board.stopped()


def run_job(job: BatchJob, config: Any, options: RunOptions, display: Display) -> Mapping[str, Any]:
    """Run a job to its end; returns its report, or raises `RunFailed`."""
    log = options.session.log
    with locked(options.directory):
        display.say(f"{options.name}: starting Spark at {options.master}, its log is {log}")
        with open_session(options.session) as spark, in_one_line(options.name, log):
            return job.run(spark, config)
