"""Errors on their way to Spark."""

import os

import pytest

from penstock.spark.errors import PipelineError, in_one_line

SWITCH = "SPARK_HIDE_TRACEBACK"


@in_one_line
def plan(error: Exception | None) -> None:
    if error is not None:
        raise error


@pytest.fixture(autouse=True)
def switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "")
    monkeypatch.delenv(SWITCH)


def test_an_expected_error_is_shown_without_its_traceback() -> None:
    with pytest.raises(PipelineError):
        plan(PipelineError("no such topic"))

    assert os.environ[SWITCH]


def test_the_next_call_shows_tracebacks_again() -> None:
    with pytest.raises(PipelineError):
        plan(PipelineError("no such topic"))
    with pytest.raises(ZeroDivisionError):
        plan(ZeroDivisionError())

    assert SWITCH not in os.environ


def test_a_choice_of_the_user_stays() -> None:
    os.environ[SWITCH] = "1"

    plan(None)

    assert os.environ[SWITCH] == "1"
