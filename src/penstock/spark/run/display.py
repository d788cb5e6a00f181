"""How a run is shown: a table that moves, lines for a log, or JSON lines for a program.

Everything here reads a `RunStatus`; nothing knows of Spark.

Left out: a history. The status file has the current state; Prometheus remembers.
"""

import json
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.model import SECOND
from penstock.runtime.loop import MachineClock
from penstock.spark.run.progress import QueryStatus, RunStatus
from penstock.spark.run.status import query_fields, run_fields

if TYPE_CHECKING:
    from rich.table import Table

LINE_SECONDS = 5
COLUMNS = ("query", "state", "batch", "rows", "rows/s", "batch s", "lag records", "lag s")


class Display(Protocol):
    """Shown a run again and again, and once more at its end."""

    def __enter__(self) -> "Display": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def say(self, text: str) -> None:
        """One line beside the figures."""

    def show(self, run: RunStatus) -> None: ...

    def end(self, run: RunStatus) -> None: ...


def display_for(as_json: bool) -> Display:
    """What fits the place that we write to; only JSON goes to stdout."""
    if as_json:
        return JsonDisplay()
    return TableDisplay() if sys.stderr.isatty() else LineDisplay()


class _Quiet:
    """Opening and closing, where nothing is to be done."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to close."""


class JsonDisplay(_Quiet):
    """One object when a query starts, one for each batch of it, and one for the end of the run."""

    def __init__(self) -> None:
        self._batches: dict[str, int | None] = {}

    def __enter__(self) -> "JsonDisplay":
        return self

    def say(self, text: str) -> None:
        self._write({"event": "note", "text": text})

    def show(self, run: RunStatus) -> None:
        for query in run.queries:
            if query.name not in self._batches:
                self._batches[query.name] = None
                self._write({"event": "started", "name": query.name, "id": query.id})
            if self._batches[query.name] != query.batch:
                self._batches[query.name] = query.batch
                self._write({"event": "progress", **query_fields(query)})

    def end(self, run: RunStatus) -> None:
        self.show(run)
        self._write({"event": "end", **run_fields(run)})

    def _write(self, value: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
        sys.stdout.flush()


class LineDisplay(_Quiet):
    """A line for each query that has moved, every few seconds."""

    def __init__(self) -> None:
        self._clock = MachineClock()
        self._shown_at = self._clock.now()
        self._shown: dict[str, QueryStatus] = {}

    def __enter__(self) -> "LineDisplay":
        return self

    def say(self, text: str) -> None:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def show(self, run: RunStatus) -> None:
        if self._clock.now() - self._shown_at >= LINE_SECONDS * SECOND:
            self._shown_at = self._clock.now()
            self._show_moved(run)

    def end(self, run: RunStatus) -> None:
        self._show_moved(run)

    def _show_moved(self, run: RunStatus) -> None:
        for query in run.queries:
            before = self._shown.get(query.name)
            if before is None or (before.batch, before.state) != (query.batch, query.state):
                self._shown[query.name] = query
                self.say(line(query))


class TableDisplay:
    """A table that is drawn anew in its place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)

    def __enter__(self) -> "TableDisplay":
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def show(self, run: RunStatus) -> None:
        self._live.update(_table(run))

    def end(self, run: RunStatus) -> None:
        self._live.console.print(_table(run))


def _table(run: RunStatus) -> "Table":
    from rich.table import Table

    table = Table(title=f"{run.name}: {run.state}", title_justify="left")
    for number, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right")
    for query in run.queries:
        table.add_row(*cells(query))
    return table


def line(query: QueryStatus) -> str:
    """One query as a line of a log."""
    name, state, batch, rows, rate, seconds, records, age = cells(query)
    return (
        f"{name} {state}: batch {batch} took {seconds} s, {rows} rows in all, {rate} rows/s, "
        f"lag {records} records, {age} s"
    )


def cells(query: QueryStatus) -> Iterator[str]:
    """The columns of one query."""
    yield query.name
    yield query.state.value
    yield "-" if query.batch is None else str(query.batch)
    yield f"{query.rows:,}"
    yield f"{query.rows_per_second:,.0f}"
    yield f"{query.batch_seconds:.2f}"
    yield "-" if query.lag_records is None else f"{query.lag_records:,}"
    yield "-" if query.lag_seconds is None else f"{query.lag_seconds:,.1f}"
