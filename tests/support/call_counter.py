"""Counts the calls of functions between two turns of the loop: the same on every machine, other than time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.core.protocol import Message
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

# A turn of the loop may take so many calls: two milliseconds, or a few on a slow machine.
CALLS_PER_TURN_MAX = 40_000
PATIENCE_NS = 10_000_000_000


class CallCounter:
    """Counts the calls of Python functions and of builtins."""

    def __init__(self) -> None:
        self.calls = 0
        self.calls_max = 0

    def turn_ended(self) -> bool:
        """Begin the next turn. The answer is for the scheduler: go on."""
        self.calls_max = max(self.calls_max, self.calls)
        self.calls = 0
        return False

    def _entering(self, _frame: FrameType, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    @contextmanager
    def on(self) -> Iterator[None]:
        sys.setprofile(self._entering)
        try:
            yield
        finally:
            sys.setprofile(None)
            self.turn_ended()


def calls_per_turn(stage: "Stage", client: "Client", frame: bytes | bytearray) -> int:
    """Send a frame and wait for what becomes of it; returns the calls of the longest turn."""
    counter = CallCounter()
    with counter.on():
        for _ in client.feed(bytearray(frame)):
            counter.turn_ended()
        stage.world.run(
            PATIENCE_NS, lambda: counter.turn_ended() or client.has_answer or client.tcp.is_closed
        )
    assert client.has_answer or client.tcp.is_closed, "no answer"
    return counter.calls_max


def calls_of(stage: "Stage", client: "Client", request: "Message", version: int) -> int:
    """The same of a request, whose response the client may receive afterwards."""
    from penstock.core.protocol import RequestHeader, request_frame
    from penstock.core.protocol.messages.registry import APIS

    api_key = request.__schema__.api_key
    assert api_key is not None
    frame = request_frame(APIS[api_key], RequestHeader(api_key, version, 7, "test"), request)
    return calls_per_turn(stage, client, frame)
