"""Avro records, decoded by fastavro, which is an extra."""

import io
import json
from collections.abc import Callable
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import PipelineError, SparkOptionError
from penstock.spark.formats.value_decoder import CONFLUENT

OPTION = "valueSchema"
FRAME_BYTES = 5  # a zero and the number of a schema
_SIMPLE: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "string": StringType,
    "bytes": BinaryType,
    "fixed": BinaryType,
    "enum": StringType,
    "null": StringType,
}
_LOGICAL: dict[str, type[DataType]] = {
    "date": DateType,
    "timestamp-millis": TimestampType,
    "timestamp-micros": TimestampType,
    "uuid": StringType,
}


def avro_columns(text: str) -> StructType:
    """The columns of a record's schema."""
    kind = _kind(_parsed(text), "value")
    if not isinstance(kind, StructType):
        raise SparkOptionError(OPTION, "is not the schema of an Avro record")
    return kind


def avro_decoder(text: str, framing: str) -> Callable[[bytes], Any]:
    """What makes a dictionary of one value; a ValueError says what is wrong with it."""
    import fastavro

    schema = _parsed(text)

    def decode(value: bytes) -> Any:
        start = 0
        if framing == CONFLUENT:
            if len(value) < FRAME_BYTES or value[0] != 0:
                raise ValueError("no Confluent frame in front of the value")
            start = FRAME_BYTES
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            record = fastavro.schemaless_reader(stream, schema, None)
        except (
            EOFError,
            IndexError,
            KeyError,
            StopIteration,
            OverflowError,
            MemoryError,
            TypeError,
        ) as error:
            why = str(error) or type(error).__name__
            raise ValueError(f"not a record of this schema: {why}") from None
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over after the record")
        return record

    return decode


def _parsed(text: str) -> Any:
    try:
        import fastavro
    except ImportError:
        raise PipelineError("valueFormat avro needs fastavro: pip install 'penstock[avro]'") from None
    try:
        return fastavro.parse_schema(json.loads(text))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise SparkOptionError(OPTION, f"is no Avro schema: {error}") from None


def _kind(schema: Any, name: str) -> DataType:
    if isinstance(schema, list):
        return _union(schema, name)
    if isinstance(schema, str):
        schema = {"type": schema}
    word = schema["type"]
    if isinstance(word, dict | list):
        return _kind(word, name)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]()
    return _nested(schema, word, name)


def _nested(schema: Any, word: str, name: str) -> DataType:
    match word:
        case "record":
            return StructType(
                [StructField(one["name"], _kind(one["type"], one["name"])) for one in schema["fields"]]
            )
        case "array":
            return ArrayType(_kind(schema["items"], name))
        case "map":
            return MapType(StringType(), _kind(schema["values"], name))
    if word not in _SIMPLE:
        raise SparkOptionError(OPTION, f"{name}: {word} is not supported (named types must be written out)")
    return _SIMPLE[word]()


def _union(members: list[Any], name: str) -> DataType:
    there = [member for member in members if member != "null"]
    if len(there) != 1:
        raise SparkOptionError(OPTION, f"{name}: a union may hold null and one other type")
    return _kind(there[0], name)
