"""Columns that fit a sample of JSON values."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from penstock.pipeline.errors import BadOption

OPTION = "valueSchema"
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1


def infer_columns(values: Iterable[bytes | None]) -> StructType:
    """What most values are; those that are not will be errors. BadOption if there is nothing to go by.

    Whole numbers become BIGINT, and DOUBLE where one has a fraction; text stays text, also where it
    looks like a time; objects become structs; what is always null becomes a string.
    """
    objects = [record for record in map(_decoded, values) if isinstance(record, dict)]
    if not objects:
        raise BadOption(OPTION, "cannot be inferred: the topic holds no JSON object; give the columns as DDL")
    columns = _struct(objects)
    if not len(columns):
        raise BadOption(OPTION, "cannot be inferred: the objects in the topic are empty")
    return columns


def _decoded(value: bytes | None) -> Any:
    try:
        return msgspec.json.decode(value or b"")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _struct(objects: list[dict[str, Any]]) -> StructType:
    names = dict.fromkeys(name for one in objects for name in one)
    return StructType(
        [StructField(name, _kind([one[name] for one in objects if name in one])) for name in sorted(names)]
    )


def _kind(cells: list[Any]) -> DataType:
    there = [cell for cell in cells if cell is not None]
    if not there:
        return StringType()
    word = Counter(map(_word, there)).most_common(1)[0][0]
    if word in ("whole", "number"):
        words = {_word(cell) for cell in there}
        return DoubleType() if "number" in words else LongType()
    if word == "object":
        inside = _struct([cell for cell in there if isinstance(cell, dict)])
        # A struct without fields can be read by nobody.
        return inside if len(inside) else StringType()
    if word == "array":
        return ArrayType(_kind([member for cell in there if isinstance(cell, list) for member in cell]))
    return BooleanType() if word == "boolean" else StringType()


def _word(cell: Any) -> str:
    match cell:
        case bool():
            return "boolean"
        case int():
            return "whole" if _LONG_MIN <= cell <= _LONG_MAX else "number"
        case float():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
    return "text"
