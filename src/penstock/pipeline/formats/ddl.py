"""Columns as text: `name STRING, labels MAP<STRING, STRING>, tags ARRAY<STRUCT<a: INT>>`.

Spark's own parser runs in the JVM, which a data source cannot reach from its process.
"""

import re

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
    StructField,
    StructType,
    TimestampType,
)

from penstock.pipeline.errors import BadOption

OPTION = "valueSchema"
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


def parse_ddl(text: str) -> StructType:
    """The columns that a text describes; BadOption says what is wrong with it."""
    reader = _Reader(text)
    columns = reader.fields("")
    if not columns:
        raise BadOption(OPTION, "names no columns")
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
                raise BadOption(OPTION, f"cannot be read at {stripped[place : place + 20]!r}")
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
                raise BadOption(OPTION, f"expected the name of a column, found {name or 'the end'!r}")
            name = name[1:-1].replace("``", "`") if name.startswith("`") else name
            if self._peek() == ":":
                self._next()
            if any(one.name == name for one in fields):
                raise BadOption(OPTION, f"names {name} twice")
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
                    raise BadOption(OPTION, f"{owner}: the keys of a map are strings")
                return MapType(key, value)
            case "struct":
                self._expect("<")
                fields = self.fields(">")
                self._expect(">")
                return StructType(fields)
            case "decimal" | "dec" | "numeric":
                return self._decimal(owner)
        raise BadOption(OPTION, f"{owner}: {word or 'nothing'!r} is no type that values can have here")

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
            raise BadOption(OPTION, f"{owner}: there is no decimal({numbers[0]},{numbers[1]})")
        return DecimalType(*numbers)

    def _number(self, owner: str) -> int:
        word = self._next()
        if not word.isdigit():
            raise BadOption(OPTION, f"{owner}: expected a number, found {word!r}")
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
            raise BadOption(OPTION, f"expected {sign!r}, found {found or 'the end'!r}")
