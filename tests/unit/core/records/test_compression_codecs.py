"""What the codecs write, what they accept, and where they stop."""

import struct

import cramjam
import pytest

from penstock.core.records import CompressionType, CorruptBatch, RecordsTooLarge
from penstock.core.records.compression import compress, decompress

PACKING = [codec for codec in CompressionType if codec is not CompressionType.NONE]
TEXT = b"".join(b"line %d of a text that packs well\n" % i for i in range(20_000))
LIMIT = 1 << 20


@pytest.mark.parametrize("codec", PACKING)
def test_text_is_packed_and_unpacked(codec: CompressionType) -> None:
    packed = compress(codec, TEXT)

    assert len(packed) < len(TEXT) / 3
    assert decompress(codec, memoryview(packed), len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", PACKING)
def test_one_byte_over_the_limit_is_too_much(codec: CompressionType) -> None:
    packed = memoryview(compress(codec, TEXT))

    with pytest.raises(RecordsTooLarge):
        decompress(codec, packed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("cut", [1, 5, 100])
def test_packed_data_that_ends_early_is_corrupt(codec: CompressionType, cut: int) -> None:
    packed = memoryview(compress(codec, TEXT))

    with pytest.raises(CorruptBatch):
        decompress(codec, packed[:-cut], LIMIT)


@pytest.mark.parametrize("codec", PACKING)
def test_garbage_is_corrupt(codec: CompressionType) -> None:
    with pytest.raises(CorruptBatch, match=codec.name.lower()):
        decompress(codec, memoryview(b"\x00\xffthis is not packed data"), LIMIT)


def test_bare_snappy_is_accepted_beside_xerial_framing() -> None:
    bare = bytes(cramjam.snappy.compress_raw(TEXT))

    assert decompress(CompressionType.SNAPPY, memoryview(bare), len(TEXT)) == TEXT


def test_snappy_is_written_in_xerial_blocks() -> None:
    packed = compress(CompressionType.SNAPPY, TEXT[:40_000])

    (length,) = struct.unpack_from(">i", packed, 16)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == TEXT[:32768]


@pytest.mark.parametrize("tail", [b"\x00", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x00\x00\x00\x09abc"])
def test_broken_xerial_blocks_are_corrupt(tail: bytes) -> None:
    packed = bytes(compress(CompressionType.SNAPPY, TEXT)) + tail

    with pytest.raises(CorruptBatch, match="xerial"):
        decompress(CompressionType.SNAPPY, memoryview(packed), LIMIT)


def test_snappy_cannot_claim_more_than_its_bytes_could_hold() -> None:
    claims_100_kib = b"\x80\x80\x06" + b"\x00a"

    with pytest.raises(CorruptBatch, match="cannot unpack to"):
        decompress(CompressionType.SNAPPY, memoryview(claims_100_kib), LIMIT)


def test_lz4_blocks_stand_alone_for_the_java_client() -> None:
    packed = compress(CompressionType.LZ4, TEXT)

    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0x20, "block independence"


def test_lz4_with_linked_blocks_is_read_as_well() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))

    assert not linked[4] & 0x20
    assert decompress(CompressionType.LZ4, memoryview(linked), len(TEXT)) == TEXT


def test_output_grows_in_steps_far_beyond_the_first_guess() -> None:
    zeros = bytes(8 << 20)
    packed = memoryview(compress(CompressionType.ZSTD, zeros))

    assert len(packed) < 4096
    assert decompress(CompressionType.ZSTD, packed, 8 << 20) == zeros


@pytest.mark.parametrize(
    ("codec", "least", "most"),
    [(CompressionType.GZIP, 1, 9), (CompressionType.LZ4, 1, 17), (CompressionType.ZSTD, -131_072, 22)],
)
def test_a_higher_level_packs_tighter_and_every_level_is_unpacked(
    codec: CompressionType, least: int, most: int
) -> None:
    quick, thorough = compress(codec, TEXT, least), compress(codec, TEXT, most)

    assert len(thorough) < len(quick)
    assert decompress(codec, memoryview(quick), len(TEXT)) == TEXT
    assert decompress(codec, memoryview(thorough), len(TEXT)) == TEXT
