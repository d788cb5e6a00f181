"""How seldom a node looks for reference cycles, and how long a look may become."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.runtime.loop import freeze_garbage_collector

# Some 100 ns each, while every client waits.
SCANNED_MAX = 200_000
CREATED = 1_200_000


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations that were scanned, in order."""
    scanned: list[int] = []
    thresholds = gc.get_threshold()

    def note(phase: str, details: dict[str, Any]) -> None:
        if phase == "start":
            scanned.append(details["generation"])

    gc.callbacks.append(note)
    yield scanned
    gc.callbacks.remove(note)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_no_look_of_the_collector_takes_in_all_that_clients_have_added(collections: list[int]) -> None:
    freeze_garbage_collector()
    collections.clear()

    kept: list[list[int]] = [[] for _ in range(CREATED)]

    youngest = gc.get_threshold()[0]
    unscanned, most = 0, 0
    for generation in collections:
        unscanned += youngest
        if generation:
            most, unscanned = max(most, unscanned), 0
    assert len(kept) == CREATED
    assert len(collections) >= CREATED / youngest - 2
    assert 0 < most <= SCANNED_MAX
    assert 2 not in collections
