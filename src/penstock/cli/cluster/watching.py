"""Something to look at while the cluster works: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from penstock.core.model import MILLISECOND
from penstock.runtime.loop import MachineClock

LOOK_SECONDS = 0.5
LINE_MS = 5_000


class Progress(NamedTuple):
    """How far it is, and in words; `total` may grow."""

    done: int
    total: int
    words: str


def watch(title: str, look: Callable[[], Progress | None]) -> None:
    """Look again and again until there is nothing more to see."""
    if sys.stderr.isatty():
        _bar(title, look)
    else:
        _lines(title, look)


def _bar(title: str, look: Callable[[], Progress | None]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(title), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        while (seen := look()) is not None:
            bar.update(task, completed=seen.done, total=seen.total or None, description=seen.words)
            time.sleep(LOOK_SECONDS)


def _lines(title: str, look: Callable[[], Progress | None]) -> None:
    clock = MachineClock()
    said, next_line = "", 0
    while (seen := look()) is not None:
        if seen.words != said and clock.now() >= next_line:
            sys.stderr.write(f"{title}: {seen.words}\n")
            sys.stderr.flush()
            said, next_line = seen.words, clock.now() + LINE_MS * MILLISECOND
        time.sleep(LOOK_SECONDS)
