"""Writes the source of the encoder and the decoder of one message in one version.

Each function is one flat body: parts and arrays are inlined as nested loops, and runs of
fixed-width values, together with the length byte or word that ends the run, are one
`struct` call. In a decoder, every count and length is compared with the bytes that are left
before anything is made of it. Parts cannot contain themselves, so the depth is that of the table.

Encoders have two forms. The plain one appends everything to one bytearray. The one with gaps
leaves record batches out and returns a list in which small buffers and the records between
them alternate, so that a server can send the records from a file without touching them.

Each of these has a form in steps for large messages: a generator that yields after every few
elements of an array, so that a server can do something else meanwhile, and returns what the other
returns. A decoder in steps counts the elements of all arrays, and refuses more than it was allowed
before it makes them.
"""

import contextlib
import struct
from collections.abc import Iterator

from penstock.core.protocol.schema import (
    ZERO_UUID,
    ArrayOf,
    Field,
    FixedType,
    Part,
    PartOf,
    Schema,
    SizedType,
    WireType,
)

_INDENT = "    "
# A codec in steps yields after so many elements of an array: a power of two.
ELEMENTS_PER_STEP = 16
_WRITING = "penstock.core.protocol.primitives"
_READING = "penstock.core.protocol.primitives"


class GeneratedSource:
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
        """Return a variable name that nothing else in the function uses."""
        self._names += 1
        return f"{stem}{self._names}"

    def needs(self, module: str, name: str) -> str:
        """Import `name`, and return it."""
        self._prelude[name] = f"from {module} import {name}"
        return name

    def needs_part(self, part: type[Part]) -> str:
        return self.needs(part.__module__, part.__name__)

    def unpacker(self, letters: str) -> str:
        """Return the name of a function that unpacks these format letters from a buffer."""
        return self._struct_method("unpack", letters, "unpack_from")

    def packer(self, letters: str) -> str:
        return self._struct_method("pack", letters, "pack")

    def _struct_method(self, verb: str, letters: str, method: str) -> str:
        self.needs("struct", "Struct")
        name = f"{verb}_{letters.replace('?', 'o')}"
        return self.constant(name, f'Struct(">{letters}").{method}')

    def constant(self, name: str, expression: str) -> str:
        """Define `name` before the function, and return it."""
        self._prelude[name] = f"{name} = {expression}"
        return name

    def default(self, field: Field) -> str:
        """Return an expression for what `field` is where the bytes leave it out."""
        value = field.default
        if value == ZERO_UUID:
            return self.needs("penstock.core.protocol.schema", "ZERO_UUID")
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
        case FixedType():
            return width(wire_type.value)
        case SizedType():
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
        if wire_type is SizedType.RECORDS or (
            isinstance(wire_type, PartOf) and contains_records(schema_of(wire_type))
        ):
            return True
    return False


def encoder_source(message: type[Part], version: int, *, in_steps: bool = False) -> str:
    """Return the text of a module whose function `encode(m, w)` appends `message` in `version` to `w`."""
    return _EncoderWriter(message, version, in_steps=in_steps).write()


def gap_encoder_source(message: type[Part], version: int, *, in_steps: bool = False) -> str:
    """Likewise for `encode(m, w)` that returns the pieces: `w`, records, bytes, records, bytes ..."""
    return _EncoderWriter(message, version, with_gaps=True, in_steps=in_steps).write()


