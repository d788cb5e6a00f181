"""Arrays that have more elements than they may, found before anything is made of them.

msgspec counts the elements of an array when it has made all of them: three million empty messages, which have
room in a body of 10 MB, cost seconds and hundreds of megabytes. A struct that is written as an array is left
at its first element too many. So large documents are read twice, at first with such structs in the place of
arrays, whose elements are skipped.

    ArrayLimits(BatchBody).problem_with(content)     the error that decoding would end in, or None
"""

import functools
import re
from typing import Any

import msgspec
from msgspec import Raw, inspect

# Smaller documents hold no more than some milliseconds of work.
CHECKED_BYTES = 64 << 10
_NOTHING = Raw(b"")
_TOO_LONG = re.compile(r"Expected `array` of at most length (?P<length>[0-9]+)")


class ArrayLimits:
    """The arrays of one type of document, or of several; `is_binary` is MessagePack instead of JSON."""

    def __init__(self, kind: Any, *, is_binary: bool = False) -> None:
        self._kind = kind
        self._module = msgspec.msgpack if is_binary else msgspec.json

    def problem_with(self, content: bytes | str) -> msgspec.DecodeError | None:
        """What is wrong with its arrays, or with the document as a whole."""
        if len(content) < CHECKED_BYTES or self._decoder is None:
            return None
        try:
            self._decoder.decode(content)
        except msgspec.ValidationError as error:
            return self._named(error)
        except msgspec.DecodeError as error:
            return error
        return None

    def _named(self, error: msgspec.ValidationError) -> msgspec.ValidationError:
        """The same as decoding the document would say it: with the field, where only one can be meant."""
        found = _TOO_LONG.fullmatch(str(error))
        if found is None:
            return error
        length = int(found["length"])
        names = [name for name, most in _lengths(self._kind).items() if most == length]
        where = f" - at `$.{names[0]}`" if len(names) == 1 else ""
        return msgspec.ValidationError(f"Expected `array` of length <= {length}{where}")

    @functools.cached_property
    def _decoder(self) -> Any:
        """None for documents without such arrays."""
        lengths = _lengths(self._kind)
        fields = [(name, _array_of(length) | None, None) for name, length in lengths.items()]
        return self._module.Decoder(msgspec.defstruct("Arrays", fields)) if fields else None


def _lengths(kind: Any) -> dict[str, int]:
    """How many elements the fields of a document have at most."""
    found: dict[str, int] = {}
    for document in _alternatives(inspect.type_info(kind)):
        for field in document.fields if isinstance(document, inspect.StructType) else ():
            for each in _alternatives(field.type):
                if isinstance(each, inspect.ListType | inspect.VarTupleType) and each.max_length is not None:
                    found[field.encode_name] = max(each.max_length, found.get(field.encode_name, 0))
    return found


def _alternatives(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


@functools.cache
def _array_of(length: int) -> Any:
    """An array of so many elements at most, whatever they are."""
    fields = [(f"element_{number}", Raw, _NOTHING) for number in range(length)]
    return msgspec.defstruct(
        f"ArrayOf{length}", fields, array_like=True, forbid_unknown_fields=True, gc=False
    )
