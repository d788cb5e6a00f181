"""Record headers, for all records at once: the first header of each, then the second, and so on."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.pipeline.reading.decoding.fields import (
    VARINT_BYTES,
    Fields,
    Ints,
    Octets,
    past,
    read_varints,
    settle,
)
from penstock.pipeline.reading.decoding.gathering import gather, validity

# Each round costs as much as many headers do; who sends hundreds in one record gets the slower way.
_ROUNDS_MAX = 64


class Located(NamedTuple):
    """Where the names and values of all headers are, in the order of their records."""

    name_starts: Ints
    name_lengths: Ints
    value_starts: Ints
    value_lengths: Ints


def locate_headers(octets: Octets, fields: Fields) -> Located | None:
    """Find every header, and settle that they fill their records; None where no record has any."""
    counts = fields.header_counts
    most = int(counts.max())
    if not most:
        return None
    settle(most <= _ROUNDS_MAX)
    slots = np.cumsum(counts) - counts
    located = Located._make(np.empty(int(counts.sum()), np.int64) for _ in Located._fields)
    position = fields.header_starts
    rows = np.flatnonzero(counts)
    at = position[rows]
    for turn in range(most):
        name_lengths, name_starts = read_varints(octets, at, VARINT_BYTES)
        settle(bool((name_lengths >= 0).all()))
        value_lengths, value_starts = read_varints(octets, name_starts + name_lengths, VARINT_BYTES)
        following = past(value_starts, value_lengths)
        found = Located(name_starts, name_lengths, value_starts, value_lengths)
        slot = slots[rows] + turn
        for column, values in zip(located, found, strict=True):
            column[slot] = values
        done = counts[rows] == turn + 1
        settle(np.array_equal(following[done], fields.ends[rows[done]]))
        rows, at = rows[~done], following[~done]
    return located


def header_column(arena: pa.Buffer, counts: Ints, located: Located, kind: pa.DataType) -> pa.Array:
    """The column of lists; a record without headers has null, as the official connector has it."""
    names = gather(arena, located.name_starts, located.name_lengths)
    try:
        keys = names.cast(pa.string())
    except pa.ArrowInvalid:
        settle(False)
    values = gather(arena, located.value_starts, located.value_lengths)
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    buffers = [validity(counts > 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[pairs])
