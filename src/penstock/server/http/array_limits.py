"""Arrays that have more elements than they may, found before anything is made of them.

msgspec counts the elements of an array when it has made all of them: three million empty messages, which have
room in a body of 10 MB, cost seconds and hundreds of megabytes. A struct that is written as an array is left
at its first element too many. So large documents are read twice, at first with such structs in the place of
arrays, whose elements are skipped.

Objects of names that a client makes up, such as headers, are measured: a million names take as long, and
names and values within the limits are seldom that much.

    ArrayLimits(BatchBody).check(content)     raises what decoding would end in
"""

import functools
import re
from typing import Any

import msgspec
from msgspec import Raw, inspect

# Smaller documents hold no more than some milliseconds of work.
CHECKED_BYTES = 64 << 10
# Of an object whose names are counted.
OBJECT_BYTES_MAX = 1 << 20
_NOTHING = Raw(b"")
_ARRAYS = inspect.ListType, inspect.VarTupleType
_TOO_LONG = re.compile(r"Expected `array` of at most length (?P<length>[0-9]+)")


class ArrayLimits:
    """The arrays of one type of document, or of several; `is_binary` is MessagePack instead of JSON."""

    def __init__(self, kind: Any, *, is_binary: bool = False) -> None:
        self._kind = kind
        self._is_binary = is_binary
        self._module = msgspec.msgpack if is_binary else msgspec.json

    def check(self, content: bytes | str) -> None:
        """Raise msgspec.DecodeError for what is wrong with its arrays, or with the document as a whole."""
        problem = self._problem_with(content)
        if problem is not None:
            try:
                raise problem.with_traceback(None)
            finally:
                # Else this frame and the error keep each other, and the document, until the next collection.
                del problem

    def _problem_with(self, content: bytes | str) -> msgspec.DecodeError | None:
        if len(content) < CHECKED_BYTES or self._decoder is None:
            return None
        try:
            found = self._decoder.decode(content)
        except msgspec.ValidationError as error:
            return self._named(error)
        except msgspec.DecodeError as error:
            return error
        return self._too_large(found)

    def _too_large(self, found: Any) -> msgspec.ValidationError | None:
        """Whether an object of names is too large, of a document or of one in it."""
        for name in self._objects:
            if len(getattr(found, name)) > OBJECT_BYTES_MAX:
                detail = f"Expected `object` of at most {OBJECT_BYTES_MAX} bytes - at `$.{name}`"
                return msgspec.ValidationError(detail)
        for name, limits in self._parts.items():
            for where, part in _large_documents(name, getattr(found, name)):
                if (problem := limits._problem_with(part)) is not None:
                    return msgspec.ValidationError(str(problem).replace("`$.", f"`$.{where}."))
        return None

    @functools.cached_property
    def _parts(self) -> dict[str, "ArrayLimits"]:
        """The fields that are documents themselves, or arrays of such."""
        found: dict[str, ArrayLimits] = {}
        for document in _alternatives(inspect.type_info(self._kind)):
            for field in document.fields if isinstance(document, inspect.StructType) else ():
                for each in _alternatives(field.type):
                    item = each.item_type if isinstance(each, _ARRAYS) else each
                    if isinstance(item, inspect.StructType):
                        found[field.encode_name] = ArrayLimits(item.cls, is_binary=self._is_binary)
        return found

    @functools.cached_property
    def _objects(self) -> tuple[str, ...]:
        """The fields whose names are counted."""
        return tuple(_lengths(self._kind, inspect.DictType))

    def _named(self, error: msgspec.ValidationError) -> msgspec.ValidationError:
        """The same as decoding the document would say it: with the field, where only one can be meant."""
        found = _TOO_LONG.fullmatch(str(error))
        if found is None:
            return error
        length = int(found["length"])
        names = [name for name, most in _lengths(self._kind, *_ARRAYS).items() if most == length]
        where = f" - at `$.{names[0]}`" if len(names) == 1 else ""
        return msgspec.ValidationError(f"Expected `array` of length <= {length}{where}")

    @functools.cached_property
    def _decoder(self) -> Any:
        """None for documents without such arrays and objects."""
        lengths = _lengths(self._kind, *_ARRAYS)
        fields: list[Any] = [(name, _array_of(length) | None, None) for name, length in lengths.items()]
        fields += [
            (name, Raw, _NOTHING)
            for name in {**dict.fromkeys(self._objects), **self._parts}
            if name not in lengths
        ]
        return self._module.Decoder(msgspec.defstruct("Arrays", fields)) if fields else None


def _lengths(kind: Any, *types: type[Any]) -> dict[str, int]:
    """How many elements the fields of a document have at most."""
    found: dict[str, int] = {}
    for document in _alternatives(inspect.type_info(kind)):
        for field in document.fields if isinstance(document, inspect.StructType) else ():
            for each in _alternatives(field.type):
                if isinstance(each, types) and each.max_length is not None:
                    found[field.encode_name] = max(each.max_length, found.get(field.encode_name, 0))
    return found


def _large_documents(name: str, found: Any) -> list[tuple[str, bytes]]:
    """The document of a field, or those of an array in it, as far as they are large; and their names."""
    if isinstance(found, Raw):
        return [(name, bytes(found))] if len(found) > OBJECT_BYTES_MAX else []
    elements = () if found is None else msgspec.structs.astuple(found)
    return [
        (f"{name}[{index}]", bytes(each))
        for index, each in enumerate(elements)
        if len(each) > OBJECT_BYTES_MAX
    ]


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
