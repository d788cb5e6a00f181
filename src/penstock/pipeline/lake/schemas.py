"""How the rows' schema and the table's schema meet: columns are added, types never change."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.lake.errors import SchemaConflict

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What the table needs before the rows fit: columns to add, in the rows' order."""

    added: tuple["pa.Field", ...]


def table_schema(schema: "pa.Schema") -> "pa.Schema":
    """The schema under which rows are stored: UTC, one kind of string, and every column may be null.

    A column that can never be null could not be left out by later rows, so nullability is not taken
    over from a query, where it is an accident of how a column was computed.
    """
    import pyarrow as pa

    return pa.schema([pa.field(field.name, stored_type(field.type), True) for field in schema])


def stored_type(kind: "pa.DataType") -> "pa.DataType":
    """A type as it is stored, with everything inside nullable too."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type), True) for field in kind])
    if types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type), True))
    return kind


def conform(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    """The same rows under exactly this schema; columns that are not there become null."""
    import pyarrow as pa

    if batch.schema.equals(schema):
        return batch
    columns = [
        _column(batch, field) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: "pa.RecordBatch", field: "pa.Field") -> "pa.Array":
    column = batch.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def compare_schemas(place: str, table: "pa.Schema", rows: "pa.Schema", merge: bool) -> SchemaChange:
    """What has to be added to the table for these rows; SchemaConflict where they can never fit."""
    table, stored = _checkable(table), table_schema(rows)
    known = {field.name.lower(): field for field in table}
    added = []
    for field in stored:
        there = known.get(field.name.lower())
        if there is None:
            added.append(field)
        else:
            _refuse_change(place, there, field)
    if added and not merge:
        names = ", ".join(field.name for field in added)
        raise SchemaConflict(f"table {place}: it has no column {names}, and mergeSchema is false")
    missing = [field.name for field in table if not field.nullable and field.name not in stored.names]
    if missing:
        raise SchemaConflict(
            f"table {place}: column {missing[0]} must not be null there, and the rows have none"
        )
    return SchemaChange(tuple(added))


def _checkable(schema: "pa.Schema") -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([pa.field(field.name, stored_type(field.type), field.nullable) for field in schema])


def _refuse_change(place: str, there: "pa.Field", field: "pa.Field") -> None:
    if there.name != field.name:
        raise SchemaConflict(
            f"table {place}: column {field.name} is called {there.name} there,"
            " and names that differ only in case cannot stand side by side"
        )
    if not there.type.equals(field.type):
        raise SchemaConflict(
            f"table {place}: column {field.name} is {there.type} there and {field.type} in the rows;"
            " a column's type never changes: cast it, or write to another table"
        )
