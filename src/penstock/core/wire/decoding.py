"""Writes the decoder of one message in one version.

The function is one flat body: parts and arrays are inlined as nested loops, and runs of
fixed-width values, together with the length byte or word that ends the run, are one
`struct` call. Every count and length is compared with the bytes that are left before
anything is made of it. Parts cannot contain themselves, so the depth is that of the table.
"""

from penstock.core.wire.schema import Field, Part, Schema
from penstock.core.wire.source import Source, contains_records, schema_of, size_min, width
from penstock.core.wire.types import ArrayOf, Fixed, PartOf, Sized, WireType

_READING = "penstock.core.wire.reading"


def decoder_source(message: type[Part], version: int) -> str:
    """Answer the text of a module whose function `decode(b, p)` reads `message` in `version`."""
    return _DecoderWriter(message, version).write()


class _DecoderWriter:
    """Writes `b` for the buffer, `p` for the position in it, `end` for its length."""

    def __init__(self, message: type[Part], version: int) -> None:
        self._message = message
        self._version = version
        self._flexible = message.__schema__.is_flexible(version)
        self._source = Source()
        # Fixed-width values that are read by the next struct call: (variable, letter).
        self._run: list[tuple[str, str]] = []
        self._after_run: list[str] = []

    def write(self) -> str:
        source = self._source
        name = source.needs_part(self._message)
        buffer = source.needs(_READING, "Buffer")
        broken = source.needs(_READING, "broken")
        source.needs("struct", "error")
        with source.block(f"def decode(b: {buffer}, p: int) -> tuple[{name}, int]:"):
            with source.block("try:"):
                source.line("end = len(b)")
                if contains_records(self._message.__schema__):
                    source.line("view = memoryview(b)")
                made = self._part(PartOf(self._message), "")
                source.line(f"return {made}, p")
            with source.block("except (IndexError, UnicodeDecodeError, error) as cause:"):
                source.line(f'raise {broken}("{name} v{self._version}", cause) from None')
        return source.text()

    def _part(self, wire_type: PartOf, path: str) -> str:
        """Read a part's fields, and answer the expression that makes it."""
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
            case Fixed():
                return self._fixed(wire_type)
            case Sized():
                return self._sized(wire_type, nullable, path)
            case ArrayOf():
                return self._array(wire_type.element, nullable, path)
            case PartOf():
                return self._part(wire_type, f"{path}.")

    def _fixed(self, wire_type: Fixed) -> str:
        value = self._source.fresh("v")
        self._run.append((value, wire_type.value))
        if wire_type is Fixed.UUID:
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
                source.line(f"{length}, p = {source.needs(_READING, 'read_varint')}(b, p - 1)")
            source.line(f"{length} -= 1")
        refused = f"{length} != -1" if nullable else f"{length} < 0"
        if not nullable or not self._flexible:
            guard = f"if {length} < 0:" if not nullable else f"if {length} < 0 and {refused}:"
            with source.block(guard):
                source.line(f'raise {source.needs(_READING, "unexpected_null")}("{path}", {length})')
        return length, f"{length} >= 0"

    def _sized(self, wire_type: Sized, nullable: bool, path: str) -> str:
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

    def _slice(self, wire_type: Sized, length: str, value: str, stop: str, path: str) -> None:
        source = self._source
        source.line(f"{stop} = p + {length}")
        with source.block(f"if {stop} > end:"):
            source.line(f'raise {source.needs(_READING, "past_the_end")}("{path}", {length})')
        taken = {
            Sized.STRING: f'str(b[p:{stop}], "utf-8")',
            Sized.BYTES: f"bytes(b[p:{stop}])",
            Sized.RECORDS: f"view[p:{stop}]",
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
        if isinstance(element, Fixed) and element is not Fixed.UUID:
            self._fixed_elements(element, count, value)
            source.line(f"p += {count} * {element_bytes}")
            return
        items = source.fresh("items")
        source.line(f"{items} = []")
        with source.block(f"for _ in range({count}):"):
            made = self._value(element, False, path)
            self._flush()
            source.line(f"{items}.append({made})")
        source.line(f"{value} = tuple({items})")

    def _fixed_elements(self, element: Fixed, count: str, value: str) -> None:
        source = self._source
        limit, letter = source.needs(_READING, "SHORT_ARRAY"), element.value
        source.needs("struct", "unpack_from")
        short = source.constant(
            f"SHORT_{element.name}", f'{source.needs(_READING, "short_arrays")}("{letter}")'
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
            else:
                source.line(f"p = {source.needs(_READING, 'skip_tags')}(b, p - 1, end)")

    def _known_tags(self, known: list[Field], values: dict[str, str], count: str, path: str) -> None:
        source = self._source
        varint = source.needs(_READING, "read_varint")
        tag, size, stop = source.fresh("tag"), source.fresh("n"), source.fresh("q")
        source.line(f"{count}, p = {varint}(b, p - 1)")
        with source.block(f"if {count} * 2 > end - p:"):
            source.line(f'raise {source.needs(_READING, "impossible_count")}("{path}tags", {count}, end - p)')
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
