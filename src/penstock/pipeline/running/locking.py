"""One run at a time for each pipeline and state directory."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.pipeline.errors import PipelineError

LOCK_NAME = "lock"


class AlreadyRunning(PipelineError):
    """Another process runs the pipeline on this state directory."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory; the kernel lets go of it even if we are killed."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK_NAME).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"{directory.name} is running already on {directory.parent}; "
                "`penstock pipeline status` shows it, and another --state-dir runs a second one"
            ) from None
        yield
