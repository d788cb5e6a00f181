"""What of a response may be shown: aborted transactions and markers are left out."""

import pytest

from penstock.client.visible_batches import shown_batches
from penstock.core.protocol.messages.fetch import FetchResponseAbortedTransaction
from penstock.core.records import (
    HEADER_BYTES,
    BatchHeader,
    ControlRecord,
    ControlType,
    CorruptBatch,
    Record,
    read_header,
    write_batch,
    write_control_batch,
)
from penstock.core.records.record import assemble

EVERYTHING = 1 << 40


def batch_at(offset: int, *, records: int = 2, producer: int = -1, transactional: bool = False) -> bytearray:
    return write_batch(
        [Record(0, 1000, b"k", b"v")] * records,
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker_at(offset: int, producer: int, control_type: ControlType) -> bytearray:
    return write_control_batch(ControlRecord(offset, 1000, control_type, producer, 0, 0))


def shown_offsets(
    batches: list[bytearray], aborted: list[tuple[int, int]], end: int = EVERYTHING
) -> list[int]:
    headers: list[BatchHeader] = [read_header(batch) for batch in batches]
    listed = [FetchResponseAbortedTransaction(producer_id=one, first_offset=first) for one, first in aborted]
    shown = shown_batches(memoryview(b"".join(batches)), headers, listed, end)
    return [header.base_offset for header, _ in shown]


def test_markers_are_never_shown() -> None:
    log = [batch_at(0, producer=5, transactional=True), marker_at(2, 5, ControlType.COMMIT), batch_at(3)]

    assert shown_offsets(log, []) == [0, 3]


def test_an_aborted_transaction_is_hidden_up_to_its_marker() -> None:
    log = [
        batch_at(0, producer=5, transactional=True),
        batch_at(2, producer=5, transactional=True),
        marker_at(4, 5, ControlType.ABORT),
        batch_at(5, producer=5, transactional=True),
        marker_at(7, 5, ControlType.COMMIT),
    ]

    assert shown_offsets(log, [(5, 0)]) == [5]


def test_producers_beside_an_aborted_transaction_are_shown() -> None:
    log = [
        batch_at(0, producer=5, transactional=True),
        batch_at(2, producer=6, transactional=True),
        batch_at(4),
        batch_at(6, producer=5, transactional=True),
        marker_at(8, 5, ControlType.ABORT),
        marker_at(9, 6, ControlType.COMMIT),
    ]

    assert shown_offsets(log, [(5, 0)]) == [2, 4]


def test_records_that_a_producer_committed_before_it_aborted_are_shown() -> None:
    log = [
        batch_at(0, producer=5, transactional=True),
        marker_at(2, 5, ControlType.COMMIT),
        batch_at(3, producer=5, transactional=True),
        marker_at(5, 5, ControlType.ABORT),
    ]

    assert shown_offsets(log, [(5, 3)]) == [0]


def test_a_producer_that_aborts_twice_is_hidden_twice() -> None:
    log = [
        batch_at(0, producer=5, transactional=True),
        marker_at(2, 5, ControlType.ABORT),
        batch_at(3, producer=5, transactional=True),
        marker_at(5, 5, ControlType.ABORT),
        batch_at(6, producer=5, transactional=True),
    ]

    assert shown_offsets(log, [(5, 3), (5, 0)]) == [6]


def test_a_transaction_that_began_before_the_answer_is_hidden() -> None:
    log = [batch_at(10, producer=5, transactional=True), marker_at(12, 5, ControlType.ABORT), batch_at(13)]

    assert shown_offsets(log, [(5, 4)]) == [13]


def test_records_outside_transactions_of_the_same_producer_are_shown() -> None:
    log = [batch_at(0, producer=5, transactional=True), batch_at(2, producer=5)]

    assert shown_offsets(log, [(5, 0)]) == [2]


def test_batches_behind_the_end_are_not_looked_at() -> None:
    broken = batch_at(4)
    broken[-1] ^= 1

    assert shown_offsets([batch_at(0), batch_at(2), broken], [], end=4) == [0, 2]


def test_a_batch_with_a_wrong_checksum_is_named() -> None:
    broken = batch_at(2)
    broken[-1] ^= 1

    with pytest.raises(CorruptBatch, match="the batch at offset 2: its CRC-32C does not match"):
        shown_offsets([batch_at(0), broken], [])


def test_a_marker_that_cannot_be_read_is_named() -> None:
    marker = marker_at(2, 5, ControlType.ABORT)
    payload = marker[HEADER_BYTES:].replace(b"\x00\x00\x00\x00", b"\x00\x00\x00\x07", 1)
    log = [batch_at(0, producer=5, transactional=True), assemble(read_header(marker), payload)]

    with pytest.raises(CorruptBatch, match="the batch at offset 2: control record type"):
        shown_offsets(log, [(5, 0)])
