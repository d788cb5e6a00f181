"""Arrow columns out of numpy arrays.

They are made of buffers: `pa.array` would do, but it loads pandas to see whether it was given any.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.pipeline.reading.decoding.fields import Ints


def gather(arena: pa.Buffer, starts: Ints, lengths: Ints) -> pa.Array:
    """The bytes at `starts`, in order and without overlap, as a binary column; length -1 gives null."""
    count = len(starts)
    has_nulls = count > 0 and int(lengths.min()) < 0
    if has_nulls and int(lengths.max()) < 0:
        return pa.nulls(count, pa.binary())
    # By turns a field and what lies between it and the next; only the fields are taken.
    edges = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + (np.maximum(lengths, 0) if has_nulls else lengths)
    pieces = pa.Array.from_buffers(pa.binary(), max(2 * count - 1, 0), [None, pa.py_buffer(edges), arena])
    taken = pieces.take(fixed(pa.int32(), np.arange(0, 2 * count, 2, dtype=np.int32)))
    if not has_nulls:
        return taken
    _, offsets, octets = taken.buffers()
    return pa.Array.from_buffers(pa.binary(), count, [validity(lengths >= 0), offsets, octets])


def fixed(
    kind: pa.DataType, values: npt.NDArray[np.int32 | np.int64], present: pa.Buffer | None = None
) -> pa.Array:
    """A column of numbers, which must be as wide as `kind` is."""
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(values)])


def repeated(text: str, count: int) -> pa.Array:
    """The same text in every row."""
    octets = text.encode()
    edges = np.arange(0, (count + 1) * len(octets), len(octets), dtype=np.int32)
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(octets * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def validity(present: npt.NDArray[np.bool_]) -> pa.Buffer:
    """Arrow's bitmap of what is not null."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))
