"""What a task asks for, and the shape of what it gets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class Span(NamedTuple):
    """Offsets `start` up to but not including `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class SpanReader(Protocol):
    """Reads spans, one after the other."""

    def read(self, span: Span) -> Iterator["pa.RecordBatch"]:
        """Every record of the span, in order; ends when `span.end` is reached.

        Raises `DataLost` where the log no longer holds a part of the span, and `PipelineError`
        where the broker refuses, stays away for too long, or sends what is no record batch.
        """

    def close(self) -> None:
        """Hang up."""


def record_schema(include_headers: bool) -> "pa.Schema":
    """The columns of the official connector, as Spark expects them from a Python source.

    Spark compares names, order and types with its own: even the name of a list's element counts.
    """
    import pyarrow as pa

    fields = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    if include_headers:
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        fields.append(("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)
