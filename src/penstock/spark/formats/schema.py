"""Columns of values: as DDL text, as Arrow types, inferred from a sample, and pinned in a file.

    name STRING, labels MAP<STRING, STRING>, tags ARRAY<STRUCT<a: INT>>

The text is parsed here because Spark's own parser runs in the JVM, which a data source cannot reach
from its process. Inferred columns are kept in a file, so that the next start has the same.
"""

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
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
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import PipelineError, SparkOptionError

SCHEMA_OPTION = "valueSchema"
_TOKEN = re.compile(r"\s*(?:(?P<name>`(?:[^`]|``)+`|\w+)|(?P<sign>[<>(),:]))")
_SIMPLE: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "date": DateType,
    "timestamp": TimestampType,
}
_ARROW_TYPES: dict[type[DataType], pa.DataType] = {
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
OPTION = "valueSchema"
_LONG_MIN, _LONG_MAX = -(1 << 63), (1 << 63) - 1
SCHEMA_LOCATION_OPTION = "valueSchemaLocation"


def parse_ddl(text: str) -> StructType:
    """The columns that a text describes; SparkOptionError says what is wrong with it."""
    reader = _Reader(text)
    columns = reader.fields("")
    if not columns:
        raise SparkOptionError(SCHEMA_OPTION, "names no columns")
    return StructType(columns)


def to_ddl(columns: StructType) -> str:
    """The columns as text that `parse_ddl` reads."""
    return ", ".join(f"{_quoted(one.name)} {_text(one.dataType)}" for one in columns)


def _text(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{_quoted(one.name)}: {_text(one.dataType)}' for one in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_text(kind.keyType)}, {_text(kind.valueType)}>"
    return kind.simpleString().upper()


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"`{name.replace('`', '``')}`"


class _Reader:
    """Takes the text apart from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        place = 0
        stripped = text.rstrip()
        while place < len(stripped):
            found = _TOKEN.match(stripped, place)
            if found is None:
                raise SparkOptionError(SCHEMA_OPTION, f"cannot be read at {stripped[place : place + 20]!r}")
            self._tokens.append(found["name"] or found["sign"])
            place = found.end()
        self._place = 0

    def fields(self, end: str) -> list[StructField]:
        fields: list[StructField] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            name = self._next()
            if name in "<>(),:" or not name:
                raise SparkOptionError(
                    SCHEMA_OPTION, f"expected the name of a column, found {name or 'the end'!r}"
                )
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._next()
            if any(one.name == name for one in fields):
                raise SparkOptionError(SCHEMA_OPTION, f"names {name} twice")
            fields.append(StructField(name, self._kind(name)))
        return fields

    def _kind(self, owner: str) -> DataType:
        word = self._next().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]()
        match word:
            case "array":
                return ArrayType(self._inside(owner, 1)[0])
            case "map":
                key, value = self._inside(owner, 2)
                if not isinstance(key, StringType):
                    raise SparkOptionError(SCHEMA_OPTION, f"{owner}: the keys of a map are strings")
                return MapType(key, value)
            case "struct":
                self._expect("<")
                fields = self.fields(">")
                self._expect(">")
                return StructType(fields)
            case "decimal" | "dec" | "numeric":
                return self._decimal(owner)
        raise SparkOptionError(
            SCHEMA_OPTION, f"{owner}: {word or 'nothing'!r} is no type that values can have here"
        )

    def _inside(self, owner: str, count: int) -> list[DataType]:
        self._expect("<")
        kinds = [self._kind(owner)]
        for _ in range(count - 1):
            self._expect(",")
            kinds.append(self._kind(owner))
        self._expect(">")
        return kinds

    def _decimal(self, owner: str) -> DecimalType:
        numbers = [10, 0]
        if self._peek() == "(":
            self._next()
            numbers = [self._number(owner), 0]
            if self._peek() == ",":
                self._next()
                numbers[1] = self._number(owner)
            self._expect(")")
        if not 1 <= numbers[0] <= 38 or numbers[1] > numbers[0]:
            raise SparkOptionError(SCHEMA_OPTION, f"{owner}: there is no decimal({numbers[0]},{numbers[1]})")
        return DecimalType(*numbers)

    def _number(self, owner: str) -> int:
        word = self._next()
        if not word.isdigit():
            raise SparkOptionError(SCHEMA_OPTION, f"{owner}: expected a number, found {word!r}")
        return int(word)

    def _peek(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._place += 1
        return token

    def _expect(self, sign: str) -> None:
        found = self._next()
        if found != sign:
            raise SparkOptionError(SCHEMA_OPTION, f"expected {sign!r}, found {found or 'the end'!r}")


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
    simple = _ARROW_TYPES.get(type(kind))
    if simple is None:
        raise PipelineError(f"columns of type {kind.simpleString()} are not supported")
    return simple


def infer_columns(values: Iterable[bytes | None]) -> StructType:
    """What most values are; those that are not will be errors. SparkOptionError if there is nothing to go by.

    Whole numbers become BIGINT, and DOUBLE where one has a fraction; text stays text, also where it
    looks like a time; objects become structs; what is always null becomes a string.
    """
    objects = [record for record in map(_decoded, values) if isinstance(record, dict)]
    if not objects:
        raise SparkOptionError(
            OPTION, "cannot be inferred: the topic holds no JSON object; give the columns as DDL"
        )
    columns = _struct(objects)
    if not len(columns):
        raise SparkOptionError(OPTION, "cannot be inferred: the objects in the topic are empty")
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


def pinned_columns(location: str, infer: "Callable[[], StructType]") -> "StructType":
    """The columns that a file holds; if there is none, those inferred now, which it holds from then on."""
    path = _path(location)
    try:
        if not path.exists():
            _pin(path, to_ddl(infer()))
        text = path.read_text()
    except OSError as error:
        raise SparkOptionError(
            SCHEMA_LOCATION_OPTION, f"{path}: {(error.strerror or str(error)).lower()}"
        ) from None
    try:
        return parse_ddl(text)
    except SparkOptionError as error:
        raise SparkOptionError(SCHEMA_LOCATION_OPTION, f"{path}: {error.reason}") from None


def _pin(path: Path, text: str) -> None:
    """Write it whole or not at all; where two start at once, the first one's stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ours = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with ours.open("w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(ours, path)
    finally:
        ours.unlink(missing_ok=True)


def _path(location: str) -> Path:
    if location.startswith("file:"):
        location = "/" + location.removeprefix("file:").lstrip("/")
    if "://" in location:
        raise SparkOptionError(
            SCHEMA_LOCATION_OPTION, f"{location} is not on a file system that this process can reach"
        )
    return Path(location)
