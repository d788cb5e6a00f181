"""Values go into batches and come out again, with the offsets that a log gave them."""

import pytest

from penstock.core.model import CorruptionError, LeaderEpoch, Offset, ProducerId
from penstock.core.records import ControlRecord, ControlType, stamp, write_control_batch
from penstock.sim.values import batch_of, committed_values_of, values_of


def placed(batch: bytes, offset: int, epoch: int = 0) -> bytes:
    content = bytearray(batch)
    stamp(content, 0, Offset(offset), LeaderEpoch(epoch))
    return bytes(content)


def test_batches_back_to_back_are_read_with_their_offsets() -> None:
    content = placed(batch_of([b"a", b"b"]), 5) + placed(batch_of([b"c"], ProducerId(3), 7), 7, 2)

    assert values_of(content) == [(5, b"a"), (6, b"b"), (7, b"c")]


def test_the_same_batch_at_another_place_has_other_offsets() -> None:
    batch = batch_of([b"a", b"b"])

    assert values_of(placed(batch, 0)) == [(0, b"a"), (1, b"b")]
    assert values_of(placed(batch, 8, 4)) == [(8, b"a"), (9, b"b")]


def test_a_damaged_batch_is_not_read() -> None:
    content = bytearray(placed(batch_of([b"a", b"b"]), 0))
    content[-1] ^= 1

    with pytest.raises(CorruptionError):
        values_of(bytes(content))


def marker(control_type: ControlType, offset: int) -> bytes:
    return bytes(write_control_batch(ControlRecord(offset, 0, control_type, 3, 1, 0)))


def written(value: bytes, offset: int, producer: int = 3, *, transactional: bool = True) -> bytes:
    batch = batch_of([value], ProducerId(producer), 0, epoch=1, transactional=transactional)
    return placed(batch, offset)


def test_markers_hold_no_values() -> None:
    content = written(b"a", 0) + marker(ControlType.COMMIT, 1) + written(b"b", 2)

    assert values_of(content) == [(0, b"a"), (2, b"b")]


def test_a_transaction_counts_as_aborted_from_its_first_offset_to_its_marker() -> None:
    content = (
        written(b"a", 0)
        + marker(ControlType.COMMIT, 1)
        + written(b"b", 2)
        + written(b"other", 3, producer=4)
        + marker(ControlType.ABORT, 4)
        + written(b"c", 5)
        + marker(ControlType.COMMIT, 6)
    )

    assert committed_values_of(content, [(3, 2)]) == [(0, b"a"), (3, b"other"), (5, b"c")]


def test_what_is_in_no_transaction_is_never_aborted() -> None:
    content = written(b"a", 0, transactional=False) + marker(ControlType.ABORT, 1)

    assert committed_values_of(content, [(3, 0)]) == [(0, b"a")]
