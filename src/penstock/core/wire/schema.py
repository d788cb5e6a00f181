"""What the table says about a field beside its type: its versions, default, tag.

A `Schema` is all that the generators read. Versions of a field count as those of the
message it is part of, nested parts included, just as in Kafka's own tables.
"""

from typing import Any, ClassVar, Final

import msgspec

from penstock.core.wire.types import ZERO_UUID, ArrayOf, Fixed, PartOf, Sized, WireType

VERSION_MAX: Final = 32767


class Required:
    """Stands where a field has no default: whoever makes the message must give a value."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = Required()


class History(msgspec.Struct, frozen=True):
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
    return History(version, until, default, nullable_from, None, ignorable)


def until(version: int, *, default: Any = REQUIRED, nullable_from: int = 0, ignorable: bool = False) -> Any:
    """A field that `version` is the last to have."""
    return History(0, version, default, nullable_from, None, ignorable)


def tagged(tag: int, *, since: int, default: Any, until: int = VERSION_MAX, ignorable: bool = False) -> Any:
    """A field in the tag section of flexible versions; it takes no bytes while it has its default."""
    return History(since, until, default, 0, tag, ignorable)


class Field(msgspec.Struct, frozen=True):
    """One field over all versions."""

    name: str
    type: WireType
    nullable: bool
    history: History

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
        case Fixed():
            return _FIXED_DEFAULTS.get(wire_type, 0)
        case Sized():
            return "" if wire_type is Sized.STRING else b""
        case ArrayOf():
            return ()
        case PartOf():
            return wire_type.part()


_FIXED_DEFAULTS: Final = {Fixed.BOOL: False, Fixed.FLOAT64: 0.0, Fixed.UUID: ZERO_UUID}
