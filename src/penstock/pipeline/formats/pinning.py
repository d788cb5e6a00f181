"""Inferred columns kept in a file: whoever starts next has the same, whatever the topic holds then."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.pipeline.errors import BadOption
from penstock.pipeline.formats.ddl import parse_ddl, to_ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

OPTION = "valueSchemaLocation"


def pinned_columns(location: str, infer: "Callable[[], StructType]") -> "StructType":
    """The columns that a file holds; if there is none, those inferred now, which it holds from then on."""
    path = _path(location)
    try:
        if not path.exists():
            _pin(path, to_ddl(infer()))
        text = path.read_text()
    except OSError as error:
        raise BadOption(OPTION, f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        return parse_ddl(text)
    except BadOption as error:
        raise BadOption(OPTION, f"{path}: {error.reason}") from None


def _pin(path: Path, text: str) -> None:
    """Write it whole or not at all; where two start at once, the first one's stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with ours.open("w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(ours, path)
    finally:
        ours.unlink(missing_ok=True)


def _path(location: str) -> Path:
    if location.startswith("file:"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    if "://" in location:
        raise BadOption(OPTION, f"{location} is not on a file system that this process can reach")
    return Path(location)
