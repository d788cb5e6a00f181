"""The sealed batch of docs/formats/record-batch.md opens, and is what the code makes of the plain one."""

import struct
from uuid import UUID

from penstock.core.records import Record, read_records, write_batch
from penstock.storage.sealing import DataKey, seal_batch, unseal_batch
from tests.unit.core.records.test_format_document import bytes_of

KEY = DataKey(bytes.fromhex("0123456789abcdef"), bytes(range(32)))
CONTEXT = UUID(int=7).bytes + struct.pack("<i", 0)


def test_the_example_opens_under_its_key_and_holds_the_record_that_it_names() -> None:
    opened = unseal_batch(bytes_of("worked-sealed-example"), KEY, CONTEXT)

    (record,) = read_records(memoryview(opened))
    assert record == Record(1000, 1_700_000_000_000, b"user-7", b"hi", ())


def test_the_example_is_what_sealing_makes_of_the_plain_batch() -> None:
    plain = bytearray(write_batch([Record(0, 1_700_000_000_000, b"user-7", b"hi")]))
    struct.pack_into(">q", plain, 0, 1000)
    struct.pack_into(">i", plain, 12, 3)

    assert seal_batch(plain, KEY, CONTEXT, bytes(range(12))) == bytes_of("worked-sealed-example")
