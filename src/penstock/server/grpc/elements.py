"""Fields with too many elements, found before anything is made of them.

An element of no bytes takes two on the wire, and a hundred as an object. So large requests are walked through
from tag to tag before they are decoded, as far as the first element too many.

    tag  length  ...bytes...  tag  length  ...bytes...     only length-delimited fields have elements
"""

from typing import Any, Final

# Smaller requests hold no more than some megabytes.
CHECKED_BYTES: Final = 64 << 10
# In messages of the request: twenty headers for each of a batch.
INNER_MAX: Final = 200_000
_VARINT, _EIGHT_BYTES, _DELIMITED, _GROUP_BEGINS, _GROUP_ENDS, _FOUR_BYTES = range(6)
_LOW_BITS: Final = 0x7F
_MORE: Final = 0x80


class ElementLimits:
    """How many elements the fields of one type of request may have."""

    def __init__(self, descriptor: Any, elements_max: int) -> None:
        self._elements_max = elements_max
        self._repeated = {field.number: field.name for field in descriptor.fields if field.is_repeated}
        # Those whose elements have such fields themselves.
        self._inner = {
            field.number: inner
            for field in descriptor.fields
            if field.is_repeated
            and field.message_type is not None
            and (inner := {one.number for one in field.message_type.fields if one.is_repeated})
        }

    def problem_with(self, octets: bytes) -> str | None:
        """What there is too much of. Bytes that are no message are none of our business."""
        if len(octets) < CHECKED_BYTES or not self._repeated:
            return None
        try:
            return self._found(octets)
        except IndexError:
            return None

    def _found(self, octets: bytes) -> str | None:
        counts = dict.fromkeys(self._repeated, 0)
        inner_left = INNER_MAX
        position, end = 0, len(octets)
        while position < end:
            number, start, position = _next_field(octets, position)
            if number not in counts:
                continue
            counts[number] += 1
            if counts[number] > self._elements_max:
                return f"{self._repeated[number]}: there are more than {self._elements_max}"
            inner = self._inner.get(number)
            while inner and start < position:
                found, _, start = _next_field(octets, start)
                if found in inner:
                    inner_left -= 1
                    if inner_left < 0:
                        return f"{self._repeated[number]}: they have more than {INNER_MAX} elements"
        return None


def _next_field(octets: bytes, position: int) -> tuple[int, int, int]:
    """The number of the field at `position`, where its bytes begin, and where they end."""
    tag, position = _varint(octets, position)
    kind = tag & 7
    if kind == _DELIMITED:
        size, position = _varint(octets, position)
        return tag >> 3, position, position + size
    if kind == _VARINT:
        _, end = _varint(octets, position)
        return tag >> 3, position, end
    if kind in (_EIGHT_BYTES, _FOUR_BYTES):
        return tag >> 3, position, position + (8 if kind == _EIGHT_BYTES else 4)
    if kind in (_GROUP_BEGINS, _GROUP_ENDS):
        # Of no message here; what is inside counts as if it were outside.
        return 0, position, position
    raise IndexError


def _varint(octets: bytes, position: int) -> tuple[int, int]:
    value = octets[position]
    position += 1
    if value < _MORE:
        return value, position
    value &= _LOW_BITS
    shift = 7
    while True:
        octet = octets[position]
        position += 1
        value |= (octet & _LOW_BITS) << shift
        if octet < _MORE:
            return value, position
        shift += 7
        if shift > 63:
            raise IndexError
