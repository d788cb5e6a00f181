"""Writes the encoder of one message in one version; the mirror image of `decoding`.

There are two forms. The plain one appends everything to one bytearray. The one with gaps
leaves record batches out and answers a list in which small buffers and the records between
them alternate, so that a gateway can send the records from a file without touching them.
"""

from penstock.core.wire.schema import Field, Part, Schema
from penstock.core.wire.source import Source, schema_of
from penstock.core.wire.types import ArrayOf, Fixed, PartOf, Sized, WireType

_WRITING = "penstock.core.wire.writing"


def encoder_source(message: type[Part], version: int) -> str:
    """Answer the text of a module whose function `encode(m, w)` appends `message` in `version` to `w`."""
    return _EncoderWriter(message, version).write()


def gap_encoder_source(message: type[Part], version: int) -> str:
    """Likewise for `encode(m, w)` that answers the pieces: `w`, records, bytes, records, bytes ..."""
    return _EncoderWriter(message, version, with_gaps=True).write()


class _EncoderWriter:
    """Writes `m` for the message; `w`, or another name inside a tagged field, for what is appended to."""

    def __init__(self, message: type[Part], version: int, with_gaps: bool = False) -> None:
        self._with_gaps = with_gaps
        self._message = message
        self._version = version
        self._flexible = message.__schema__.is_flexible(version)
        self._source = Source()
        self._out = "w"
        # Fixed-width values that go into the next struct call: (expression, letter).
        self._run: list[tuple[str, str]] = []

    def write(self) -> str:
        source = self._source
        name = source.needs_part(self._message)
        unfit = source.needs(_WRITING, "unfit")
        source.needs("struct", "error")
        answer = f"list[{source.needs('penstock.core.wire.types', 'Piece')}]" if self._with_gaps else "None"
        with source.block(f"def encode(m: {name}, w: bytearray) -> {answer}:"):
            with source.block("try:"):
                if self._with_gaps:
                    source.line(f"pieces: {answer} = []")
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
            absent = source.needs(_WRITING, "absent")
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
            case Fixed():
                self._run.append((f"{value}.bytes" if wire_type is Fixed.UUID else value, wire_type.value))
            case Sized():
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
        with source.block("else:"):
            if self._run:
                source.line(self._packed(self._run))
            source.line(f"{source.needs(_WRITING, 'write_varint')}({self._out}, {length} + 1)")
        self._run.clear()

    def _sized(self, wire_type: Sized, nullable: bool, value: str) -> None:
        source = self._source
        body, length = source.fresh("s"), source.fresh("n")
        converted = ".encode()" if wire_type is Sized.STRING else ""
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
        if self._with_gaps and wire_type is Sized.RECORDS:
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
        if isinstance(element, Fixed) and element is not Fixed.UUID:
            self._fixed_elements(element, items, count)
            return
        item = source.fresh("m")
        with source.block(f"for {item} in {items}:"):
            self._value(element, False, item)
            self._flush()

    def _fixed_elements(self, element: Fixed, items: str, count: str) -> None:
        source = self._source
        limit, letter = source.needs("penstock.core.wire.reading", "SHORT_ARRAY"), element.value
        source.needs("struct", "pack")
        short = source.constant(
            f"SHORT_{element.name}", f'{source.needs(_WRITING, "short_arrays")}("{letter}")'
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
