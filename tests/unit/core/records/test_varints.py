"""Zig-zag integers of one to ten bytes."""

import pytest

from penstock.core.records.varints import read_varint, read_varlong, write_varint

KNOWN = {
    0: "00",
    -1: "01",
    1: "02",
    -2: "03",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    -8192: "ff7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("value", "encoded"), KNOWN.items())
def test_known_values_have_their_known_bytes(value: int, encoded: str) -> None:
    out = bytearray(b"\xaa")

    write_varint(out, value)

    assert out[1:].hex() == encoded
    assert read_varlong(bytes(out), 1) == (value, len(out))


@pytest.mark.parametrize("value", [v for v in KNOWN if -(2**31) <= v < 2**31])
def test_varints_hold_32_bits(value: int) -> None:
    assert read_varint(bytes.fromhex(KNOWN[value]), 0) == (value, len(KNOWN[value]) // 2)


@pytest.mark.parametrize("encoded", ["8080808010", "ffffffffff", "808080808000", "ffffffffffffffffff01"])
def test_more_than_32_bits_are_refused(encoded: str) -> None:
    with pytest.raises(ValueError, match="past 32 bits"):
        read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["80808080808080808002", "ff" * 10, "80" * 10 + "00"])
def test_more_than_64_bits_are_refused(encoded: str) -> None:
    with pytest.raises(ValueError, match="past 64 bits"):
        read_varlong(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_bytes_that_end_early_are_told_apart(encoded: str) -> None:
    with pytest.raises(IndexError):
        read_varint(bytes.fromhex(encoded), 0)
    with pytest.raises(IndexError):
        read_varlong(bytes.fromhex(encoded), 0)


def test_leading_zeros_are_accepted_within_the_bound_as_other_brokers_do() -> None:
    assert read_varint(bytes.fromhex("8000"), 0) == (0, 2)
    assert read_varint(bytes.fromhex("8280808000"), 0) == (1, 5)
