"""The four codecs, and a bound on what they may unpack to.

A few kilobytes can claim to hold gigabytes. Nothing here trusts such a claim: output
goes into a buffer that starts small and grows up to the limit, and a codec that
would write past it is stopped there.

Snappy comes in two forms. The Java client writes xerial's framing (a magic, two
versions, then blocks with a length in front), librdkafka bare snappy; we read both
and write what Java writes.

    82 'SNAPPY' 00 │ version 4 │ oldest reader 4 │ { block length 4 │ snappy block } …
"""

import struct
from collections.abc import Iterator
from itertools import islice

import cramjam

from penstock.core.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    BatchIncomplete,
    Buffer,
    CompressionType,
    CorruptBatch,
    RecordsTooLarge,
)

LIMIT_BYTES = 64 * 1024 * 1024
_OUTPUT_BYTES_MIN = 4096
_OUTPUT_FACTOR = 8
# What cramjam says when the output buffer is full, as against broken input.
_OUTPUT_FULL = "failed to write whole buffer"
_STREAMS = {
    CompressionType.GZIP: cramjam.gzip,
    CompressionType.LZ4: cramjam.lz4,
    CompressionType.ZSTD: cramjam.zstd,
}
# How a frame begins; snappy has no mark of its own.
_FRAME_MAGICS = {
    CompressionType.GZIP: b"\x1f\x8b\x08",
    CompressionType.LZ4: b"\x04\x22\x4d\x18",
    CompressionType.ZSTD: b"\x28\xb5\x2f\xfd",
}
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
# Java's client never writes smaller blocks, but for the last one.
_XERIAL_BLOCK_BYTES_MIN = 1024
_XERIAL_BLOCKS_MIN = 16
_BLOCK_LENGTH = struct.Struct(">i")
_NOTHING = memoryview(b"")
# The densest snappy element copies 64 bytes and takes 3.
_SNAPPY_RATIO_MAX = 22


def compress(
    codec: CompressionType, payload: bytes | bytearray, level: int | None = None
) -> bytes | bytearray:
    """Pack the records of a batch; a level is what the codec itself takes for one."""
    match codec:
        case CompressionType.NONE:
            return payload
        case CompressionType.GZIP:
            return bytes(cramjam.gzip.compress(payload, level=level))
        case CompressionType.SNAPPY:
            return _compress_xerial(payload)
        case CompressionType.LZ4:
            return _compress_lz4(payload, level or 0)
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(payload, level=level))


def unpack_payload(batch: Buffer, header: BatchHeader, limit_bytes: int) -> bytes:
    """The uncompressed records of the batch at the start of `batch`, as bytes of their own."""
    view = memoryview(batch)
    if len(view) < header.size_bytes:
        raise BatchIncomplete(header.size_bytes, len(view))
    packed = view[HEADER_BYTES : header.size_bytes]
    if header.codec is not CompressionType.NONE and packed:
        return decompress(header.codec, packed, limit_bytes)
    if len(packed) > limit_bytes:
        raise RecordsTooLarge(limit_bytes)
    return bytes(packed)


def check_frame(codec: CompressionType, packed: memoryview) -> None:
    """Raise CorruptBatch unless these bytes begin as the codec's do; nothing is unpacked."""
    magic = _FRAME_MAGICS.get(codec)
    if magic is not None:
        if len(packed) <= len(magic) or packed[: len(magic)] != magic:
            raise CorruptBatch(f"the records are not {codec.name.lower()} data")
        return
    try:
        if packed[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            packed = next(_xerial_blocks(packed), _NOTHING)
        size = _snappy_size(packed)
    except cramjam.DecompressionError as broken:
        raise CorruptBatch(f"the records are not snappy data: {broken}") from None
    if not size:
        raise CorruptBatch("the records are an empty snappy block")


def decompress(codec: CompressionType, packed: memoryview, limit_bytes: int) -> bytes:
    """Unpack records that were compressed by anyone's producer."""
    try:
        if codec is CompressionType.SNAPPY:
            return _decompress_snappy(packed, limit_bytes)
        return _decompress_stream(codec, packed, limit_bytes)
    except cramjam.DecompressionError as broken:
        raise CorruptBatch(f"{codec.name.lower()} data is broken: {broken}") from None


def _decompress_stream(codec: CompressionType, packed: memoryview, limit_bytes: int) -> bytes:
    size = min(limit_bytes, max(_OUTPUT_BYTES_MIN, _OUTPUT_FACTOR * len(packed)))
    while True:
        output = bytearray(size)
        try:
            used = _STREAMS[codec].decompress_into(packed, output)
        except cramjam.DecompressionError as broken:
            if _OUTPUT_FULL not in str(broken):
                raise
            if size == limit_bytes:
                raise RecordsTooLarge(limit_bytes) from None
            size = min(limit_bytes, size * _OUTPUT_FACTOR)
            del output
        else:
            return bytes(memoryview(output)[:used])


def _compress_lz4(payload: bytes | bytearray, level: int) -> bytes:
    # The library's own default level is ten times slower than level 0, and it links
    # blocks to each other, which the Java client cannot read.
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(payload))
    return bytes(compressor.finish())


def _compress_xerial(payload: bytes | bytearray) -> bytearray:
    out = bytearray(_XERIAL_HEADER)
    view = memoryview(payload)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return out


def _decompress_snappy(packed: memoryview, limit_bytes: int) -> bytes:
    is_xerial = packed[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    blocks_max = _XERIAL_BLOCKS_MIN + limit_bytes // _XERIAL_BLOCK_BYTES_MIN
    blocks = list(islice(_xerial_blocks(packed), blocks_max + 1)) if is_xerial else [packed]
    if len(blocks) > blocks_max:
        # Each costs a call, whatever is in it.
        raise RecordsTooLarge(limit_bytes)
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > limit_bytes:
        raise RecordsTooLarge(limit_bytes)
    output = memoryview(bytearray(sum(sizes)))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, output[position : position + size])
        position += size
    return bytes(output)


def _snappy_size(block: memoryview) -> int:
    """What a block says it unpacks to, if its length allows for that at all."""
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"{len(block)} bytes of snappy cannot unpack to {size}")
    return size


def _xerial_blocks(packed: memoryview) -> Iterator[memoryview]:
    position = len(_XERIAL_HEADER)
    while position < len(packed):
        start = position + _BLOCK_LENGTH.size
        if start > len(packed):
            raise CorruptBatch("xerial snappy ends inside a block length")
        position = start + _BLOCK_LENGTH.unpack_from(packed, start - _BLOCK_LENGTH.size)[0]
        if not start < position <= len(packed):
            raise CorruptBatch(f"xerial snappy block of {position - start} bytes does not fit")
        yield packed[start:position]
