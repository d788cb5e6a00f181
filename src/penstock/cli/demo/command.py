"""The command itself: a broker, one stage after the other, and a table at the end."""

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.cli.child import Child
    from penstock.cli.demo.stages import Outcome

TOPIC = "metrics"
GROUP = "demo"
PARTITIONS = 6
MESSAGES_DEFAULT = 1_000_000
ENGINE_MESSAGES_DEFAULT = 100_000

MESSAGES = typer.Option(
    None,
    "--messages",
    min=1,
    max=50_000_000,
    help="How many measurements to send; a million, or a hundred thousand for the log engine.",
)
ONCE = typer.Option(False, "--once", help="Stop after the table, also on a terminal.")
LOG_ENGINE = typer.Option(
    False, "--log-engine", help="Show the log engine alone: write, read, seek, crash and recover."
)


def demo(*, messages: int | None = MESSAGES, once: bool = ONCE, log_engine: bool = LOG_ENGINE) -> None:
    """Show a broker at work: start it, stream metrics through it, read them back, check them.

    The broker has free ports and a throw-away directory. On a terminal it stays up until
    Ctrl-C, to be tried out.
    """
    if log_engine:
        from penstock.cli.demo.engine.command import show_log_engine

        show_log_engine(messages or ENGINE_MESSAGES_DEFAULT)
        return
    from penstock.cli.bench.usage import usage_of
    from penstock.cli.child import throw_away_broker
    from penstock.cli.demo.report import show_report

    with throw_away_broker() as child:
        outcome = stream_through(child, messages or MESSAGES_DEFAULT)
        show_report(outcome, child.start_ns, usage_of(child.pid).rss_bytes)
        if not once and sys.stdout.isatty() and sys.stdin.isatty():
            _stay_up(child)


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


def _stay_up(child: "Child") -> None:
    import signal

    sys.stdout.write(
        f"\nThe broker stays up at {child.bootstrap} (health: http://{child.http}/health); for example:\n"
        f"  penstock consume {TOPIC} --count 3 --json --bootstrap {child.bootstrap}\n"
        f"  penstock group describe {GROUP} --bootstrap {child.bootstrap}\n"
        "Ctrl-C stops it and removes its data.\n"
    )
    sys.stdout.flush()
    try:
        signal.pause()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
