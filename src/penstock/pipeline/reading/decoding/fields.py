"""Every field of every record at once.

Nothing here reads outside the arena, whatever the bytes say: positions past the end are clipped to
it, and the values that come of that fail the comparisons at the end.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
# Longer varints are legal and nobody writes them; `exact` reads them.
VARINT_BYTES = 4
VARLONG_BYTES = 8


class Unsettled(Exception):
    """The fast way makes no statement about these records."""


class Fields(NamedTuple):
    """Where the fields of each record are, and the numbers among them; length -1 stands for null."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    header_counts: Ints
    header_starts: Ints
    ends: Ints

    def cut(self, start: int, end: int) -> "Fields":
        """Only the records from `start` up to `end`."""
        return Fields._make(field[start:end] for field in self)


def read_fields(octets: Octets, starts: Ints, ends: Ints) -> Fields:
    """The fields of the records between `starts` and `ends`; Unsettled unless they fill them exactly.

    Headers are counted and not looked at.
    """
    lengths, position = read_varints(octets, starts, VARINT_BYTES)
    settle(np.array_equal(position + lengths, ends))
    timestamp_deltas, position = read_varints(octets, position + 1, VARLONG_BYTES)
    offset_deltas, position = read_varints(octets, position, VARINT_BYTES)
    key_lengths, key_starts = read_varints(octets, position, VARINT_BYTES)
    value_lengths, value_starts = read_varints(octets, past(key_starts, key_lengths), VARINT_BYTES)
    header_counts, position = read_varints(octets, past(value_starts, value_lengths), VARINT_BYTES)
    # No field is negative in length, so positions only grow: what ends in time never ran over. Of
    # records with headers the last header says where they end; `headers` looks at it.
    without = header_counts == 0
    settle(bool((header_counts >= 0).all()))
    settle(np.array_equal(position[without], ends[without]))
    return Fields(
        timestamp_deltas,
        offset_deltas,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
        header_counts,
        position,
        ends,
    )


def past(starts: Ints, lengths: Ints) -> Ints:
    """Where nullable fields end."""
    shortest = lengths.min()
    settle(bool(shortest >= -1))
    return starts + (lengths if shortest >= 0 else np.maximum(lengths, 0))


def read_varints(octets: Octets, position: Ints, bytes_max: int) -> tuple[Ints, Ints]:
    """The zig-zag varint at each position, and where the next field starts."""
    octet = octets.take(position, mode="clip")
    zigzag = octet.astype(np.int64)
    if octet.max() < 0x80:
        return (zigzag >> 1) ^ -(zigzag & 1), position + 1
    # In most columns all varints are equally long; the others are sorted out byte by byte.
    length = 1
    while octet.min() >= 0x80 and length < bytes_max:
        octet = octets.take(position + length, mode="clip")
        zigzag += (octet.astype(np.int64) - 1) << (7 * length)
        length += 1
    following = position + length
    rows = np.flatnonzero(octet >= 0x80)
    while len(rows):
        settle(length < bytes_max)
        more = octets.take(position[rows] + length, mode="clip")
        zigzag[rows] += (more.astype(np.int64) - 1) << (7 * length)
        following[rows] += 1
        rows = rows[more >= 0x80]
        length += 1
    return (zigzag >> 1) ^ -(zigzag & 1), following


def settle(condition: bool) -> None:
    """Go on if so, else leave the verdict to `exact`."""
    if not condition:
        raise Unsettled
