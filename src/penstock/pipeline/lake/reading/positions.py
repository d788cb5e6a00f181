"""How far a query has read a table, version by version, and what comes next.

A query begins with all files of the version that it finds, its *base*, and goes on with the files
that each later version added. A position names the next file to read:

    version          7 (base)           8            9 (compaction)     10
    files        [a, b, c, d]        [e, f]              []            [g]
    position         ^ {version 7, index 1, snapshot}
                                        ^ {version 8, index 1}
                                                                           ^ {version 11, index 0}

Spark compares positions as JSON text, so the keys are sorted. It also forgets the first position: a
query that is started again before its first batch is done asks for one anew, and by then the table is
at another version. Every position carries its base, so the end that Spark did keep tells where the
batch began.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Position:
    """The next file to read. Index -1 stands before a query that has not begun yet."""

    table: str
    base: int
    version: int
    index: int
    snapshot: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "index": self.index,
            "snapshot": self.snapshot,
            "table": self.table,
            "version": self.version,
        }

    def next_version(self) -> "Position":
        return replace(self, version=self.version + 1, index=0, snapshot=False)

    def at(self, index: int) -> "Position":
        return replace(self, index=index)


def position_from_json(offset: Mapping[str, Any]) -> Position:
    try:
        return Position(
            table=offset["table"],
            base=offset["base"],
            version=offset["version"],
            index=offset["index"],
            snapshot=offset["snapshot"],
        )
    except KeyError as error:
        raise PipelineError(f"the checkpoint is of another query: its offset has no {error}") from None


def beginning_of(start: Position, end: Position) -> Position:
    """Where a batch that ends at `end` began, if `start` may have been made up anew."""
    if start.base == end.base and start.table == end.table:
        return start
    # The base of a query that read a snapshot is that snapshot; any other began with the base's own files.
    return replace(end, version=end.base, index=0, snapshot=start.snapshot)
