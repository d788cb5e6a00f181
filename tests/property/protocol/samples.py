"""Random messages of any class and version, for tests and fuzz targets."""

import struct
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from penstock.core.protocol.codec import Message
from penstock.core.protocol.generator import schema_of
from penstock.core.protocol.schema import ArrayOf, Field, FixedType, PartOf, SizedType, WireType

M = TypeVar("M", bound=Message)

_TEXTS = ("", "a", "topic-1", "größe", "主题", "x" * 126, "y" * 127, "é" * 200)
_BLOBS = (b"", b"\x00", b"\xff" * 5, bytes(range(256)))
_SIGNED_BITS = {FixedType.INT8: 8, FixedType.INT16: 16, FixedType.INT32: 32, FixedType.INT64: 64}
_UNSIGNED_BITS = {FixedType.UINT16: 16, FixedType.UINT32: 32}


def seeded(name: str) -> Random:
    """Answer a generator that is the same in every run, and another one for every name."""
    return Random(name)


# Tags from here on are Penstock's own.
OWN_TAGS = 10_000
ALL_TAGS = 2**31


def sample(random: Random, message: type[M], version: int, *, tags_below: int = ALL_TAGS) -> M:
    """Make a message whose fields differ from their defaults only where `version` has them."""
    return message(**_values(random, PartOf(message), version, tags_below))


def _values(random: Random, wire_type: PartOf, version: int, tags_below: int) -> dict[str, Any]:
    fields = schema_of(wire_type).fields
    return {field.name: _field(random, field, version, tags_below) for field in fields}


def _field(random: Random, field: Field, version: int, tags_below: int) -> Any:
    if not field.is_in(version) or (field.history.tag or 0) >= tags_below:
        return field.default
    if field.history.tag is not None and random.random() < 0.4:
        return field.default
    if field.is_nullable_in(version) and random.random() < 0.3:
        return None
    if field.name.endswith("error_code"):
        return random.randint(-1, 100)
    if field.name.endswith("_ms") and field.type in _SIGNED_BITS:
        return random.choice((0, 1, 30_000, 2**31 - 1))
    return _value(random, field.type, version, tags_below)


def _value(random: Random, wire_type: WireType, version: int, tags_below: int) -> Any:
    match wire_type:
        case FixedType():
            return _fixed(random, wire_type)
        case SizedType.STRING:
            return random.choice(_TEXTS)
        case SizedType():
            return random.choice(_BLOBS)
        case ArrayOf():
            return tuple(
                _value(random, wire_type.element, version, tags_below)
                for _ in range(random.choice((0, 1, 1, 2, 3)))
            )
        case PartOf():
            return wire_type.part(**_values(random, wire_type, version, tags_below))


def _fixed(random: Random, wire_type: FixedType) -> Any:
    if wire_type is FixedType.BOOL:
        return random.random() < 0.5
    if wire_type is FixedType.FLOAT64:
        return random.choice((0.0, -1.5, 1e300, struct.unpack(">d", b"\x3f" + random.randbytes(7))[0]))
    if wire_type is FixedType.UUID:
        return UUID(int=random.choice((0, random.getrandbits(128))))
    if wire_type in _UNSIGNED_BITS:
        return random.choice((0, 2 ** _UNSIGNED_BITS[wire_type] - 1, random.getrandbits(15)))
    half = 2 ** (_SIGNED_BITS[wire_type] - 1)
    return random.choice((0, -1, half - 1, -half, random.randrange(-half, half)))
