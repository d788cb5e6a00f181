"""How a written class becomes a message, and its codecs, generated on first use and kept.

    @message(api_key=12, versions=range(5), flexible_from=4)
    class HeartbeatRequest(Message):
        group_id: String                                            # in every version
        group_instance_id: NullableString = since(3, default=None)  # from version 3 on

The decorator puts a frozen, slotted class of the same fields in the place of the written
one, and attaches a `Schema` to it. The frozen class is a msgspec struct: made in 70 ns where
a frozen slotted dataclass of five fields takes 700.

The generator is imported with the first codec, so that `import penstock` stays quick.
"""

import inspect
import types
from collections.abc import Callable, Generator, Iterator
from typing import (
    Annotated,
    Any,
    Self,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

import msgspec

from penstock.core.model import Fault, ProtocolError
from penstock.core.protocol.primitives import Buffer
from penstock.core.protocol.schema import (
    REQUIRED,
    VERSION_MAX,
    ArrayOf,
    Field,
    FieldVersions,
    FixedType,
    Part,
    PartOf,
    Piece,
    Schema,
    SizedType,
    TypeWrapper,
    WireType,
    since,
    tagged,
    until,
)

M = TypeVar("M", bound=Part)
_decoders: dict[type[Part], "Decoders[Any]"] = {}
# What was generated so far; `encoder` and `gap_encoder` add to them.
ENCODERS: dict[tuple[type[Part], int], Callable[[Any, bytearray], None]] = {}
GAP_ENCODERS: dict[tuple[type[Part], int], Callable[[Any, bytearray], list[Piece]]] = {}
P = TypeVar("P", bound=Part)
T = TypeVar("T")
# A codec in steps: yields now and then, and returns what the other form returns.
Steps: TypeAlias = Generator[None, None, T]
_step_decoders: dict[tuple[type[Part], int], Callable[[Buffer, int, int], Steps[tuple[Any, int]]]] = {}
_step_encoders: dict[tuple[type[Part], int], Callable[[Any, bytearray], Steps[None]]] = {}
_step_gap_encoders: dict[tuple[type[Part], int], Callable[[Any, bytearray], Steps[list[Piece]]]] = {}
ENTRY_COUNTERS: dict[type[Part], Callable[[Any, int], bool]] = {}


class Decoders(dict[int, Callable[[Buffer, int], tuple[M, int]]]):
    """The decoders of one message by version, each generated on first use."""

    def __init__(self, message: type[M]) -> None:
        super().__init__()
        self._message = message

    def __missing__(self, version: int) -> Callable[[Buffer, int], tuple[M, int]]:
        _check_version(self._message, version)
        from penstock.core.protocol.generator import decoder_source

        found = self[version] = _compiled(decoder_source(self._message, version), "decode")
        return found


def decoders(message: type[M]) -> Decoders[M]:
    """Return the functions that read `message` from (buffer, position) and say where it ended, by version."""
    found = _decoders.get(message)
    if found is None:
        found = _decoders[message] = Decoders(message)
    return found


def decoder(message: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """Return the function that reads `message` from (buffer, position) and says where it ended."""
    return decoders(message)[version]


def encoder(message: type[M], version: int) -> Callable[[M, bytearray], None]:
    """Return the function that appends `message` in `version` to a bytearray."""
    found = ENCODERS.get((message, version))
    if found is None:
        _check_version(message, version)
        from penstock.core.protocol.generator import encoder_source

        found = ENCODERS[message, version] = _compiled(encoder_source(message, version), "encode")
    return found


def gap_encoder(message: type[M], version: int) -> Callable[[M, bytearray], list[Piece]]:
    """Return the function that returns `message` in pieces: bytes, records, bytes, records, bytes ...

    The first piece is the bytearray it is given, and records that are empty or null make no gap.
    """
    found = GAP_ENCODERS.get((message, version))
    if found is None:
        _check_version(message, version)
        from penstock.core.protocol.generator import gap_encoder_source

        found = GAP_ENCODERS[message, version] = _compiled(gap_encoder_source(message, version), "encode")
    return found


def decoder_in_steps(message: type[M], version: int) -> Callable[[Buffer, int, int], Steps[tuple[M, int]]]:
    """Return the function that reads a large `message` in steps.

    It is given how many entries the arrays of the message may have, and raises `TooManyEntries`.
    """
    found = _step_decoders.get((message, version))
    if found is None:
        _check_version(message, version)
        from penstock.core.protocol.generator import decoder_source

        text = decoder_source(message, version, in_steps=True)
        found = _step_decoders[message, version] = _compiled(text, "decode")
    return found


def encoder_in_steps(message: type[M], version: int) -> Callable[[M, bytearray], Steps[None]]:
    """Return the function that appends a large `message` to a bytearray in steps."""
    found = _step_encoders.get((message, version))
    if found is None:
        _check_version(message, version)
        from penstock.core.protocol.generator import encoder_source

        text = encoder_source(message, version, in_steps=True)
        found = _step_encoders[message, version] = _compiled(text, "encode")
    return found


def gap_encoder_in_steps(message: type[M], version: int) -> Callable[[M, bytearray], Steps[list[Piece]]]:
    """Return the function that returns a large `message` in pieces, made in steps."""
    found = _step_gap_encoders.get((message, version))
    if found is None:
        _check_version(message, version)
        from penstock.core.protocol.generator import gap_encoder_source

        text = gap_encoder_source(message, version, in_steps=True)
        found = _step_gap_encoders[message, version] = _compiled(text, "encode")
    return found


def entry_counter(message: type[M]) -> Callable[[M, int], bool]:
    """Return the function that says whether the arrays of a message have more elements than that."""
    found = ENTRY_COUNTERS.get(message)
    if found is None:
        from penstock.core.protocol.generator import entry_counter_source

        found = ENTRY_COUNTERS[message] = _compiled(entry_counter_source(message), "exceeds")
    return found


def exceeds_entries(value: Part, limit: int) -> bool:
    """Whether the arrays of a message have more than `limit` elements together."""
    return entry_counter(type(value))(value, limit)


def decode_whole(message: type[M], buffer: Buffer, version: int, position: int = 0) -> M:
    """Read a message that must end where `buffer` ends."""
    read, end = decoder(message, version)(buffer, position)
    if end != len(buffer):
        # Bytes that we do not understand may change the meaning of the message: raise.
        raise ProtocolError(f"{message.__name__} v{version}: {len(buffer) - end} bytes follow the message")
    return read


def _check_version(message: type[Part], version: int) -> None:
    if version not in message.__schema__.versions:
        raise ProtocolError(f"{message.__name__} has no version {version}", Fault.OURS)


def _compiled(text: str, name: str) -> Callable[..., Any]:
    namespace: dict[str, Any] = {}
    exec(compile(text, f"<generated {name}>", "exec"), namespace)
    return cast(Callable[..., Any], namespace[name])


class Message(Part):
    """One message in all its versions; the code for a version is made when it is first used."""

    __slots__ = ()

    def encode(self, version: int) -> bytes:
        """Return the bytes of this message in `version`."""
        out = bytearray()
        encoder(type(self), version)(self, out)
        return bytes(out)

    @classmethod
    def decode(cls, buffer: Buffer, version: int, position: int = 0) -> Self:
        """Read the message that fills `buffer` from `position` to its end; a byte left over is an error."""
        return decode_whole(cls, buffer, version, position)


class FrozenPart(Part, msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What parts are at run time. Frozen values form no cycles, so the collector can leave them alone."""


class FrozenMessage(Message, msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What messages are at run time."""


AnyMessage = TypeVar("AnyMessage", bound=Message)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(since, until, tagged))
def message(
    *, versions: range, api_key: int | None = None, flexible_from: int = VERSION_MAX
) -> Callable[[type[AnyMessage]], type[AnyMessage]]:
    """Make a message of a class whose annotations are wire types in the order of the wire."""

    def make(written: type[AnyMessage]) -> type[AnyMessage]:
        fields = tuple(_fields_of(written))
        schema = Schema(written.__name__, fields, api_key, versions, flexible_from)
        return _freeze(written, FrozenMessage, schema)

    return make


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(since, until, tagged))
def part(written: type[P]) -> type[P]:
    """Make a part of a class, likewise."""
    return _freeze(written, FrozenPart, Schema(written.__name__, tuple(_fields_of(written))))


def _freeze(written: type[P], frozen_base: type[msgspec.Struct], schema: Schema) -> type[P]:
    columns: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        (field.name, Any) if field.history.default is REQUIRED else (field.name, Any, field.history.default)
        for field in schema.fields
    ]
    namespace = {"__doc__": written.__doc__, "__schema__": schema, "__qualname__": written.__qualname__}
    frozen: Any = msgspec.defstruct(
        written.__name__,
        columns,
        bases=(frozen_base,),
        namespace=namespace,
        module=written.__module__,
        frozen=True,
        gc=False,
        kw_only=True,
    )
    return frozen  # type: ignore[no-any-return]  # it has the fields and the methods of `written`


def _fields_of(written: type) -> Iterator[Field]:
    for name, annotation in inspect.get_annotations(written).items():
        given = written.__dict__.get(name, REQUIRED)
        history = given if isinstance(given, FieldVersions) else FieldVersions(default=given)
        wire_type, nullable = _read_annotation(annotation)
        yield Field(name, wire_type, nullable, history)


def _read_annotation(annotation: Any) -> tuple[WireType, bool]:
    """Take `Annotated[tuple[Annotated[int, INT32], ...], ARRAY]` apart."""
    if get_origin(annotation) is not Annotated:
        return PartOf(annotation), False
    inside, *marks = get_args(annotation)
    nullable = TypeWrapper.NULLABLE in marks
    if nullable and get_origin(inside) in {Union, types.UnionType}:
        inside = next(choice for choice in get_args(inside) if choice is not types.NoneType)
    for mark in marks:
        if isinstance(mark, FixedType | SizedType):
            return mark, nullable
    if TypeWrapper.ARRAY in marks:
        element, _ = _read_annotation(get_args(inside)[0])
        return ArrayOf(element), nullable
    return PartOf(inside), nullable
