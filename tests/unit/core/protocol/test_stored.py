"""Stored messages whose version nobody knows."""

import pytest

from penstock.core.model import ProtocolError
from penstock.core.protocol.state_records import (
    OFFSETS_KEYS,
    ConsumerProtocolSubscription,
    OffsetCommitValue,
    read_embedded,
    read_key,
    read_stored,
)


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x00\x63\x00", b"\xff\xff\x00"])
def test_a_value_of_an_unknown_version_is_refused(stored: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_stored(OffsetCommitValue, stored)


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x00\x63\x00\x01g", b"\xff\xff"])
def test_a_key_of_an_unknown_kind_is_refused(stored: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_key(OFFSETS_KEYS, stored)


def test_an_embedded_message_of_a_negative_version_is_refused() -> None:
    with pytest.raises(ProtocolError):
        read_embedded(ConsumerProtocolSubscription, b"\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff")
