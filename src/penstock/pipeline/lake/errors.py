"""What a table can refuse, as one line each."""

import errno

from penstock.pipeline.errors import PipelineError

_FULL = ("No space left on device", "Disk quota exceeded", "File too large")
_FULL_NUMBERS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class TableMissing(PipelineError):
    """There is no table at the given place."""


class SchemaConflict(PipelineError):
    """The rows do not fit into the table, and adding columns would not make them fit."""


class RowsAlreadyThere(PipelineError):
    """A new query brings records that an earlier query has put into the table."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}: {advice}")
        self.found, self.advice = found, advice

    def __reduce__(self) -> tuple[type["RowsAlreadyThere"], tuple[str, str]]:
        return (RowsAlreadyThere, (self.found, self.advice))


class LakeFull(PipelineError):
    """The disk below the table is full; the batch failed as a whole."""


class VersionGone(PipelineError):
    """A version of the table, or a file of it, cannot be read any more."""


class RowsChanged(PipelineError):
    """A version took rows away, which a stream of added rows cannot tell."""


class CommitRefused(PipelineError):
    """Others changed the table at every try."""


def is_disk_full(error: BaseException) -> bool:
    """Whether an error of the filesystem, of pyarrow or of delta-rs says that the disk is full."""
    if isinstance(error, OSError) and error.errno in _FULL_NUMBERS:
        return True
    return any(words in str(error) for words in _FULL)


def lake_full(path: str, *, is_committed: bool = False) -> LakeFull:
    if is_committed:
        return LakeFull(
            f"table {path}: no space left on the disk, right after the batch was committed: free space and"
            " start the query again; what the batch brought is there, and will not be there twice"
        )
    return LakeFull(
        f"table {path}: no space left on the disk; the batch failed and nothing of it was committed:"
        " free space and start the query again, it goes on where it was"
    )
