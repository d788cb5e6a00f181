"""What commands print of names that other users chose."""

import json
import sys

import pytest

from penstock.cli.entry import _failed
from penstock.cli.output import note, plain_table, printable, say, show_json, show_table

ODD = "a\x1b]0;b\x07\x9b2J\r\n\u202e\udc80é…"
SHOWN = "a\\x1b]0;b\\x07\\x9b2J\\r\\n\\u202e\\udc80é…"


def test_what_moves_a_cursor_is_escaped_and_text_stays_as_it_is() -> None:
    assert printable(ODD) == SHOWN
    assert printable("größe [3] C:\\x") == "größe [3] C:\\x"


def test_names_do_not_move_the_cursor_in_a_plain_table() -> None:
    lines = list(plain_table(("group", "state"), [(ODD, "Empty"), ("b", "Stable")]))

    assert lines[1] == f"{SHOWN}  Empty"
    assert [line.index(state) for line, state in zip(lines[1:], ("Empty", "Stable"), strict=True)] == [
        len(SHOWN) + 2
    ] * 2


def test_names_do_not_move_the_cursor_in_a_table_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")

    show_table("", ("group",), [(ODD,)])

    shown = capsys.readouterr().out
    assert SHOWN in shown
    assert shown.replace("\n", "").isprintable()


def test_names_do_not_move_the_cursor_in_lines_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{ODD}: Empty")
    note(f"deleted {ODD}")
    _failed("group a\x1b[2J does not exist")

    shown = capsys.readouterr()
    assert shown.out == f"{SHOWN}: Empty\n"
    assert shown.err == f"deleted {SHOWN}\npenstock: group a\\x1b[2J does not exist\n"


def test_json_has_the_same_names_and_does_not_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"groups": [ODD, "größe", "\U000e0001"]}

    show_json(value)

    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert shown.replace("\n", "").isprintable()
    assert "größe" in shown
