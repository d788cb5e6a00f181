"""Python source under construction: lines, fresh names, and what the text must import."""

import contextlib
import struct
from collections.abc import Iterator

from penstock.core.wire.schema import Field, Part, Schema
from penstock.core.wire.types import ZERO_UUID, ArrayOf, Fixed, PartOf, Sized, WireType

_INDENT = "    "


class Source:
    """Text of one module with one generated function."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._prelude: dict[str, str] = {}
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self._lines.append(_INDENT * self._depth + text)

    @contextlib.contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Write `opening` and indent what follows."""
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """Answer a variable name that nothing else in the function uses."""
        self._names += 1
        return f"{stem}{self._names}"

    def needs(self, module: str, name: str) -> str:
        """Import `name`, and answer it."""
        self._prelude[name] = f"from {module} import {name}"
        return name

    def needs_part(self, part: type[Part]) -> str:
        return self.needs(part.__module__, part.__name__)

    def unpacker(self, letters: str) -> str:
        """Answer the name of a function that unpacks these format letters from a buffer."""
        return self._struct_method("unpack", letters, "unpack_from")

    def packer(self, letters: str) -> str:
        return self._struct_method("pack", letters, "pack")

    def _struct_method(self, verb: str, letters: str, method: str) -> str:
        self.needs("struct", "Struct")
        name = f"{verb}_{letters.replace('?', 'o')}"
        return self.constant(name, f'Struct(">{letters}").{method}')

    def constant(self, name: str, expression: str) -> str:
        """Define `name` before the function, and answer it."""
        self._prelude[name] = f"{name} = {expression}"
        return name

    def default(self, field: Field) -> str:
        """Answer an expression for what `field` is where the bytes leave it out."""
        value = field.default
        if value == ZERO_UUID:
            return self.needs("penstock.core.wire.types", "ZERO_UUID")
        if isinstance(value, Part):
            return self.constant(f"DEFAULT_{type(value).__name__}", f"{self.needs_part(type(value))}()")
        return repr(value)

    def text(self) -> str:
        imports = sorted(line for line in self._prelude.values() if line.startswith("from "))
        constants = [line for line in self._prelude.values() if not line.startswith("from ")]
        return "\n".join([*imports, "", *constants, "", "", *self._lines, ""])


def width(letters: str) -> int:
    return struct.calcsize(">" + letters)


def schema_of(wire_type: PartOf) -> Schema:
    schema = wire_type.part.__schema__
    assert isinstance(schema, Schema)
    return schema


def size_min(wire_type: WireType, version: int, flexible: bool) -> int:
    """The fewest bytes a value can take: what bounds the number of elements in the bytes that are left."""
    match wire_type:
        case Fixed():
            return width(wire_type.value)
        case Sized():
            return 1 if flexible else abs(wire_type.value)
        case ArrayOf():
            return 1 if flexible else 4
        case PartOf():
            fields = [f for f in schema_of(wire_type).fields if f.is_in(version) and f.history.tag is None]
            return flexible + sum(field_size_min(field, version, flexible) for field in fields)


def field_size_min(field: Field, version: int, flexible: bool) -> int:
    if isinstance(field.type, PartOf) and field.is_nullable_in(version):
        return 1
    return size_min(field.type, version, flexible)


def contains_records(schema: Schema) -> bool:
    """Whether a message carries record batches anywhere."""
    for field in schema.fields:
        wire_type = field.type.element if isinstance(field.type, ArrayOf) else field.type
        if wire_type is Sized.RECORDS or (
            isinstance(wire_type, PartOf) and contains_records(schema_of(wire_type))
        ):
            return True
    return False
