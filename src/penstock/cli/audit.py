"""`penstock audit`: what the audit log of a node says."""

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import typer

from penstock.cli.broker_options import InvalidOption
from penstock.cli.configuration import FILE_OPTION, SET_OPTION
from penstock.cli.output import show_table

app = typer.Typer(
    help="Read a node's audit log: who did what, and whether it was allowed.", no_args_is_help=True
)
DIRECTORY = typer.Option(
    None, "--directory", metavar="DIR", help="Where the files are; by default where the configuration says."
)
USER = typer.Option(None, "--user", metavar="USER", help="What this user did, or who tried to be it.")
SINCE = typer.Option(
    None,
    "--since",
    metavar="TIME",
    help="From this time on: `2030-01-01T12:00:00Z`, or `30m`, `2h`, `1d` ago.",
)
REFUSED = typer.Option(False, "--refused", help="Only what was not allowed.")
JSON_LINES = typer.Option(False, "--json", help="Print the lines as they are in the file.")
UNITS_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
COLUMNS = ("time", "principal", "host", "operation", "resource", "decision", "count", "error")


@app.command()
def tail(
    *,
    lines: int = typer.Option(20, "--lines", "-n", min=1, metavar="N", help="How many entries."),
    user: str | None = USER,
    since: str | None = SINCE,
    refused: bool = REFUSED,
    as_json: bool = JSON_LINES,
    directory: str | None = DIRECTORY,
    config: str | None = FILE_OPTION,
    assignments: list[str] | None = SET_OPTION,
) -> None:
    """Show the last entries."""
    found = _entries(_directory(directory, config, assignments), user, since, refused=refused)
    _show(deque(found, lines), as_json=as_json)


@app.command()
def search(
    *,
    user: str | None = USER,
    since: str | None = SINCE,
    refused: bool = REFUSED,
    api: str | None = typer.Option(None, "--api", metavar="API", help="Only this API, such as CreateTopics."),
    resource: str | None = typer.Option(
        None,
        "--resource",
        metavar="NAME",
        help="Only what was done to the topic, group or user of this name.",
    ),
    as_json: bool = JSON_LINES,
    directory: str | None = DIRECTORY,
    config: str | None = FILE_OPTION,
    assignments: list[str] | None = SET_OPTION,
) -> None:
    """Show every entry that fits, the oldest first."""
    wanted = {"api": api, "resource": resource}
    found = _entries(_directory(directory, config, assignments), user, since, refused=refused)
    _show(
        (
            entry
            for entry in found
            if all(value is None or entry[0].get(key) == value for key, value in wanted.items())
        ),
        as_json=as_json,
    )


def _directory(given: str | None, config: str | None, assignments: list[str] | None) -> str:
    if given is not None:
        return given
    from penstock.config import load, override
    from penstock.node.options import audit_directory

    loaded = load(config, os.environ, [override("--set", text) for text in assignments or ()])
    return audit_directory(loaded.config)


def _entries(
    directory: str, user: str | None, since: str | None, *, refused: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Each entry of a directory's files with its line."""
    from penstock.security.audit.file import read_lines

    first = None if since is None else moment_of(since)
    return entries_in(read_lines(directory), user, first, refused=refused)


def entries_in(
    lines: Iterable[bytes], user: str | None, first: str | None, *, refused: bool
) -> Iterator[tuple[dict[str, Any], str]]:
    """Each entry with its line. Half a line, which a crash may leave, is passed over."""
    import json

    principal = None if user is None else f"User:{user.removeprefix('User:')}"
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(entry, dict) or (first is not None and _last(entry) < first):
            continue
        if principal is not None and principal not in (entry.get("principal"), _claimed(entry)):
            continue
        if not refused or entry.get("decision") == "refused":
            yield entry, line.decode("ascii", "replace").rstrip("\n")


def _last(entry: dict[str, Any]) -> str:
    return str(entry.get("until") or entry.get("time"))


def _claimed(entry: dict[str, Any]) -> str | None:
    """Whom a client wanted to be."""
    return f"User:{entry.get('resource')}" if entry.get("operation") == "login" else None


def moment_of(text: str) -> str:
    """The time that `--since` means, as entries have it: such times sort as text."""
    from penstock.runtime.loop import MachineClock
    from penstock.security.audit.entry import moment

    try:
        if text[-1:] in UNITS_SECONDS and text[:-1].isdecimal():
            return moment(MachineClock().wall() - int(text[:-1]) * UNITS_SECONDS[text[-1]] * 1_000)
        # Without a zone it is the one of this machine.
        return moment(int(datetime.fromisoformat(text).astimezone().timestamp() * 1_000))
    except (ValueError, OverflowError, OSError):
        # Not a time, or one before there were any.
        raise InvalidOption(
            f"--since {text}: expected a time such as 2030-01-01T12:00:00Z, or 30m, 2h, 1d"
        ) from None


def _show(entries: Iterable[tuple[dict[str, Any], str]], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.writelines(f"{line}\n" for _, line in entries)
    else:
        show_table("", COLUMNS, (row_of(entry) for entry, _ in entries))


def row_of(entry: dict[str, Any]) -> list[str]:
    """The cells of an entry in a table."""
    kind, name = entry.get("resource_type"), entry.get("resource")
    what = f"{entry.get('api')} {entry.get('operation')}".strip()
    resource = "" if kind is None else f"{kind} {name}"
    listed = entry.get("details")
    details = ", ".join(map(str, listed if isinstance(listed, list) else ()))
    cells = (
        entry.get("time"),
        entry.get("principal"),
        entry.get("host"),
        what,
        f"{resource}: {details}" if details else resource,
        entry.get("decision"),
        entry.get("count"),
        entry.get("error") or "",
    )
    return list(map(str, cells))