class _EncoderWriter:
    """Writes `m` for the message; `w`, or another name inside a tagged field, for what is appended to."""

    def __init__(
        self, message: type[Part], version: int, with_gaps: bool = False, in_steps: bool = False
    ) -> None:
        self._with_gaps = with_gaps
        self._in_steps = in_steps
        self._message = message
        self._version = version
        self._flexible = message.__schema__.is_flexible(version)
        self._source = GeneratedSource()
        self._out = "w"
        # Fixed-width values that go into the next struct call: (expression, letter).
        self._run: list[tuple[str, str]] = []

    def write(self) -> str:
        source = self._source
        name = source.needs_part(self._message)
        unfit = source.needs(_WRITING, "unencodable")
        source.needs("struct", "error")
        answer = (
            f"list[{source.needs('penstock.core.protocol.schema', 'Piece')}]" if self._with_gaps else "None"
        )
        returned = _steps_of(source, answer) if self._in_steps else answer
        with source.block(f"def encode(m: {name}, w: bytearray) -> {returned}:"):
            with source.block("try:"):
                if self._with_gaps:
                    source.line(f"pieces: {answer} = []")
                if self._in_steps:
                    source.line("yield")
                self._part(PartOf(self._message), "m")
                self._flush()
                source.line("return [*pieces, w]" if self._with_gaps else "return")
            # The last two are what None does in a place where the version allows no null.
            with source.block("except (UnicodeEncodeError, error, TypeError, AttributeError) as cause:"):
                source.line(f'raise {unfit}("{name} v{self._version}", cause) from None')
        return source.text()

    def _part(self, wire_type: PartOf, owner: str) -> None:
        schema = schema_of(wire_type)
        for field in schema.fields:
            if not field.is_in(self._version):
                self._refuse_if_lost(field, owner)
            elif field.history.tag is None:
                self._field(field, f"{owner}.{field.name}")
        if self._flexible:
            self._tags(schema, owner)

    def _refuse_if_lost(self, field: Field, owner: str) -> None:
        if field.history.ignorable:
            return
        source = self._source
        with source.block(f"if {self._differs(field, f'{owner}.{field.name}')}:"):
            absent = source.needs(_WRITING, "unsupported_field")
            source.line(f'raise {absent}("{self._message.__name__} v{self._version}", "{field.name}")')

    def _differs(self, field: Field, value: str) -> str:
        """A condition: `value` is not the field's default."""
        default = field.default
        if default is None:
            return f"{value} is not None"
        if default == () or default == b"" or default == "":
            return f"{value} is None or len({value})" if field.nullable else f"len({value})"
        if default is False or default is True:
            return f"not {value}" if default else value
        return f"{value} != {self._source.default(field)}"

    def _field(self, field: Field, value: str) -> None:
        nullable = field.is_nullable_in(self._version)
        if isinstance(field.type, PartOf) and nullable:
            self._nullable_part(field.type, value)
        else:
            self._value(field.type, nullable, value)

    def _value(self, wire_type: WireType, nullable: bool, value: str) -> None:
        match wire_type:
            case FixedType():
                self._run.append(
                    (f"{value}.bytes" if wire_type is FixedType.UUID else value, wire_type.value)
                )
            case SizedType():
                self._sized(wire_type, nullable, value)
            case ArrayOf():
                self._array(wire_type.element, nullable, value)
            case PartOf():
                self._part(wire_type, value)

    def _flush(self) -> None:
        """Write one struct call for the run."""
        if self._run:
            self._source.line(self._packed(self._run))
        self._run.clear()

    def _packed(self, run: list[tuple[str, str]]) -> str:
        letters = "".join(letter for _, letter in run)
        if letters == "B":
            return f"{self._out}.append({run[0][0]})"
        if letters == "x":
            return f"{self._out}.append(0)"
        arguments = ", ".join(expression for expression, _ in run if expression)
        return f"{self._out} += {self._source.packer(letters)}({arguments})"

    def _length(self, length: str, bytes_wide: int) -> None:
        """Write a length, together with the run before it when it takes one byte."""
        source = self._source
        if not self._flexible:
            self._run.append((length, {2: "h", 4: "i"}[bytes_wide]))
            self._flush()
            return
        with source.block(f"if {length} < 127:"):
            source.line(self._packed([*self._run, (f"{length} + 1", "B")]))
        # Two bytes without a call: the size of small batches.
        low, high = f"{length} + 1 & 0x7F | 0x80", f"{length} + 1 >> 7"
        with source.block(f"elif {length} < 0x3FFF:"):
            source.line(self._packed([*self._run, (low, "B"), (high, "B")]))
        with source.block("else:"):
            if self._run:
                source.line(self._packed(self._run))
            source.line(f"{source.needs(_WRITING, 'write_varint')}({self._out}, {length} + 1)")
        self._run.clear()

    def _sized(self, wire_type: SizedType, nullable: bool, value: str) -> None:
        source = self._source
        body, length = source.fresh("s"), source.fresh("n")
        converted = ".encode()" if wire_type is SizedType.STRING else ""
        source.line(f"{body} = {value}")
        if nullable:
            with source.block(f"if {body} is None:"):
                source.line(f"{body}, {length} = b'', -1")
            with source.block("else:"):
                if converted:
                    source.line(f"{body} = {body}{converted}")
                source.line(f"{length} = len({body})")
        else:
            if converted:
                source.line(f"{body} = {body}{converted}")
            source.line(f"{length} = len({body})")
        self._length(length, abs(wire_type.value))
        if self._with_gaps and wire_type is SizedType.RECORDS:
            with source.block(f"if {length} > 0:"):
                source.line(f"pieces += ({self._out}, {body})")
                source.line(f"{self._out} = bytearray()")
        else:
            source.line(f"{self._out} += {body}")

    def _array(self, element: WireType, nullable: bool, value: str) -> None:
        source = self._source
        items, count = source.fresh("items"), source.fresh("n")
        source.line(f"{items} = {value}")
        if nullable:
            with source.block(f"if {items} is None:"):
                source.line(f"{items}, {count} = (), -1")
            with source.block("else:"):
                source.line(f"{count} = len({items})")
        else:
            source.line(f"{count} = len({items})")
        self._length(count, 4)
        if isinstance(element, FixedType) and element is not FixedType.UUID:
            self._fixed_elements(element, items, count)
            return
        item = source.fresh("m")
        if not self._in_steps:
            with source.block(f"for {item} in {items}:"):
                self._value(element, False, item)
                self._flush()
            return
        number = source.fresh("i")
        with source.block(f"for {number}, {item} in enumerate({items}):"):
            _end_step(source, number)
            self._value(element, False, item)
            self._flush()

    def _fixed_elements(self, element: FixedType, items: str, count: str) -> None:
        source = self._source
        limit, letter = source.needs("penstock.core.protocol.primitives", "SHORT_ARRAY"), element.value
        source.needs("struct", "pack")
        short = source.constant(
            f"SHORT_{element.name}", f'{source.needs(_WRITING, "pack_short_arrays")}("{letter}")'
        )
        with source.block(f"if 0 < {count} < {limit}:"):
            source.line(f"{self._out} += {short}[{count}](*{items})")
        with source.block(f"elif {count} > 0:"):
            source.line(f'{self._out} += pack(f">{{{count}}}{letter}", *{items})')

    def _nullable_part(self, wire_type: PartOf, value: str) -> None:
        source = self._source
        self._flush()
        owner = source.fresh("m")
        source.line(f"{owner} = {value}")
        with source.block(f"if {owner} is None:"):
            source.line(f"{self._out}.append(255)")
        with source.block("else:"):
            self._run.append(("1", "B"))
            self._part(wire_type, owner)
            self._flush()

    def _tags(self, schema: Schema, owner: str) -> None:
        known = [f for f in schema.fields if f.history.tag is not None and f.is_in(self._version)]
        if not known:
            self._run.append(("", "x"))
            return
        source = self._source
        count, section = source.fresh("n"), source.fresh("tags")
        source.line(f"{count} = 0")
        source.line(f"{section} = bytearray()")
        self._flush()
        for field in sorted(known, key=lambda f: f.history.tag or 0):
            with source.block(f"if {self._differs(field, f'{owner}.{field.name}')}:"):
                source.line(f"{count} += 1")
                self._tagged(field, f"{owner}.{field.name}", section)
        self._run.append((count, "B"))
        self._flush()
        source.line(f"{self._out} += {section}")

    def _tagged(self, field: Field, value: str, section: str) -> None:
        source = self._source
        varint = source.needs(_WRITING, "write_varint")
        outside, self._out = self._out, source.fresh("w")
        source.line(f"{self._out} = bytearray()")
        self._field(field, value)
        self._flush()
        source.line(f"{varint}({section}, {field.history.tag})")
        source.line(f"{varint}({section}, len({self._out}))")
        source.line(f"{section} += {self._out}")
        self._out = outside


