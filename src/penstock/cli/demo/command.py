"""The command itself: a broker, then the pipeline or the broker's own stages, and a table at the end."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from penstock.cli.child import Child
    from penstock.cli.demo.stages import Outcome

TOPIC = "metrics"
GROUP = "demo"
PARTITIONS = 6
MESSAGES_DEFAULT = 1_000_000
PIPELINE_MESSAGES_DEFAULT = 500_000
BROKER_TRIALS = (f"consume {TOPIC} --count 3 --json", f"group describe {GROUP}")
PIPELINE_TRIALS = ("consume metrics.rollup --count 3 --json", "group describe metrics-ingest")
# Beside us, not below: the pipeline is loaded by name, as commands are.
PIPELINE_STORY = "penstock.pipeline.demo:tell"
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


def _tell_story(child: "Child", messages: int, plot: Path) -> None:
    from penstock.cli.commands import load

    tell: Any = load("the pipeline", PIPELINE_STORY)
    tell(child.bootstrap, Path(child.data_dir).parent / "pipeline", messages, plot)


def _show_broker(child: "Child", messages: int) -> None:
    from penstock.cli.bench.usage import usage_of
    from penstock.cli.demo.report import show_report

    outcome = stream_through(child, messages)
    show_report(outcome, child.start_ns, usage_of(child.pid).rss_bytes)


def stream_through(child: "Child", messages: int) -> "Outcome":
    """Send, read back and compare."""
    from penstock.cli.demo.stages import Outcome, read_all, send_all
    from penstock.cli.output import progress_bar
    from penstock.client import Endpoint, Topics

    endpoint = Endpoint(child.bootstrap)
    outcome = Outcome(PARTITIONS)
    Topics(endpoint).create(TOPIC, PARTITIONS, -1, {})
    with progress_bar(f"streaming {messages} measurements to {child.bootstrap}", messages) as advance:
        sent = send_all(endpoint, TOPIC, messages, outcome, advance)
    with progress_bar("reading them back in a consumer group", messages) as advance:
        read = read_all(endpoint, TOPIC, GROUP, outcome, advance)
    sent.check(read)
    return outcome


def _stay_up(child: "Child", *trials: str) -> None:
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
