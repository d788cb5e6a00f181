"""Audit logs that somebody has damaged, and times that nobody means."""

import json

import pytest

from penstock.cli.audit import entries_in, moment_of, row_of
from penstock.cli.broker_options import InvalidOption


@pytest.mark.parametrize(
    "text", ["", "d", "yesterday", "99999999999d", "0001-01-01T00:00:00+14:00", "٣d " * 9]
)
def test_a_time_that_is_none_is_one_clear_error(text: str) -> None:
    with pytest.raises(InvalidOption, match="expected a time"):
        moment_of(text)


def test_a_time_in_another_zone_is_the_same_moment() -> None:
    assert moment_of("2030-01-01T12:00:00+02:00") == "2030-01-01T10:00:00.000Z"


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"5", b"\xff\xfe", b"[" * 100_000, b'{"time":' + b"9" * 5_000 + b"}"]
)
def test_what_is_no_entry_is_passed_over(line: bytes) -> None:
    good = json.dumps({"time": "2030-01-01T00:00:00.000Z", "principal": "User:alice"}).encode()

    found = list(entries_in([line, good], "alice", None, refused=False))

    assert [entry["principal"] for entry, _ in found] == ["User:alice"]


def test_an_entry_with_odd_fields_has_a_row() -> None:
    row = row_of(
        {"time": 5, "principal": None, "details": 85, "resource": "orders", "resource_type": "topic"}
    )

    assert row[0] == "5"
    assert row[4] == "topic orders"
