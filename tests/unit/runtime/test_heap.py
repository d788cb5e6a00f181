"""When a node gives memory back."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.runtime.heap import (
    GROWTH_BYTES_MIN,
    INTERVAL_SECONDS_MAX,
    INTERVAL_SECONDS_MIN,
    WORTH_BYTES,
    HeapTrimmer,
    resident_bytes,
)

START_BYTES = 50 << 20


class Process:
    """A loop that notes when it is to call, and a process of some size."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.resident = START_BYTES
        self.kept = 0
        self.in_cycles = 0
        self.trims = 0
        loop = cast("asyncio.AbstractEventLoop", self)
        self.trimmer = HeapTrimmer(loop, lambda: self.resident, self._trim, self._collect)

    def call_later(self, seconds: float, _call: Callable[..., Any]) -> None:
        self.waits.append(seconds)

    def _collect(self) -> None:
        """What is in cycles is the C library's, once cycles are collected."""
        self.kept, self.in_cycles = self.kept + self.in_cycles, 0

    def _trim(self) -> None:
        self.trims += 1
        self.resident, self.kept = self.resident - self.kept, 0

    def grow(self, size: int, kept: int = 0) -> None:
        self.resident, self.kept = self.resident + size, kept


def test_a_process_that_is_about_as_large_as_at_its_start_keeps_what_it_has() -> None:
    process = Process()
    process.grow(GROWTH_BYTES_MIN - 1, kept=WORTH_BYTES)

    process.trimmer.check()

    assert process.trims == 0
    assert process.waits == [INTERVAL_SECONDS_MIN, INTERVAL_SECONDS_MIN]


def test_what_ended_in_cycles_is_given_back_too() -> None:
    process = Process()
    process.grow(100 << 20)
    process.in_cycles = 80 << 20

    process.trimmer.check()

    assert process.resident == START_BYTES + (20 << 20)


def test_a_process_that_has_grown_gives_back_what_it_does_not_need() -> None:
    process = Process()
    process.grow(100 << 20, kept=60 << 20)

    process.trimmer.check()

    assert process.resident == START_BYTES + (40 << 20)
    assert process.waits[-1] == INTERVAL_SECONDS_MIN


def test_the_less_comes_of_it_the_seldomer_it_is_done() -> None:
    process = Process()
    process.grow(100 << 20)
    for _ in range(10):
        process.trimmer.check()
    waits = process.waits[1:]
    process.grow(0, kept=WORTH_BYTES)

    process.trimmer.check()

    assert waits[:3] == [2 * INTERVAL_SECONDS_MIN, 4 * INTERVAL_SECONDS_MIN, 8 * INTERVAL_SECONDS_MIN]
    assert waits[-1] == INTERVAL_SECONDS_MAX
    assert process.waits[-1] == INTERVAL_SECONDS_MIN


@pytest.mark.skipif(not resident_bytes(), reason="there is no /proc")
def test_the_memory_of_a_process_is_known() -> None:
    assert (1 << 20) < resident_bytes() < (1 << 40)
