"""A run from its start to its end: session, queries, what is shown, and the stop."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.pipeline.running.checkpoint import claim_checkpoint
from penstock.pipeline.running.failures import in_one_line
from penstock.pipeline.running.locking import locked
from penstock.pipeline.running.registry import Job, Pipeline
from penstock.pipeline.running.reporting import Display, RunMetrics, StatusFile, serve_metrics
from penstock.pipeline.running.session import SessionOptions, open_session
from penstock.pipeline.running.stopping import StopAsked, StopSignals
from penstock.pipeline.running.supervision import Supervision
from penstock.pipeline.running.watching import Board, RunView, board_listener, lag_watched


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
    def session(self) -> SessionOptions:
        return SessionOptions(f"penstock {self.name}", self.directory, self.master, self.conf)


def run_pipeline(pipeline: Pipeline, config: Any, options: RunOptions, display: Display) -> RunView:
    """Run until everything has ended or a stop is asked for; raises `RunFailed` if a query fails."""
    board, metrics = Board(options.name), RunMetrics()
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
                Supervision(
                    board, stop, report, options.session.log, pipeline.drops_nothing(config)
                ).supervise(queries, options.once)
    return board.view()


@contextmanager
def outcome_noted(board: Board) -> Iterator[None]:
    """Let the board say how the run ended, whatever ended it."""
    try:
        yield
    except StopAsked:
        board.stopped()
    except BaseException as error:
        board.failed(str(error) or type(error).__name__)
        raise
    else:
        board.stopped()


def run_job(job: Job, config: Any, options: RunOptions, display: Display) -> Mapping[str, Any]:
    """Run a job to its end; answers its report, or raises `RunFailed`."""
    log = options.session.log
    with locked(options.directory):
        display.say(f"{options.name}: starting Spark at {options.master}, its log is {log}")
        with open_session(options.session) as spark, in_one_line(options.name, log):
            return job.run(spark, config)
