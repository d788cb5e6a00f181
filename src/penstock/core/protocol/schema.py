"""What a message table is written in: types (`Int32`, `String`, `Array[...]`), versions, defaults, tags.

To a type checker each type is an ordinary Python type (`Int32` is `int`); the annotation
carries what the generator needs to know. A field that can be null in any of its versions
is annotated with the `Nullable...` twin.

A `Schema` is all that the generator reads. Versions of a field count as those of the
message it is part of, nested parts included, just as in Kafka's own tables.
"""

import enum
from typing import Annotated, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")
ZERO_UUID = UUID(int=0)
VERSION_MAX: Final = 32767


class FixedType(enum.Enum):
    """A value of fixed width; the value is its `struct` format letter."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    UINT16 = "H"
    INT32 = "i"
    UINT32 = "I"
    INT64 = "q"
    FLOAT64 = "d"
    UUID = "16s"


class SizedType(enum.Enum):
    """A value that says its own length; the value is the width of that length where it is not a varint."""

    STRING = 2
    BYTES = 4
    RECORDS = -4


class TypeWrapper(enum.Enum):
    """How an annotation wraps what it annotates."""

    ARRAY = "array"
    NULLABLE = "nullable"


class ArrayOf(msgspec.Struct, frozen=True):
    """An array type: what its elements are."""

    element: "WireType"


class PartOf(msgspec.Struct, frozen=True):
    """A nested part: the class that describes it."""

    part: type[Any]


WireType: TypeAlias = FixedType | SizedType | ArrayOf | PartOf
Bool: TypeAlias = Annotated[bool, FixedType.BOOL]
Int8: TypeAlias = Annotated[int, FixedType.INT8]
Int16: TypeAlias = Annotated[int, FixedType.INT16]
UInt16: TypeAlias = Annotated[int, FixedType.UINT16]
Int32: TypeAlias = Annotated[int, FixedType.INT32]
UInt32: TypeAlias = Annotated[int, FixedType.UINT32]
Int64: TypeAlias = Annotated[int, FixedType.INT64]
Float64: TypeAlias = Annotated[float, FixedType.FLOAT64]
Uuid: TypeAlias = Annotated[UUID, FixedType.UUID]
String: TypeAlias = Annotated[str, SizedType.STRING]
NullableString: TypeAlias = Annotated[str | None, SizedType.STRING, TypeWrapper.NULLABLE]
Bytes: TypeAlias = Annotated[bytes, SizedType.BYTES]
NullableBytes: TypeAlias = Annotated[bytes | None, SizedType.BYTES, TypeWrapper.NULLABLE]


class ExternalRecords(Protocol):
    """Record bytes that are somewhere else, in a file for instance: all the encoder needs is how many."""

    def __len__(self) -> int: ...


# What an encoder with gaps returns: its own small buffers, and the records between them.
Piece: TypeAlias = bytes | bytearray | memoryview | ExternalRecords
# Record batches stay where they are: decoding returns a view into the frame.
Records: TypeAlias = Annotated[bytes | memoryview, SizedType.RECORDS]
NullableRecords: TypeAlias = Annotated[bytes | memoryview | None, SizedType.RECORDS, TypeWrapper.NULLABLE]
# Records on their way out may be a span; a decoder never returns one.
SentRecords: TypeAlias = Annotated[bytes | memoryview | ExternalRecords, SizedType.RECORDS]
NullableSentRecords: TypeAlias = Annotated[
    bytes | memoryview | ExternalRecords | None, SizedType.RECORDS, TypeWrapper.NULLABLE
]
Array: TypeAlias = Annotated[tuple[T, ...], TypeWrapper.ARRAY]
NullableArray: TypeAlias = Annotated[tuple[T, ...] | None, TypeWrapper.ARRAY, TypeWrapper.NULLABLE]
Nullable: TypeAlias = Annotated[T | None, TypeWrapper.NULLABLE]


class Required:
    """Stands where a field has no default: the value must be given when the message is made."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = Required()


class FieldVersions(msgspec.Struct, frozen=True):
    """In which versions a field exists, and how."""

    since: int = 0
    until: int = VERSION_MAX
    default: object = REQUIRED
    nullable_from: int = 0
    tag: int | None = None
    ignorable: bool = False


def since(
    version: int,
    *,
    default: Any = REQUIRED,
    until: int = VERSION_MAX,
    nullable_from: int = 0,
    ignorable: bool = False,
) -> Any:
    """A field that is there from `version` on, up to and including version `until`."""
    return FieldVersions(version, until, default, nullable_from, None, ignorable)


def until(version: int, *, default: Any = REQUIRED, nullable_from: int = 0, ignorable: bool = False) -> Any:
    """A field that `version` is the last to have."""
    return FieldVersions(0, version, default, nullable_from, None, ignorable)


def tagged(tag: int, *, since: int, default: Any, until: int = VERSION_MAX, ignorable: bool = False) -> Any:
    """A field in the tag section of flexible versions; it takes no bytes while it has its default."""
    return FieldVersions(since, until, default, 0, tag, ignorable)


class Field(msgspec.Struct, frozen=True):
    """One field over all versions."""

    name: str
    type: WireType
    nullable: bool
    history: FieldVersions

    def is_in(self, version: int) -> bool:
        return self.history.since <= version <= self.history.until

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable and version >= self.history.nullable_from

    @property
    def default(self) -> object:
        """What a reader sees in versions without the field."""
        return self.history.default if self.history.default is not REQUIRED else default_of(self.type)


class Schema(msgspec.Struct, frozen=True):
    """A message or part over all versions; parts leave the last three to the message around them."""

    name: str
    fields: tuple[Field, ...]
    api_key: int | None = None
    versions: range = range(0)
    flexible_from: int = VERSION_MAX

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from


class Part:
    """A group of fields inside a message; a message is one too."""

    __slots__ = ()
    __schema__: ClassVar[Schema]


def default_of(wire_type: WireType) -> object:
    """The value Kafka gives to a field whose table entry names no default."""
    match wire_type:
        case FixedType():
            return _FIXED_DEFAULTS.get(wire_type, 0)
        case SizedType():
            return "" if wire_type is SizedType.STRING else b""
        case ArrayOf():
            return ()
        case PartOf():
            return wire_type.part()


_FIXED_DEFAULTS: Final = {FixedType.BOOL: False, FixedType.FLOAT64: 0.0, FixedType.UUID: ZERO_UUID}