def _steps_of(source: GeneratedSource, returned: str) -> str:
    """The annotation of a generator that returns `returned`."""
    return f"{source.needs('collections.abc', 'Generator')}[None, None, {returned}]"


def _end_step(source: GeneratedSource, number: str) -> None:
    """Yield once for every ELEMENTS_PER_STEP elements of an array."""
    mask = ELEMENTS_PER_STEP - 1
    with source.block(f"if {number} & {mask} == {mask}:"):
        source.line("yield")


def entry_counter_source(message: type[Part]) -> str:
    """Return the text of a module whose function `exceeds(m, limit)` says whether `m` has more entries.

    Entries are the elements of all arrays, in whatever version.
    """
    source = GeneratedSource()
    name = source.needs_part(message)
    with source.block(f"def exceeds(m: {name}, limit: int) -> bool:"):
        _count_entries(source, message.__schema__, "m")
        source.line("return False")
    return source.text()


def _count_entries(source: GeneratedSource, schema: Schema, owner: str) -> None:
    for field in schema.fields:
        element = field.type.element if isinstance(field.type, ArrayOf) else None
        inner = field.type if element is None else element
        nested = schema_of(inner) if isinstance(inner, PartOf) and contains_arrays(schema_of(inner)) else None
        if element is None and nested is None:
            continue
        value = source.fresh("m")
        source.line(f"{value} = {owner}.{field.name}")
        with source.block(f"if {value}:" if element is not None else f"if {value} is not None:"):
            if element is None:
                assert nested is not None
                _count_entries(source, nested, value)
                continue
            source.line(f"limit -= len({value})")
            with source.block("if limit < 0:"):
                source.line("return True")
            if nested is not None:
                item = source.fresh("m")
                with source.block(f"for {item} in {value}:"):
                    _count_entries(source, nested, item)


