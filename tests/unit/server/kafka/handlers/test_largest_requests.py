"""No request holds the loop: the work between two turns is bounded, however many rows a request has.

Every API that is served gets requests built from the message table, with as many entries as it allows, or
as many as show that work is not cut: in each of its arrays, of things that exist and of things that do
not. Work is counted in calls of functions, which are the same on every machine.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from benchmarks.attacks.largest_requests import LargestRequest, huge_requests, largest_requests
from penstock.core.protocol import Api
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.request_limits import limit_of
from tests.support.call_counter import CALLS_PER_TURN_MAX, calls_per_turn

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

ENTRIES = 6_000
# Of the first topic.
PARTITIONS = 50
FILLS = ("existing", "unknown", "repeated", "whole")
BYTES = 1 << 20
APIS = [route.api for route in every_route().all()]


def create_topics(stage: "Stage", count: int) -> tuple[UUID, ...]:
    """Topics, the first of which has many partitions."""
    topics = tuple(
        CreateTopicsRequestTopic(
            name=f"t{number}",
            num_partitions=1 if number else PARTITIONS,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        for number in range(count)
    )
    created = stage.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), CreateTopicsResponse, 7)
    return tuple(topic.topic_id for topic in created.topics)


def attacks_on(api: Api, topic_ids: tuple[UUID, ...]) -> Iterator[LargestRequest]:
    limit = limit_of(api)
    bytes_max, entries_max = min(limit.bytes_max, BYTES), min(limit.entries_max, ENTRIES)
    first, *_, last = (*api.versions, *api.versions)
    fills = (*FILLS, "groups") if api.name.endswith("Configs") else FILLS
    yield from largest_requests(api, last, bytes_max, entries_max, fills=fills, topic_ids=topic_ids)
    yield from huge_requests(api, last, bytes_max)
    if first != last:
        few = entries_max // 2
        yield from largest_requests(api, first, bytes_max, few, fills=("existing",), topic_ids=topic_ids)


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_the_largest_request_of_an_api_is_served_in_small_turns(stage: "Stage", api: Api) -> None:
    topic_ids = create_topics(stage, 10)

    worst = {
        attack.name: calls_per_turn(stage, stage.client(), attack.frame)
        for attack in attacks_on(api, topic_ids)
    }

    assert {name: calls for name, calls in worst.items() if calls > CALLS_PER_TURN_MAX} == {}
