"""Delay ids: read as they were written, and nothing else is one."""

import hashlib

import pytest

from penstock.core.delays import (
    ID_BYTES,
    ID_MAX,
    SLOTS,
    DelayId,
    choose_ids,
    read_delay_id,
    slot_at,
    write_delay_id,
    write_delay_ids,
)
from penstock.core.model import ApiError


@pytest.mark.parametrize("delay_id", [DelayId(0, 0), DelayId(3, 12345), DelayId(2**31 - 1, ID_MAX)])
def test_an_id_is_read_as_it_was_written(delay_id: DelayId) -> None:
    text = write_delay_id(delay_id)

    assert len(text) == 18
    assert read_delay_id(text) == delay_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 18,
        "A" * 18,
        "é" * 18,
        write_delay_id(DelayId(1, 2)) + "=",
        write_delay_id(DelayId(1, 2))[:-1] + "B",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    assert isinstance(read_delay_id(text), ApiError)


def test_ids_that_are_written_together_are_those_that_are_written_alone() -> None:
    ids = [0, 1, 12345, ID_MAX]

    assert write_delay_ids(3, ids) == [write_delay_id(DelayId(3, each)) for each in ids]


def test_ids_that_are_chosen_together_rise_and_belong_to_one_partition_and_one_neighbourhood() -> None:
    requests = [hashlib.shake_128(bytes((each,))).digest(100 * ID_BYTES) for each in range(50)]
    chosen = [choose_ids(entropy) for entropy in requests]

    for ids in chosen:
        assert len(ids) == 100
        assert list(ids) == sorted(set(ids))
        assert 0 <= ids[0] <= ids[-1] <= ID_MAX
        assert len({each % 4 for each in ids}) == 1
        assert ids[-1] - ids[0] < 2**48
    assert {ids[0] % 4 for ids in chosen} == {0, 1, 2, 3}
    assert len({each for ids in chosen for each in ids}) == 5_000


def test_a_client_keeps_to_one_partition_for_a_moment_and_goes_through_all_of_them() -> None:
    requests = [hashlib.shake_128(bytes((each,))).digest(10 * ID_BYTES) for each in range(64)]

    def partitions(first: int, start_ms: int, step_ms: int) -> list[int]:
        slots = [slot_at(first, start_ms + step_ms * at) for at in range(len(requests))]
        return [choose_ids(entropy, slot)[-1] % SLOTS for entropy, slot in zip(requests, slots, strict=True)]

    assert len(set(partitions(5, 0, 1))) == 1
    assert set(partitions(5, 0, 64)) == set(range(SLOTS))
    assert partitions(5, 0, 1)[0] != partitions(6, 0, 1)[0]


@pytest.mark.parametrize("byte", [0, 0xFF])
def test_chosen_ids_are_distinct_whatever_the_entropy_is(byte: int) -> None:
    ids = choose_ids(bytes((byte,)) * ID_BYTES * 1_000)

    assert len(set(ids)) == 1_000
    assert 0 <= min(ids) <= max(ids) <= ID_MAX
