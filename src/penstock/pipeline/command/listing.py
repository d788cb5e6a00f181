"""What can be run, and how what runs stands."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

from penstock.pipeline.command.arguments import JSON_OPTION, STATE_DIR_DEFAULT, STATE_DIR_OPTION

COLUMNS = (
    *("pipeline", "query", "state", "pid", "batch", "rows", "rows/s", "lag records", "lag s"),
    *("watermark", "dropped late", "error"),
)


def list_known(*, as_json: bool = JSON_OPTION) -> None:
    """List the pipelines and jobs."""
    from penstock.pipeline.command.known import jobs, pipelines

    rows = [
        *((name, "pipeline", one.summary) for name, one in pipelines().items()),
        *((name, "job", one.summary) for name, one in jobs().items()),
    ]
    if as_json:
        _write_json([dict(zip(("name", "kind", "summary"), row, strict=True)) for row in rows])
        return
    _write_table(("name", "kind", "summary"), rows)


def show_status(*, state_dir: Path | None = STATE_DIR_OPTION, as_json: bool = JSON_OPTION) -> None:
    """Show how the runs of a state directory stand, or stood when they ended.

    Exit code 1 if one of them has failed, or died without a word.
    """
    from penstock.pipeline.running.reporting import read_statuses

    directory = state_dir or STATE_DIR_DEFAULT
    statuses = list(read_statuses(directory))
    if as_json:
        _write_json(statuses)
    elif not statuses:
        sys.stdout.write(f"nothing has run on {directory}\n")
    else:
        _write_table(COLUMNS, [row for status in statuses for row in _rows(status)])
    if any(status["state"] in ("failed", "died") for status in statuses):
        raise typer.Exit(1)


def _rows(status: dict[str, Any]) -> Iterable[Sequence[object]]:
    for query in status["queries"] or [{}]:
        yield (
            status["name"],
            _shown(query.get("name")),
            query.get("state") or status["state"],
            status["pid"],
            _shown(query.get("batch")),
            f"{query.get('rows', 0):,}",
            f"{query.get('rows_per_second', 0):,.0f}",
            _shown(query.get("lag_records")),
            _shown(query.get("lag_seconds")),
            _shown(query.get("watermark")),
            query.get("rows_dropped_late", 0),
            _shown(query.get("error") or status.get("error")),
        )


def _shown(value: object) -> object:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else value


def _write_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal; elsewhere plain text in columns under a header, as all commands print it."""
    if not sys.stdout.isatty():
        cells = [[column.upper().replace(" ", "-") for column in columns]]
        cells += [[str(cell) or "-" for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for padded in cells:
            line = "  ".join(cell.ljust(width) for cell, width in zip(padded, widths, strict=True))
            sys.stdout.write(line.rstrip() + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell).replace("[", "\\[") for cell in row))
    Console().print(table)
