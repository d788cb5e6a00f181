"""Rows by the values of their partition columns, and those values as text in paths and in the log."""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.pipeline.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
# One text per partition column, in their order; None is null.
Values = tuple[str | None, ...]


def check_partition_columns(schema: "pa.Schema", columns: Sequence[str]) -> None:
    """Refuse columns that are not there or whose values make no directory names."""
    from pyarrow import types

    for column in columns:
        if column not in schema.names:
            raise BadOption("partitionColumns", f"the rows have no column {column!r}")
        kind = schema.field(column).type
        if types.is_nested(kind) or types.is_binary(kind) or types.is_floating(kind):
            raise BadOption("partitionColumns", f"column {column!r} is {kind}, which names no directory")
    if columns and len(columns) == len(schema.names):
        raise BadOption("partitionColumns", "at least one column must be left to write")


def split(
    batch: "pa.RecordBatch", columns: Sequence[str], rest: "pa.Schema"
) -> Iterator[tuple[Values, "pa.RecordBatch"]]:
    """The rows of each partition, without the partition columns, in the order of first appearance."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not columns:
        yield (), batch
        return
    data = batch.select(rest.names)
    encoded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in columns]
    combined = _combined(encoded)
    if len(pc.unique(combined)) == 1:
        yield _values_at(encoded, 0), data
        return
    marks = pc.dictionary_encode(combined)
    firsts = pc.index_in(pa.array(range(len(marks.dictionary)), pa.int32()), marks.indices)
    for mark, first in enumerate(firsts.to_pylist()):
        yield _values_at(encoded, first), data.filter(pc.equal(marks.indices, mark))


def _combined(encoded: "list[pa.DictionaryArray]") -> "pa.Array":
    """One number per row that is the same exactly where all partition columns are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    combined = encoded[0].indices.cast(pa.int64())
    for array in encoded[1:]:
        combined = pc.add(pc.multiply(combined, len(array.dictionary)), array.indices.cast(pa.int64()))
    return combined


def _values_at(encoded: "list[pa.DictionaryArray]", row: int) -> Values:
    return tuple(to_text(array.dictionary[array.indices[row].as_py()].as_py()) for array in encoded)


def to_text(value: Any) -> str | None:
    """A partition value as Delta's log has it; the empty string is Delta's word for null."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case dt.datetime():
            return value.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)


def to_scalar(text: str | None, kind: "pa.DataType") -> "pa.Scalar":
    """A partition value of the log as a value of its column's type."""
    import pyarrow as pa
    from pyarrow import types

    if not text:
        return pa.scalar(None, kind)
    if types.is_timestamp(kind):
        moment = dt.datetime.fromisoformat(text)
        return pa.scalar(moment.replace(tzinfo=dt.UTC) if kind.tz else moment, kind)
    return pa.scalar(text).cast(kind)


def directory(columns: Sequence[str], values: Values) -> str:
    """Where the files of a partition are: `date=2026-11-15/`, with what a path cannot hold escaped."""
    return "".join(
        f"{quote(column, safe='')}={NULL_DIRECTORY if value is None else quote(value, safe='')}/"
        for column, value in zip(columns, values, strict=True)
    )
