"""Values go into batches and come out again, with the offsets that a log gave them."""

import pytest

from penstock.core.model import CorruptionError, LeaderEpoch, Offset, ProducerId
from penstock.core.records import stamp
from penstock.sim.values import batch_of, values_of


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
