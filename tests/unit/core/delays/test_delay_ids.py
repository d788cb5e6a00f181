"""Delay ids: read as they were written, and nothing else is one."""

import pytest

from penstock.core.delays import ID_MAX, DelayId, read_delay_id, write_delay_id
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