def contains_arrays(schema: Schema) -> bool:
    """Whether a message or part has an array anywhere."""
    for field in schema.fields:
        if isinstance(field.type, ArrayOf) or (
            isinstance(field.type, PartOf) and contains_arrays(schema_of(field.type))
        ):
            return True
    return False


def decoder_source(message: type[Part], version: int, *, in_steps: bool = False) -> str:
    """Return the text of a module whose function `decode(b, p)` reads `message` in `version`.

    In steps it is `decode(b, p, left)`, and refuses a message whose arrays have more than `left` elements.
    """
    return _DecoderWriter(message, version, in_steps=in_steps).write()


class _DecoderWriter:
    """Writes `b` for the buffer, `p` for the position in it, `end` for its length."""

    def __init__(self, message: type[Part], version: int, *, in_steps: bool) -> None:
        self._in_steps = in_steps
        self._message = message
        self._version = version
        self._flexible = message.__schema__.is_flexible(version)
        self._source = GeneratedSource()
        # Fixed-width values that are read by the next struct call: (variable, letter).
        self._run: list[tuple[str, str]] = []
        self._after_run: list[str] = []

    def write(self) -> str:
        source = self._source
        name = source.needs_part(self._message)
        buffer = source.needs(_READING, "Buffer")
        broken = source.needs(_READING, "broken")
        source.needs("struct", "error")
        returned, more = f"tuple[{name}, int]", ""
        if self._in_steps:
            returned, more = _steps_of(source, returned), ", left: int"
        with source.block(f"def decode(b: {buffer}, p: int{more}) -> {returned}:"):
            with source.block("try:"):
                if self._in_steps:
                    source.line("yield")
                source.line("end = len(b)")
                if contains_records(self._message.__schema__):
                    source.line("view = memoryview(b)")
                made = self._part(PartOf(self._message), "")
                source.line(f"return {made}, p")
            with source.block("except (IndexError, UnicodeDecodeError, error) as cause:"):
                source.line(f'raise {broken}("{name} v{self._version}", cause) from None')
        return source.text()

    def _part(self, wire_type: PartOf, path: str) -> str:
        """Read a part's fields, and return the expression that makes it."""
        schema = schema_of(wire_type)
        values: dict[str, str] = {}
        for field in schema.fields:
            if field.is_in(self._version) and field.history.tag is None:
                values[field.name] = self._field(field, f"{path}{field.name}")
        if self._flexible:
            self._tags(schema, values, path)
        self._flush()
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{self._source.needs_part(wire_type.part)}({arguments})"

    def _field(self, field: Field, path: str) -> str:
        nullable = field.is_nullable_in(self._version)
        if isinstance(field.type, PartOf) and nullable:
            return self._nullable_part(field.type, path)
        return self._value(field.type, nullable, path)

    def _value(self, wire_type: WireType, nullable: bool, path: str) -> str:
        match wire_type:
            case FixedType():
                return self._fixed(wire_type)
            case SizedType():
                return self._sized(wire_type, nullable, path)
            case ArrayOf():
                return self._array(wire_type.element, nullable, path)
            case PartOf():
                return self._part(wire_type, f"{path}.")

    def _fixed(self, wire_type: FixedType) -> str:
        value = self._source.fresh("v")
        self._run.append((value, wire_type.value))
        if wire_type is FixedType.UUID:
            self._after_run.append(f"{value} = {self._source.needs(_READING, 'uuid_of')}({value})")
        return value

    def _flush(self) -> None:
        """Write the struct call for the fixed-width values seen since the last one."""
        if not self._run:
            return
        source = self._source
        letters = "".join(letter for _, letter in self._run)
        targets = ", ".join(variable for variable, _ in self._run)
        comma = "," if len(self._run) == 1 else ""
        if letters == "B":
            source.line(f"{targets} = b[p]")
        else:
            source.line(f"{targets}{comma} = {source.unpacker(letters)}(b, p)")
        source.line(f"p += {width(letters)}")
        for line in self._after_run:
            source.line(line)
        self._run.clear()
        self._after_run.clear()

    def _length(self, bytes_wide: int, nullable: bool, path: str) -> tuple[str, str]:
        """Read a length or count: the variable, and the condition under which there is a value.

        A varint holds the length plus one; its first byte joins the run before it.
        """
        source = self._source
        length = source.fresh("n")
        self._run.append((length, "B" if self._flexible else {2: "h", 4: "i"}[bytes_wide]))
        self._flush()
        if self._flexible:
            with source.block(f"if {length} > 127:"):
                # Two bytes without a call: the size of a batch, as a rule.
                with source.block("if b[p] < 128:"):
                    source.line(f"{length} += (b[p] << 7) - 128")
                    source.line("p += 1")
                with source.block("else:"):
                    source.line(f"{length}, p = {source.needs(_READING, 'read_varint')}(b, p - 1)")
            source.line(f"{length} -= 1")
        refused = f"{length} != -1" if nullable else f"{length} < 0"
        if not nullable or not self._flexible:
            guard = f"if {length} < 0:" if not nullable else f"if {length} < 0 and {refused}:"
            with source.block(guard):
                source.line(f'raise {source.needs(_READING, "unexpected_null")}("{path}", {length})')
        return length, f"{length} >= 0"

    def _sized(self, wire_type: SizedType, nullable: bool, path: str) -> str:
        source = self._source
        length, there = self._length(abs(wire_type.value), nullable, path)
        value, stop = source.fresh("v"), source.fresh("q")
        if not nullable:
            self._slice(wire_type, length, value, stop, path)
            return value
        with source.block(f"if {there}:"):
            self._slice(wire_type, length, value, stop, path)
        with source.block("else:"):
            source.line(f"{value} = None")
        return value

    def _slice(self, wire_type: SizedType, length: str, value: str, stop: str, path: str) -> None:
        source = self._source
        source.line(f"{stop} = p + {length}")
        with source.block(f"if {stop} > end:"):
            source.line(f'raise {source.needs(_READING, "past_the_end")}("{path}", {length})')
        taken = {
            SizedType.STRING: f'str(b[p:{stop}], "utf-8")',
            SizedType.BYTES: f"bytes(b[p:{stop}])",
            SizedType.RECORDS: f"view[p:{stop}]",
        }
        source.line(f"{value} = {taken[wire_type]}")
        source.line(f"p = {stop}")

    def _array(self, element: WireType, nullable: bool, path: str) -> str:
        source = self._source
        count, there = self._length(4, nullable, path)
        value = source.fresh("v")
        if not nullable:
            self._elements(element, count, value, path)
            return value
        with source.block(f"if {there}:"):
            self._elements(element, count, value, path)
        with source.block("else:"):
            source.line(f"{value} = None")
        return value

    def _elements(self, element: WireType, count: str, value: str, path: str) -> None:
        source = self._source
        # An element without bytes would let a count ask for any amount of memory.
        element_bytes = max(1, size_min(element, self._version, self._flexible))
        with source.block(f"if {count} * {element_bytes} > end - p:"):
            source.line(f'raise {source.needs(_READING, "impossible_count")}("{path}", {count}, end - p)')
        if self._in_steps:
            source.line(f"left -= {count}")
            with source.block("if left < 0:"):
                source.line(f'raise {source.needs(_READING, "too_many_entries")}("{path}")')
        if isinstance(element, FixedType) and element is not FixedType.UUID:
            self._fixed_elements(element, count, value)
            source.line(f"p += {count} * {element_bytes}")
            return
        items = source.fresh("items")
        source.line(f"{items} = []")
        number = source.fresh("i") if self._in_steps else "_"
        with source.block(f"for {number} in range({count}):"):
            if self._in_steps:
                _end_step(source, number)
            made = self._value(element, False, path)
            self._flush()
            source.line(f"{items}.append({made})")
        source.line(f"{value} = tuple({items})")

    def _fixed_elements(self, element: FixedType, count: str, value: str) -> None:
        source = self._source
        limit, letter = source.needs(_READING, "SHORT_ARRAY"), element.value
        source.needs("struct", "unpack_from")
        short = source.constant(
            f"SHORT_{element.name}", f'{source.needs(_READING, "unpack_short_arrays")}("{letter}")'
        )
        with source.block(f"if {count} < {limit}:"):
            source.line(f"{value} = {short}[{count}](b, p)")
        with source.block("else:"):
            source.line(f'{value} = unpack_from(f">{{{count}}}{letter}", b, p)')

    def _nullable_part(self, wire_type: PartOf, path: str) -> str:
        """A byte says whether the part is there: negative for null."""
        source = self._source
        value, mark = source.fresh("v"), source.fresh("n")
        self._run.append((mark, "b"))
        self._flush()
        with source.block(f"if {mark} >= 0:"):
            made = self._part(wire_type, f"{path}.")
            source.line(f"{value} = {made}")
        with source.block("else:"):
            source.line(f"{value} = None")
        return value

    def _tags(self, schema: Schema, values: dict[str, str], path: str) -> None:
        """Read the tag section; its count byte joins the run before it, and is nearly always 0."""
        source = self._source
        known = [f for f in schema.fields if f.history.tag is not None and f.is_in(self._version)]
        for field in known:
            values[field.name] = source.fresh("v")
            source.line(f"{values[field.name]} = {source.default(field)}")
        count = source.fresh("n")
        self._run.append((count, "B"))
        self._flush()
        with source.block(f"if {count}:"):
            if known:
                self._known_tags(known, values, count, path)
            elif self._in_steps:
                source.line(f"p, left = {source.needs(_READING, 'skip_counted_tags')}(b, p - 1, end, left)")
            else:
                source.line(f"p = {source.needs(_READING, 'skip_tags')}(b, p - 1, end)")

    def _known_tags(self, known: list[Field], values: dict[str, str], count: str, path: str) -> None:
        source = self._source
        varint = source.needs(_READING, "read_varint")
        tag, size, stop = source.fresh("tag"), source.fresh("n"), source.fresh("q")
        source.line(f"{count}, p = {varint}(b, p - 1)")
        with source.block(f"if {count} * 2 > end - p:"):
            source.line(f'raise {source.needs(_READING, "impossible_count")}("{path}tags", {count}, end - p)')
        if self._in_steps:
            # Unknown ones, or known ones again and again.
            with source.block(f"if {count} > {len(known)}:"):
                source.line(f"left -= {count} - {len(known)}")
                with source.block("if left < 0:"):
                    source.line(f'raise {source.needs(_READING, "too_many_entries")}("{path}tags")')
        with source.block(f"for _ in range({count}):"):
            source.line(f"{tag}, p = {varint}(b, p)")
            source.line(f"{size}, p = {varint}(b, p)")
            source.line(f"{stop} = p + {size}")
            with source.block(f"if {stop} > end:"):
                source.line(f'raise {source.needs(_READING, "past_the_end")}("{path}tags", {size})')
            for index, field in enumerate(known):
                with source.block(f"{'el' if index else ''}if {tag} == {field.history.tag}:"):
                    made = self._field(field, f"{path}{field.name}")
                    self._flush()
                    source.line(f"{values[field.name]} = {made}")
            with source.block("else:"):
                source.line(f"p = {stop}")
            with source.block(f"if p != {stop}:"):
                source.line(f'raise {source.needs(_READING, "tag_mismatch")}("{path}tags")')
