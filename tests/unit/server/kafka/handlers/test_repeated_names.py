"""A name that a request repeats has one row in the response: a short request must not fill the memory."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.protocol import Message
from penstock.core.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.core.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from penstock.core.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.core.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.unit.server.kafka.handlers.test_coordinators import place_offsets_topic

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

BROKER = DescribeConfigsRequestResource(resource_type=4, resource_name="1", configuration_keys=None)
BROKERS = DescribeConfigsRequestResource(resource_type=4, resource_name="", configuration_keys=None)
PARTITIONS = DescribeProducersRequestTopic(name="t", partition_indexes=(0, 0, 1, 0))
EVERYTHING = OffsetFetchRequestGroup(group_id="g", topics=None)
OTHERS = OffsetFetchRequestGroup(group_id="h", topics=None)
CASES: tuple[tuple[Message, type[Message], int, str], ...] = (
    (DescribeGroupsRequest(groups=("g", "h", "g")), DescribeGroupsResponse, 5, "groups"),
    (
        ConsumerGroupDescribeRequest(group_ids=("g", "h", "g"), include_authorized_operations=False),
        ConsumerGroupDescribeResponse,
        1,
        "groups",
    ),
    (OffsetFetchRequest(groups=(EVERYTHING, OTHERS, EVERYTHING)), OffsetFetchResponse, 9, "groups"),
    (
        DescribeTransactionsRequest(transactional_ids=("g", "h", "g")),
        DescribeTransactionsResponse,
        0,
        "transaction_states",
    ),
    (
        DescribeConfigsRequest(resources=(BROKER, BROKERS, BROKER)),
        DescribeConfigsResponse,
        4,
        "results",
    ),
)


@pytest.mark.parametrize(("request_", "response", "version", "field"), CASES)
def test_a_repeated_name_has_one_row(
    stage: "Stage", request_: Message, response: type[Message], version: int, field: str
) -> None:
    answer = stage.ask(request_, response, version)

    assert len(getattr(answer, field)) == 2


def test_a_repeated_partition_has_one_row(stage: "Stage") -> None:
    answer = stage.ask(
        DescribeProducersRequest(topics=(PARTITIONS, PARTITIONS)), DescribeProducersResponse, 0
    )

    (topic,) = answer.topics
    assert [row.partition_index for row in topic.partitions] == [0, 1]


def test_a_repeated_partition_of_a_group_has_one_row(stage: "Stage") -> None:
    once, twice = (
        OffsetFetchRequestGroupTopic(name="t", partition_indexes=indexes) for indexes in ((0,), (0, 1, 0))
    )
    others = OffsetFetchRequestGroupTopic(name="u", partition_indexes=(0,))
    groups = tuple(
        OffsetFetchRequestGroup(group_id="g", topics=topics)
        for topics in ((once,), (twice, twice), (others,))
    )

    place_offsets_topic(stage, 1)
    answer = stage.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, 9)

    (group,) = answer.groups
    rows = {topic.name: [row.partition_index for row in topic.partitions] for topic in group.topics}
    assert rows == {"t": [0, 1], "u": [0]}
    assert len(group.topics) == 2


def test_a_repeated_partition_of_the_only_group_has_one_row(stage: "Stage") -> None:
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1, 0))

    place_offsets_topic(stage, 1)
    answer = stage.ask(OffsetFetchRequest(group_id="g", topics=(topic, topic)), OffsetFetchResponse, 7)

    (topic_row,) = answer.topics
    assert [row.partition_index for row in topic_row.partitions] == [0, 1]


@pytest.mark.parametrize("more", [None, ()], ids=["no list", "an empty list"])
def test_a_resource_whose_keys_are_asked_for_in_parts_has_one_row(
    stage: "Stage", more: tuple[str, ...] | None
) -> None:
    def ask(*keys: tuple[str, ...] | None) -> list[list[str]]:
        resources = tuple(
            DescribeConfigsRequestResource(resource_type=4, resource_name="1", configuration_keys=each)
            for each in keys
        )
        answer = stage.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, 4)
        return [[config.name for config in row.configs] for row in answer.results]

    named = ["message.max.bytes", "num.partitions"]
    parts = tuple((name, f"x{number}") for number, name in enumerate(named))

    assert ask(*parts) == [named]
    assert ask(*parts, more) == ask(None)
