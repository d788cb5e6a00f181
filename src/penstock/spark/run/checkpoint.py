"""Whose checkpoint it is: a note beside Spark's files, so that another pipeline does not go on from it.

Spark trusts a checkpoint to be of the query that it is given. One of other topics or windows
would be taken up with an obscure error at best, and at worst without any.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.spark.errors import PipelineError

MARKER = "penstock.json"
# Tables reject what they have from another query, so they go with the checkpoint or stay with it.
_HINT = (
    "choose another --state-dir, or remove it and the tables that were written with it"
    " to start from the beginning"
)


class ForeignCheckpoint(PipelineError):
    """The checkpoint belongs to another pipeline, or to this one with other settings."""


def claim_checkpoint(directory: Path, pipeline: str, identity: Mapping[str, str]) -> None:
    """Note whose it is; raises `ForeignCheckpoint` if it is somebody else's."""
    if "://" in str(directory) or ":/" in str(directory):
        return  # not a directory of this machine: Spark's own checks must do
    marker = directory / MARKER
    ours = {"pipeline": pipeline, "identity": dict(identity)}
    if marker.exists():
        theirs = _read(marker)
        if theirs != ours:
            raise ForeignCheckpoint(_complaint(directory, theirs, ours))
        return
    if any(found := list(_checkpoints(directory))):
        raise ForeignCheckpoint(f"{found[0]} holds a checkpoint that penstock pipeline did not make; {_HINT}")
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f"{MARKER}.{os.getpid()}"
    fresh.write_text(json.dumps(ours, indent=2, sort_keys=True) + "\n")
    fresh.replace(marker)


def _read(marker: Path) -> dict[str, object]:
    try:
        content = json.loads(marker.read_text())
    except ValueError:
        content = None
    return content if isinstance(content, dict) else {}


def _checkpoints(directory: Path) -> Iterator[Path]:
    """Where Spark has begun a query, here or in the directories below."""
    for place in (directory, *(directory.iterdir() if directory.is_dir() else ())):
        if (place / "metadata").is_file() and (place / "offsets").is_dir():
            yield place


def _complaint(directory: Path, theirs: Mapping[str, object], ours: Mapping[str, object]) -> str:
    if theirs.get("pipeline") != ours["pipeline"]:
        return f"{directory} is a checkpoint of the pipeline {theirs.get('pipeline')!r}; {_HINT}"
    before, now = theirs.get("identity"), ours["identity"]
    assert isinstance(now, dict)
    before = before if isinstance(before, dict) else {}
    changed = [
        f"{name} was {before.get(name)!r} and is {now.get(name)!r}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    return f"{directory} is a checkpoint made with other settings ({', '.join(changed)}); {_HINT}"
