"""The status file: how a run stands, for `penstock pipeline status` and for anybody with `cat`.

It is replaced as a whole by a rename, so that a reader never sees half of one. A writer that was
killed leaves it saying "running": the reader therefore looks whether that very process still
lives, by its number and the time it began, since numbers are used again.
"""

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.core.model import SECOND
from penstock.pipeline.running.watching.board import RunView, State
from penstock.runtime.loop import MachineClock

STATUS_NAME = "status.json"
DIED = "died"
UPDATE_SECONDS = 5
ALIVE_STATES = (State.STARTING.value, State.RUNNING.value)


class StatusFile:
    """Where one run writes how it stands."""

    def __init__(self, directory: Path, about: Mapping[str, str]) -> None:
        self._path = directory / STATUS_NAME
        self._fixed = {
            **about,
            "pid": os.getpid(),
            "process_started": process_started(os.getpid()),
            "started": _now(),
        }

        self._clock = MachineClock()
        self._written: RunView | None = None
        self._written_at = self._clock.now()

    def write(self, run: RunView) -> None:
        """Write what has changed; `updated` moves on now and then without a change."""
        now = self._clock.now()
        if run == self._written and now - self._written_at < UPDATE_SECONDS * SECOND:
            return
        self._written, self._written_at = run, now
        content = {**self._fixed, "updated": _now(), **run_fields(run)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        fresh.replace(self._path)


def run_fields(run: RunView) -> dict[str, Any]:
    """A run as plain values."""
    return {
        "name": run.name,
        "state": run.state.value,
        "error": run.error,
        "queries": [query_fields(query) for query in run.queries],
    }


def query_fields(query: Any) -> dict[str, Any]:
    fields = dataclasses.asdict(query)
    # JSON has no tuples for keys, and the offsets are in the checkpoint and in the broker's group.
    del fields["positions"]
    return fields


def read_statuses(directory: Path) -> Iterator[dict[str, Any]]:
    """What every run below a state directory wrote last; a dead writer's says `died`."""
    for path in sorted(directory.glob(f"*/{STATUS_NAME}")):
        try:
            status = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # removed, or not written by us
        if isinstance(status, dict) and "state" in status:
            yield _as_it_is(status)


def _as_it_is(status: dict[str, Any]) -> dict[str, Any]:
    if status["state"] not in ALIVE_STATES:
        return status
    pid, began = status.get("pid"), status.get("process_started")
    if isinstance(pid, int) and began is not None and process_started(pid) == began:
        return status
    queries = [{**query, "state": DIED} for query in status.get("queries") or []]
    return {**status, "state": DIED, "queries": queries}


def process_started(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since the machine did; nothing if it is no more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold blanks; what follows it does not.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
