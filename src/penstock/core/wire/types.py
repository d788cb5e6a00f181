"""The words a message table is written in: `Int32`, `String`, `Array[...]` and the rest.

To a type checker each of them is an ordinary Python type (`Int32` is `int`); the
annotation carries what the generator needs to know. A field that can be null in any
of its versions is annotated with the `Nullable...` twin.
"""

import enum
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar
from uuid import UUID

import msgspec

T = TypeVar("T")


class Fixed(enum.Enum):
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


class Sized(enum.Enum):
    """A value that says its own length; the value is the width of that length where it is not a varint."""

    STRING = 2
    BYTES = 4
    RECORDS = -4


class Shape(enum.Enum):
    """How an annotation wraps what it annotates."""

    ARRAY = "array"
    NULLABLE = "nullable"


class ArrayOf(msgspec.Struct, frozen=True):
    """An array type: what its elements are."""

    element: "WireType"


class PartOf(msgspec.Struct, frozen=True):
    """A nested part: the class that describes it."""

    part: type[Any]


WireType: TypeAlias = Fixed | Sized | ArrayOf | PartOf

Bool: TypeAlias = Annotated[bool, Fixed.BOOL]
Int8: TypeAlias = Annotated[int, Fixed.INT8]
Int16: TypeAlias = Annotated[int, Fixed.INT16]
UInt16: TypeAlias = Annotated[int, Fixed.UINT16]
Int32: TypeAlias = Annotated[int, Fixed.INT32]
UInt32: TypeAlias = Annotated[int, Fixed.UINT32]
Int64: TypeAlias = Annotated[int, Fixed.INT64]
Float64: TypeAlias = Annotated[float, Fixed.FLOAT64]
Uuid: TypeAlias = Annotated[UUID, Fixed.UUID]
String: TypeAlias = Annotated[str, Sized.STRING]
NullableString: TypeAlias = Annotated[str | None, Sized.STRING, Shape.NULLABLE]
Bytes: TypeAlias = Annotated[bytes, Sized.BYTES]
NullableBytes: TypeAlias = Annotated[bytes | None, Sized.BYTES, Shape.NULLABLE]


class Span(Protocol):
    """Record bytes that are somewhere else, in a file for instance: all the encoder needs is how many."""

    def __len__(self) -> int: ...


# What an encoder with gaps answers: its own small buffers, and the records between them.
Piece: TypeAlias = bytes | bytearray | memoryview | Span

# Record batches stay where they are: decoding answers a view into the frame.
Records: TypeAlias = Annotated[bytes | memoryview, Sized.RECORDS]
NullableRecords: TypeAlias = Annotated[bytes | memoryview | None, Sized.RECORDS, Shape.NULLABLE]
# Records on their way out may be a span; a decoder never answers one.
SentRecords: TypeAlias = Annotated[bytes | memoryview | Span, Sized.RECORDS]
NullableSentRecords: TypeAlias = Annotated[bytes | memoryview | Span | None, Sized.RECORDS, Shape.NULLABLE]

Array: TypeAlias = Annotated[tuple[T, ...], Shape.ARRAY]
NullableArray: TypeAlias = Annotated[tuple[T, ...] | None, Shape.ARRAY, Shape.NULLABLE]
Nullable: TypeAlias = Annotated[T | None, Shape.NULLABLE]

ZERO_UUID = UUID(int=0)
