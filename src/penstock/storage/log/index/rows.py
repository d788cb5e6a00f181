"""Index tables as rows of little-endian 64-bit words.

    .index      1 word   (base offset - segment's base offset) << 32 | position
    .timeindex  2 words  largest timestamp so far │ base offset of the batch it is known at
    .txnindex   4 words  producer id │ first offset │ last offset │ last stable offset

A sealed file ends with a footer that covers all rows:

    "PSIX" 4 │ version 2 │ row bytes 2 │ row count 4 │ CRC-32C of rows and the 12 bytes before 4
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from fastcrc import crc32

from penstock.storage.disk import Buffer
from penstock.storage.log.errors import CorruptFile
from penstock.storage.log.names import ABORTED_INDEX, OFFSET_INDEX, TIME_INDEX

Words: TypeAlias = Sequence[int]
WORD_BYTES = 8
POSITION_BITS = 32
POSITION_MASK = (1 << POSITION_BITS) - 1
_crc32c = crc32.iscsi
_MAGIC = b"PSIX"
_VERSION = 1
_HEAD = struct.Struct("<4sHHI")
_CRC = struct.Struct("<I")
FOOTER_BYTES = _HEAD.size + _CRC.size


class Shape(NamedTuple):
    """How the rows of one kind of index look."""

    suffix: str
    code: Literal["Q", "q"]
    words: int

    @property
    def row_bytes(self) -> int:
        return self.words * WORD_BYTES


OFFSETS = Shape(OFFSET_INDEX, "Q", 1)
TIMES = Shape(TIME_INDEX, "q", 2)
ABORTED = Shape(ABORTED_INDEX, "q", 4)
SHAPES = (OFFSETS, TIMES, ABORTED)


def encode_words(words: "array[int]") -> bytes:
    """The bytes of some rows."""
    if sys.byteorder == "big":
        words = array(words.typecode, words)
        words.byteswap()
    return words.tobytes()


def decode_words(shape: Shape, content: Buffer) -> Words:
    """The rows that these bytes hold, in place where the machine's byte order allows."""
    if sys.byteorder == "little":
        return memoryview(content).cast(shape.code)
    words = array(shape.code, bytes(content))
    words.byteswap()
    return words


def footer(shape: Shape, rows: Buffer) -> bytes:
    """What makes a file of rows a sealed index."""
    head = _HEAD.pack(_MAGIC, _VERSION, shape.row_bytes, len(rows) // shape.row_bytes)
    return head + _CRC.pack(_crc32c(head, _crc32c(rows)))


def parse_sealed(shape: Shape, content: Buffer) -> Words:
    """The rows of a sealed index file, or CorruptFile."""
    view = memoryview(content)
    end = len(view) - FOOTER_BYTES
    if end < 0:
        raise CorruptFile(f"a sealed {shape.suffix} of {len(view)} bytes has no footer")
    magic, version, row_bytes, count = _HEAD.unpack_from(view, end)
    if magic != _MAGIC or version != _VERSION or row_bytes != shape.row_bytes:
        raise CorruptFile(f"the footer of the {shape.suffix} is none")
    if count * row_bytes != end:
        raise CorruptFile(f"the {shape.suffix} has {end} bytes for {count} rows")
    (crc,) = _CRC.unpack_from(view, end + _HEAD.size)
    if _crc32c(view[end : end + _HEAD.size], _crc32c(view[:end])) != crc:
        raise CorruptFile(f"the CRC-32C of the {shape.suffix} does not match")
    return decode_words(shape, view[:end])


def parse_rows(shape: Shape, content: Buffer, rows: int, crc: int) -> "array[int]":
    """The first rows of an index that still grows, as a checkpoint marked them, or CorruptFile."""
    length = rows * shape.row_bytes
    view = memoryview(content)
    if len(view) < length:
        raise CorruptFile(f"the {shape.suffix} has {len(view)} bytes for {rows} rows")
    if _crc32c(view[:length]) != crc:
        raise CorruptFile(f"the CRC-32C of the {shape.suffix} does not match its checkpoint")
    return array(shape.code, decode_words(shape, view[:length]))


def crc_of(words: "array[int]") -> int:
    """What `parse_rows` will compare with."""
    return _crc32c(encode_words(words))
