"""Receipts, and whatever else somebody sends in the place of one."""

import base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Offset, PartitionIndex, TopicId
from penstock.core.queues import (
    INVALID_RECEIPT,
    TOKEN_MAX,
    LeaseClaim,
    Receipt,
    read_receipt,
    read_receipts,
    write_receipt,
)

RECEIPT = Receipt(TopicId(UUID(int=7)), PartitionIndex(3), Offset(1_000), 2, 0x0102030405060708)


def test_the_bytes_of_a_receipt() -> None:
    text = write_receipt(RECEIPT)

    assert len(text) == 52
    assert base64.urlsafe_b64decode(text).hex(" ", 8) == bytes.fromhex(
        "01 00000000000000000000000000000007 00000003 00000000000003e8 0002 0102030405060708"
    ).hex(" ", 8)
    assert RECEIPT.claim == LeaseClaim(Offset(1_000), 2, 0x0102030405060708)


@given(
    st.builds(
        Receipt,
        st.uuids().map(TopicId),
        st.integers(0, 2**31 - 1).map(PartitionIndex),
        st.integers(0, 2**63 - 1).map(Offset),
        st.integers(1, 2**16 - 1),
        st.integers(0, TOKEN_MAX),
    )
)
def test_a_receipt_is_read_as_it_was_written(receipt: Receipt) -> None:
    assert read_receipt(write_receipt(receipt)) == receipt


@given(st.one_of(st.text(max_size=60), st.text("ABCabc019-_=", min_size=52, max_size=52)))
def test_any_text_is_a_receipt_or_an_error(text: str) -> None:
    read = read_receipt(text)

    assert read == INVALID_RECEIPT or (isinstance(read, Receipt) and write_receipt(read) == text)


@given(
    st.lists(
        st.sampled_from([write_receipt(RECEIPT), write_receipt(RECEIPT._replace(attempt=3))])
        | st.text("ABCabc019-_=", min_size=51, max_size=53)
    )
)
def test_receipts_are_read_together_as_one_by_one(texts: list[str]) -> None:
    assert read_receipts(texts) == [read_receipt(text) for text in texts]


@pytest.mark.parametrize(
    "packed",
    [
        "02" + "00" * 28 + "0001" + "00" * 8,
        "01" + "00" * 28 + "0000" + "00" * 8,
        "01" + "00" * 28 + "0001" + "ff" * 8,
        "01" + "00" * 16 + "ff" * 4 + "00" * 8 + "0001" + "00" * 8,
        "01" + "00" * 20 + "ff" * 8 + "0001" + "00" * 8,
    ],
)
def test_values_that_no_receipt_has_are_refused(packed: str) -> None:
    text = base64.urlsafe_b64encode(bytes.fromhex(packed)).decode()

    assert len(text) == 52
    assert read_receipt(text) == INVALID_RECEIPT
