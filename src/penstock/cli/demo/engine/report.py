"""What the demo found, as a table."""

from collections.abc import Iterator

from penstock.cli.demo.engine.batches import BATCH_RECORDS, CODEC
from penstock.cli.demo.engine.crash import Crash
from penstock.cli.demo.engine.produce import Produced
from penstock.cli.demo.engine.readback import ReadBack
from penstock.core.model import MICROSECOND, MILLISECOND, SECOND

MEGABYTE = 1_000_000


def show_report(produced: Produced, read: ReadBack, crash: Crash) -> None:
    """Print the table; a terminal gets colours, a file does not."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Penstock's log engine, fsync: every", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in [*_rows(produced, read), *_crash_rows(crash)]:
        table.add_row(name, value)
    Console().print(table)


def _rows(produced: Produced, read: ReadBack) -> Iterator[tuple[str, str]]:
    size, elapsed_ns = produced.appended_bytes, produced.elapsed_ns
    codec = CODEC.name.lower()
    yield (
        "records written",
        f"{produced.records:,} in {produced.batches:,} {codec} batches of {BATCH_RECORDS}",
    )
    yield "size on disk", f"{size / MEGABYTE:.1f} MB in {produced.segments} segments"
    rate = _rate(produced.records, elapsed_ns)
    yield "append rate", f"{rate:,.0f} records/s, {_rate(size, elapsed_ns) / MEGABYTE:.1f} MB/s, each on disk"
    appends = sorted(produced.appends_ns)
    yield "one append", f"{_microseconds(appends[len(appends) // 2])} median, before the sync"
    shared = produced.batches / max(1, produced.sync_rounds)
    yield "fsync rounds", f"{produced.sync_rounds:,}, each shared by {shared:.1f} batches (group commit)"
    yield "records read", f"{read.records:,}, all exactly as sent"
    yield (
        "read rate",
        f"{_rate(read.read_bytes, read.reading_ns) / MEGABYTE:,.0f} MB/s by file ranges, CRC checked",
    )
    each_ns = read.offset_seeking_ns / max(1, read.offset_seeks)
    yield "lookups by offset", f"{read.offset_seeks:,}, {_microseconds(each_ns)} each"
    each_ns = read.time_seeking_ns / max(1, read.time_seeks)
    yield "lookups by time", f"{read.time_seeks:,}, {_microseconds(each_ns)} each"


def _crash_rows(crash: Crash) -> Iterator[tuple[str, str]]:
    yield (
        "writer killed",
        f"SIGKILL halfway through a batch, after {crash.acknowledged:,} acknowledged records",
    )
    report = crash.report
    read = f"{report.batches_read:,} batches read from the last checkpoint on"
    yield "recovery", f"{crash.opening_ns / MILLISECOND:.1f} ms, {read}"
    cut = report.cut
    if cut is not None:
        yield "recovery cut", f"{cut.lost_bytes:,} bytes at offset {cut.offset:,}: {cut.reason}"
    extra = crash.recovered - crash.acknowledged
    yield (
        "records kept",
        f"all {crash.acknowledged:,} acknowledged ones, and {extra:,} that were written whole",
    )


def _rate(count: int, elapsed_ns: int) -> float:
    return count * SECOND / max(1, elapsed_ns)


def _microseconds(elapsed_ns: float) -> str:
    return f"{elapsed_ns / MICROSECOND:.1f} µs"
