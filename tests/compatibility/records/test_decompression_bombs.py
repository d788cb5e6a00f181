"""Small batches that unpack to a gigabyte, and the memory it takes to refuse them.

The codecs allocate outside Python's heap, so a child process reports what the kernel
saw: by how much its peak resident size grew.
"""

import json
import struct
import subprocess
import sys
import zlib

import cramjam
import pytest

from penstock.core.records import CompressionType

GIGABYTE = 1 << 30
MEGABYTE = 1 << 20
LIMIT_BYTES = 4 * MEGABYTE
# Beside the buffer: LZ4's blocks, a zstd window, the interpreter's own.
OVERHEAD_BYTES = 8 * MEGABYTE

CHILD = """
import json, sys
from penstock.core.records import CompressionType, CorruptBatch, Record
from penstock.core.records import read_records, validate_records, write_batch
def peak_bytes():
    # Not getrusage: its peak survives exec, so it would be the parent's.
    (line,) = (line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])
for codec in CompressionType:  # whatever is allocated once is not the bomb's doing
    list(read_records(write_batch([Record(0, 0, None, bytes(50_000))], codec=codec)))
bomb, limit_bytes = sys.stdin.buffer.read(), int(sys.argv[1])
before = peak_bytes()
raised = []
for read in (read_records, validate_records):
    try:
        read(bomb, limit_bytes=limit_bytes)
    except CorruptBatch as refusal:
        raised.append(type(refusal).__name__)
print(json.dumps({"raised": raised, "grown_bytes": peak_bytes() - before}))
"""


def batch_of(codec: CompressionType, packed: bytes) -> bytes:
    length = 49 + len(packed)
    return struct.pack(">qiibIhiqqqhii", 0, length, -1, 2, 0, int(codec), 0, 0, 0, -1, -1, -1, 1) + packed


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    zeros = bytes(MEGABYTE)
    return b"".join(packer.compress(zeros) for _ in range(GIGABYTE // MEGABYTE)) + packer.flush()


def snappy_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MEGABYTE)))
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 1024


def bare_snappy_bomb() -> bytes:
    # 64 bytes per 3-byte copy from one byte back, a gigabyte claimed in front.
    copies = GIGABYTE // 64
    return b"\x80\x80\x80\x80\x04" + b"\x00a" + b"\xfe\x01\x00" * copies


def lz4_bomb() -> bytes:
    # One block that stands alone, over and over.
    packer = cramjam.lz4.Compressor(level=0, content_checksum=False, block_linked=False)
    packer.compress(bytes(64 * 1024))
    frame = bytes(packer.finish())
    block_end = 11 + struct.unpack_from("<I", frame, 7)[0] + 4 * bool(frame[4] & 0x10)
    return frame[:7] + frame[7:block_end] * (GIGABYTE // (64 * 1024)) + frame[block_end:]


def zstd_bomb() -> bytes:
    # Blocks that repeat one byte 128 KB long, in a window of 128 MB.
    block = struct.pack("<I", (128 * 1024) << 3 | 0b010)[:3] + b"\x00"
    end = struct.pack("<I", 1)[:3]
    return bytes.fromhex("28b52ffd0088") + block * (GIGABYTE // (128 * 1024)) + end


def honest_zstd_in_a_huge_window() -> bytes:
    return bytes.fromhex("28b52ffd0088") + struct.pack("<I", 5 << 3 | 1)[:3] + b"hello"


BOMBS = {
    "gzip": (CompressionType.GZIP, gzip_bomb),
    "snappy": (CompressionType.SNAPPY, snappy_bomb),
    "bare snappy": (CompressionType.SNAPPY, bare_snappy_bomb),
    "lz4": (CompressionType.LZ4, lz4_bomb),
    "zstd": (CompressionType.ZSTD, zstd_bomb),
}


def read_in_a_child(batch: bytes) -> tuple[list[str], int]:
    command = [sys.executable, "-c", CHILD, str(LIMIT_BYTES)]
    finished = subprocess.run(command, input=batch, capture_output=True, timeout=60, check=True)
    report = json.loads(finished.stdout)
    return report["raised"], report["grown_bytes"]


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_the_limit(name: str) -> None:
    codec, build = BOMBS[name]
    bomb = batch_of(codec, build())

    raised, grown_bytes = read_in_a_child(bomb)

    assert len(bomb) < GIGABYTE / 20
    assert raised == ["RecordsTooLarge", "RecordsTooLarge"]
    assert grown_bytes <= LIMIT_BYTES + OVERHEAD_BYTES


def test_a_large_window_alone_costs_nothing() -> None:
    raised, grown_bytes = read_in_a_child(batch_of(CompressionType.ZSTD, honest_zstd_in_a_huge_window()))

    assert raised == ["InvalidRecord"]  # "hello" is no record; the lazy reader does not get that far
    assert grown_bytes <= OVERHEAD_BYTES
