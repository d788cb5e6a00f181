"""How commands show things: JSON for programs, tables for people, progress for the impatient."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

JSON_OPTION = typer.Option(False, "--json", help="Print JSON.")


def counted(count: int, what: str) -> str:
    """`1 problem`, `2 problems`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def printable(text: str) -> str:
    """The text, with escapes for what moves a cursor: users choose the names of what they make."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def say(text: str) -> None:
    """A line to stdout."""
    sys.stdout.write(f"{printable(text)}\n")


def note(text: str) -> None:
    """A line to stderr."""
    sys.stderr.write(f"{printable(text)}\n")


def show_json(value: Any) -> None:
    lines = json.dumps(value, indent=2, ensure_ascii=False).split("\n")
    sys.stdout.writelines(f"{_printable_json(line)}\n" for line in lines)


def _printable_json(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on a terminal; elsewhere plain text in columns under a header, for eyes, `awk` and `sort`."""
    if not sys.stdout.isatty():
        sys.stdout.writelines(f"{line}\n" for line in plain_table(columns, rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # Text is data here, not rich's markup.
        table.add_row(*(printable(str(cell)).replace("[", "\\[") for cell in row))
    Console().print(table)


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The header and each row, padded to the widest cell of their column.

    Two spaces or more stand between columns (`awk -F '  +'`); a header is one word, and no cell is empty.
    """
    cells = [[column.upper().replace(" ", "-") for column in columns]]
    cells += [[printable(str(cell)) or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Something to look at while a long operation runs: a bar on a terminal, a line elsewhere.

    A total of 0 is not known beforehand: the bar moves without an end.
    It goes to stderr, so that stdout stays what was asked for. Call the result with each step.
    """
    if not sys.stderr.isatty():
        note(title)
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(printable(title), total=total or None)
        yield lambda step: progress.advance(task, step)


def _ignore(step: int) -> None:
    """A step that nobody sees."""
