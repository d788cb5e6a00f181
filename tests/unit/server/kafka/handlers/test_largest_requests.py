"""No request holds the loop: the work between two turns is bounded, however many rows a request has.

Every API that is served gets requests built from the message table, with as many entries as it allows, or
as many as show that work is not cut: in each of its arrays, of things that exist and of things that do
not. Work is counted in calls of functions, which are the same on every machine.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from benchmarks.attacks.largest_requests import LargestRequest, largest_requests
from penstock.core.protocol import Api
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.request_limits import limit_of

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

# A turn of the loop may take so many calls: two milliseconds, or a few on a slow machine.
CALLS_PER_TURN_MAX = 40_000
ENTRIES = 6_000
BYTES = 1 << 20
APIS = [route.api for route in every_route().all()]


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


def serve(stage: "Stage", client: "Client", attack: LargestRequest) -> int:
    """Send a request and wait for what becomes of it; returns the calls of the longest turn."""
    counter = CallCounter()
    frame = bytearray(attack.frame)
    with counter.on():
        for _ in client.feed(frame):
            counter.turn_ended()
        stage.world.run(
            10_000_000_000, lambda: counter.turn_ended() or client.has_answer or client.tcp.is_closed
        )
    assert client.has_answer or client.tcp.is_closed, f"{attack.name}: no answer"
    return counter.calls_max


def create_topics(stage: "Stage", count: int) -> tuple[UUID, ...]:
    topics = tuple(
        CreateTopicsRequestTopic(
            name=f"t{number}", num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for number in range(count)
    )
    created = stage.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), CreateTopicsResponse, 7)
    return tuple(topic.topic_id for topic in created.topics)


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_the_largest_request_of_an_api_is_served_in_small_turns(stage: "Stage", api: Api) -> None:
    topic_ids = create_topics(stage, 10)
    limit = limit_of(api)
    bytes_max, entries_max = min(limit.bytes_max, BYTES), min(limit.entries_max, ENTRIES)
    requests = largest_requests(
        api,
        api.versions[-1],
        bytes_max,
        entries_max,
        fills=("existing", "unknown"),
        topic_ids=topic_ids,
    )

    worst = {attack.name: serve(stage, stage.client(), attack) for attack in requests}

    assert {name: calls for name, calls in worst.items() if calls > CALLS_PER_TURN_MAX} == {}
