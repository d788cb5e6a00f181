"""What a column is in Arrow's words: exactly as Spark has it, or Spark refuses the batch."""

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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

from penstock.pipeline.errors import PipelineError

_SIMPLE: dict[type[DataType], pa.DataType] = {
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a Spark type."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, StructType):
        return pa.struct([pa.field(one.name, arrow_type(one.dataType), one.nullable) for one in kind])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, MapType):
        return pa.map_(
            pa.field("key", arrow_type(kind.keyType), nullable=False),
            pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull),
        )
    simple = _SIMPLE.get(type(kind))
    if simple is None:
        raise PipelineError(f"columns of type {kind.simpleString()} are not supported")
    return simple
