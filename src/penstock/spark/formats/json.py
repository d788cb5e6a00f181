"""JSON objects as typed structs: the type is made from the columns, msgspec does the rest."""

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.spark.errors import PipelineError

_INTEGER_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_FLOAT_MAX = 3.4028234663852886e38
_SIMPLE: dict[type[DataType], Any] = {
    BooleanType: bool,
    DoubleType: float,
    FloatType: Annotated[float, msgspec.Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)],
    StringType: str,
    DateType: date,
    # What range of numbers is a time depends on their unit: checked when columns are built.
    TimestampType: int | float | datetime,
    DecimalType: Decimal,
}
Decoded = Any  # a struct of the type made here, or None


def json_decoder(columns: StructType) -> Callable[[bytes], Decoded]:
    """What makes a struct of one value; raises what `DECODE_ERRORS` lists."""
    decoder = msgspec.json.Decoder(struct_type(columns, "value"))
    decode: Callable[[bytes], Decoded] = decoder.decode
    return decode


# UnicodeDecodeError is a ValueError, as are msgspec's own.
DECODE_ERRORS: tuple[type[Exception], ...] = (msgspec.MsgspecError, ValueError, RecursionError)


def struct_type(columns: StructType, name: str) -> type[msgspec.Struct]:
    """Fields are called f0, f1, ... for a column's name need not be one that Python allows."""
    names = field_names(columns)
    fields = [
        (ours, _type(one.dataType, one.name) | None, None) for ours, one in zip(names, columns, strict=True)
    ]
    renamed = {ours: one.name for ours, one in zip(names, columns, strict=True)}
    return msgspec.defstruct(name, fields, rename=renamed, gc=False)


def field_names(columns: Sequence[object] | StructType) -> list[str]:
    """What the fields of a struct are called."""
    return [f"f{number}" for number in range(len(columns))]


def _type(kind: DataType, name: str) -> Any:
    bits = _INTEGER_BITS.get(type(kind))
    if bits is not None:
        return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]
    if isinstance(kind, StructType):
        return struct_type(kind, name)
    if isinstance(kind, ArrayType):
        return list[_type(kind.elementType, name) | None]  # type: ignore[misc]
    if isinstance(kind, MapType):
        return dict[str, _type(kind.valueType, name) | None]  # type: ignore[misc]
    simple = _SIMPLE.get(type(kind))
    if simple is None:
        raise PipelineError(f"{name}: JSON has nothing that is {kind.simpleString()}")
    return simple
