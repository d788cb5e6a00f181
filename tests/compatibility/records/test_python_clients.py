"""Batches of aiokafka and kafka-python, read by us; ours, read by them."""

from typing import Any

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from penstock.core.records import (
    CompressionType,
    ControlRecord,
    ControlType,
    Record,
    check_batch,
    read_records,
    validate_records,
    write_batch,
    write_control_batch,
)
from penstock.core.records.partitioner import murmur2
from tests.property.records.record_strategies import numbered, record_lists

# kafka-python finds its other codecs only beside libraries that nothing else here needs.
LIBRARIES = [("aiokafka", codec) for codec in CompressionType] + [
    ("kafka-python", CompressionType.NONE),
    ("kafka-python", CompressionType.GZIP),
]
BUILDERS: dict[str, Any] = {"aiokafka": AiokafkaBuilder, "kafka-python": KafkaPythonBuilder}
PARSERS: dict[str, Any] = {"aiokafka": AiokafkaBatch, "kafka-python": KafkaPythonBatch}


def built_by(library: str, codec: CompressionType, records: list[Record]) -> bytes:
    builder = BUILDERS[library](
        magic=2,
        compression_type=int(codec),
        is_transactional=True,
        producer_id=77,
        producer_epoch=5,
        base_sequence=2**31 - 1,
        batch_size=1 << 24,
    )
    for offset, record in enumerate(records):
        appended = builder.append(
            offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
        assert appended is not None
    return bytes(builder.build())


def parsed_by(library: str, batch: bytes) -> list[Record]:
    parser = PARSERS[library](batch)
    assert parser.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in parser]


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
@given(records=record_lists)
def test_their_batches_are_read(library: str, codec: CompressionType, records: list[Record]) -> None:
    # They take negative timestamps for "now", so the oracle gets none.
    records = [record._replace(timestamp=abs(record.timestamp)) for record in records]
    batch = built_by(library, codec, records)

    header = check_batch(batch)

    assert validate_records(batch) == header
    assert list(read_records(batch)) == numbered(records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 2**31 - 1)
    assert header.last_sequence == (len(records) - 2 if len(records) > 1 else 2**31 - 1)
    assert header.is_transactional


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
@given(records=record_lists)
def test_our_batches_are_read_by_them(library: str, codec: CompressionType, records: list[Record]) -> None:
    batch = bytes(write_batch(records, codec=codec, base_offset=1_000, producer_id=77, producer_epoch=5))

    assert parsed_by(library, batch) == numbered(records, 1_000)


@given(records=record_lists)
def test_uncompressed_batches_are_the_same_bytes(records: list[Record]) -> None:
    records = [record._replace(timestamp=abs(record.timestamp)) for record in records]
    ours = write_batch(
        records,
        producer_id=77,
        producer_epoch=5,
        base_sequence=2**31 - 1,
        transactional=True,
        leader_epoch=-1,
    )

    for library in BUILDERS:
        theirs = bytearray(built_by(library, CompressionType.NONE, records))
        theirs[12:16] = b"\xff" * 4  # the leader epoch, which each fills in as it likes
        assert theirs == ours


@pytest.mark.parametrize("library", PARSERS)
@given(now=st.integers(0, 2**60))
def test_log_append_time_is_seen_by_them(library: str, now: int) -> None:
    batch = bytes(write_batch([Record(0, 5, b"k", b"v"), Record(0, 9, b"k", b"v")], log_append_time=now))

    parser = PARSERS[library](batch)

    assert parser.timestamp_type == 1
    assert [record.timestamp for record in parser] == [now, now]


@pytest.mark.parametrize("control_type", ControlType)
def test_our_markers_are_control_batches_to_them(control_type: ControlType) -> None:
    batch = bytes(write_control_batch(ControlRecord(9, 1_000, control_type, 77, 5, 3)))

    (theirs,) = KafkaPythonBatch(batch)

    assert AiokafkaBatch(batch).is_control_batch
    assert (theirs.offset, theirs.version, theirs.type) == (9, 0, int(control_type))
    assert theirs.commit is (control_type is ControlType.COMMIT)


@given(st.binary(max_size=100))
def test_keys_hash_alike_everywhere(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) % 2**32 == kafka_python_murmur2(key) % 2**32
