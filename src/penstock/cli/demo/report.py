"""What the demo found, as a table."""

from collections.abc import Iterator

from penstock.cli.demo.stages import Lag, Outcome
from penstock.core.model import MILLISECOND, SECOND

MEGABYTE = 1_000_000


def show_report(outcome: Outcome, start_ns: int, rss_bytes: int) -> None:
    """Print the table; a terminal gets colours, a file does not."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Penstock, fsync: every", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows(outcome, start_ns, rss_bytes):
        table.add_row(name, value)
    Console().print(table)


def rows(outcome: Outcome, start_ns: int, rss_bytes: int) -> Iterator[tuple[str, str]]:
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


def _lag(lag: Lag | None) -> str:
    if lag is None:
        return "not seen"
    age = "age not known" if lag.seconds is None else f"the oldest {lag.seconds:,.1f} s old"
    return f"{lag.records:,} messages, {age}" if lag.records else "0 messages, 0 s"
