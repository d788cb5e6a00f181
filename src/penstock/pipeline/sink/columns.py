"""Which columns a frame must and may have."""

from typing import TYPE_CHECKING, NamedTuple

from penstock.pipeline.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC_MISSING = "there is no column topic; set the option topic or add the column"


class SinkColumns(NamedTuple):
    """Which of the columns that may be there are there."""

    key: bool
    topic: bool
    partition: bool
    headers: bool
    timestamp: bool


def sink_columns(schema: "pa.Schema", topic: str | None) -> SinkColumns:
    """Check names and types; PipelineError with everything that is wrong in one line."""
    names = set(schema.names)
    wrong = [] if "value" in names else ["there is no column value"]
    if topic is None and "topic" not in names:
        wrong.append(TOPIC_MISSING)
    wrong += [
        f"column {name} is {schema.field(name).type}, not {_EXPECTED[name]}"
        for name in _EXPECTED
        if name in names and not _fits(name, schema.field(name).type)
    ]
    if wrong:
        raise PipelineError(f"this frame cannot be written to a topic: {'; '.join(wrong)}")
    return SinkColumns(
        *("key" in names, topic is None, "partition" in names, "headers" in names, "timestamp" in names)
    )


_EXPECTED = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "timestamp": "timestamp, or long in ms",
}
COLUMNS = frozenset(_EXPECTED)


def _fits(name: str, kind: "pa.DataType") -> bool:
    import pyarrow as pa

    match name:
        case "key" | "value":
            # A column of nothing but null has no type of its own.
            return _is_text(kind) or _is_bytes(kind) or bool(pa.types.is_null(kind))
        case "topic":
            return _is_text(kind)
        case "partition":
            return bool(pa.types.is_int32(kind))
        case "timestamp":
            return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))
        case _:
            return _is_headers(kind)


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_headers(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    members = kind.value_type
    if not pa.types.is_struct(members) or members.num_fields != 2:
        return False
    key, value = members.field(0), members.field(1)
    return (key.name, value.name) == ("key", "value") and _is_text(key.type) and _is_bytes(value.type)
