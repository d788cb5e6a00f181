"""Batches built in one go are the bytes that `write_batch` writes."""

import pytest

from penstock.core.records import CompressionType, Record, check_batch, read_records, write_batch
from penstock.core.records.builder import (
    NO_KEY,
    UnplacedRecord,
    build_batch,
    join_bodies,
    key_of,
    pack_body,
    pack_headers,
)
from tests.support.kept_memory import kept_bytes

RECORDS: list[UnplacedRecord] = [
    (None, None, (), 1_000),
    (b"", b"", (), 1_000),
    (b"key", b"v" * 20_000, (("a", b"1"), ("b", None)), 2_000),
    (b"k" * 300, b"v" * 130, (("\udcff", b""),), 10),
]


@pytest.mark.parametrize("codec", CompressionType)
def test_a_built_batch_is_the_one_that_is_written(codec: CompressionType) -> None:
    built = build_batch(RECORDS, codec=codec, producer_id=7, producer_epoch=2, base_sequence=40)

    written = write_batch(
        [Record(0, timestamp, key, value, headers) for key, value, headers, timestamp in RECORDS],
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
    )
    assert built == written


def test_more_records_than_the_table_of_integers_has() -> None:
    records: list[UnplacedRecord] = [(None, b"%d" % number, (), 5) for number in range(20_000)]

    built = build_batch(records)

    check_batch(built)
    assert [one.value for one in read_records(built)] == [value for _, value, _, _ in records]


@pytest.mark.parametrize("codec", CompressionType)
def test_bodies_that_are_joined_are_the_batch_that_is_written(codec: CompressionType) -> None:
    bodies = [pack_body(key, value, headers) for key, value, headers, _ in RECORDS]

    joined = join_bodies(
        bodies, 9, codec=codec, producer_id=7, producer_epoch=2, base_sequence=0, transactional=True
    )

    written = write_batch(
        [Record(0, 9, key, value, headers) for key, value, headers, _ in RECORDS],
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=0,
        transactional=True,
    )
    assert joined == written


def test_more_bodies_than_the_table_of_integers_has() -> None:
    values = [b"%d" % number for number in range(20_000)]

    joined = join_bodies([pack_body(None, value) for value in values], 5)

    check_batch(joined)
    assert [one.value for one in read_records(joined)] == values


def test_a_body_says_its_key() -> None:
    for key, value, headers, _ in RECORDS:
        body = pack_body(key, value, headers)
        assert key_of(body) == key
        assert (body[0] == NO_KEY) == (key is None)


def test_large_headers_are_not_kept() -> None:
    def pack() -> None:
        for number in range(300):
            headers = (("name", b"%08d" % number + bytes(30_000)),)
            assert len(pack_headers(headers)) > 30_000

    assert kept_bytes(pack) < 1 << 20
