"""The log events of a test, as names and fields."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.observability import EventLogOptions, LogFormat, log


class EventRecorder:
    """A sink that keeps what is written."""

    is_terminal = False

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []

    def write(self, line: bytes) -> bool:
        self._events.append(json.loads(line))
        return True

    def named(self, name: str) -> list[dict[str, Any]]:
        """The events of that name, in order."""
        return [event for event in self._events if event["event"] == name]


@contextmanager
def recorded_events() -> Iterator[EventRecorder]:
    """Record events for as long as the block lasts."""
    recorder = EventRecorder()
    log.configure(EventLogOptions(format=LogFormat.JSON), recorder, lambda: 0)
    try:
        yield recorder
    finally:
        log.silence()
