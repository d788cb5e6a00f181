"""The worked example of docs/formats/journal.md is what the code writes, and reads."""

import re
import struct
from pathlib import Path
from uuid import UUID

from fastcrc import crc32

from penstock.core.model import Offset, PartitionIndex, TopicId
from penstock.storage.journal.codec import (
    BATCHES,
    COUNT_BITS,
    EntryKind,
    FileHeader,
    common_epoch,
    decode_file_header,
    encode_file_header,
    encode_frame,
    is_whole,
    log_key,
    pack_durable,
    pack_entry,
    read_frame_header,
)
from penstock.storage.journal.recovery import JournalScan

DOCUMENT = Path(__file__).parents[4] / "docs" / "formats" / "journal.md"
TOPIC = TopicId(UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))
SEQUENCE, SALT = 3 << COUNT_BITS | 7, 9
BATCH = bytes.fromhex("0000000000000029 0000000a 00000005 02 0000000000")


def example() -> bytes:
    block = re.search(r"^```frame\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None
    return b"".join(bytes.fromhex(line.split("   ")[0]) for line in block[1].splitlines())


def test_the_frame_of_the_document_is_what_is_written() -> None:
    first, second = log_key(TOPIC, PartitionIndex(1)), log_key(TOPIC, PartitionIndex(0))
    parts = [
        pack_entry(BATCHES, first, 41, 42, common_epoch([BATCH]), len(BATCH)),
        BATCH,
        pack_durable(second, Offset(1000)),
    ]

    assert encode_frame(SEQUENCE, parts, SALT) == example()


def test_the_frame_of_the_document_is_read() -> None:
    content = example()

    header = read_frame_header(content, 0, SALT)

    assert header is not None
    assert header.sequence == SEQUENCE
    assert is_whole(content, 0, header)


def test_the_entries_of_the_document_are_read() -> None:
    content = encode_file_header(FileHeader(SEQUENCE, 0, 0, SALT)) + example()
    scan = JournalScan()

    scan.read(1, content)

    (batches,) = scan.recover(log_key(TOPIC, PartitionIndex(1)), 0).ranges
    assert (batches.kind, batches.start, batches.end, batches.epoch) == (EntryKind.BATCHES, 41, 42, 5)
    assert content[batches.position : batches.position + batches.length] == BATCH
    assert scan.recover(log_key(TOPIC, PartitionIndex(0)), 0)[:3] == ([], 1000, "")


def test_another_salt_or_sequence_does_not_fit() -> None:
    content = bytearray(example())

    assert read_frame_header(bytes(content), 0, SALT + 1) is None
    content[8] ^= 1
    assert read_frame_header(bytes(content), 0, SALT) is None


def test_a_file_header_of_version_1_is_read() -> None:
    content = struct.pack("<4sIQQI", b"PSJL", 1, 7, 3, SALT)
    content += struct.pack("<I", crc32.iscsi(content))

    assert decode_file_header(content.ljust(512, b"\0")) == FileHeader(base=7, previous=3, size=0, salt=SALT)
