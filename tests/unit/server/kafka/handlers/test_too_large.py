"""Requests beyond the limits of their API: refused before anything is made of them."""

import struct
from typing import TYPE_CHECKING

import pytest

from penstock.core.protocol import ErrorCode, RequestHeader, request_frame
from penstock.core.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.core.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.core.protocol.messages.registry import APIS
from penstock.server.kafka.request_limits import limit_of
from tests.support.recorded_events import recorded_events

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

LIST_GROUPS, DESCRIBE_GROUPS, METADATA = APIS[16], APIS[15], APIS[3]


def announce(client: "Client", api_key: int, version: int, size: int, arrived: int) -> None:
    """Let the beginning of a frame arrive: its size, its header and nothing that makes sense."""
    header = struct.pack(">ihhih", size, api_key, version, 7, -1)
    frame = bytearray(header + bytes(max(arrived - len(header), 0)))
    for _ in client.feed(frame[:arrived]):
        pass


@pytest.mark.parametrize("arrived", [12, 200_000], ids=["its first bytes", "more than a buffer"])
def test_a_frame_that_is_too_large_for_its_api_is_refused_before_it_has_arrived(
    stage: "Stage", arrived: int
) -> None:
    client, size = stage.client(), limit_of(LIST_GROUPS).bytes_max + 1_000_000

    announce(client, LIST_GROUPS.key, 4, size, arrived)

    answer = client.receive(ListGroupsResponse, 4)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert stage.claimed_bytes == 0


def test_the_rest_of_a_refused_frame_is_dropped_and_the_next_request_served(stage: "Stage") -> None:
    client, size = stage.client(), limit_of(LIST_GROUPS).bytes_max + 1_000_000
    announce(client, LIST_GROUPS.key, 4, size, 100)
    client.receive(ListGroupsResponse, 4)

    next_request = request_frame(
        METADATA, RequestHeader(METADATA.key, 9, 7, "test"), MetadataRequest(topics=())
    )
    for _ in client.feed(bytearray(size - 96) + next_request):
        assert stage.claimed_bytes == 0
    stage.run()

    assert client.receive(MetadataResponse, 9).topics == ()


@pytest.mark.parametrize("first", [4, 6, 11])
def test_it_does_not_matter_how_its_first_bytes_arrive(stage: "Stage", first: int) -> None:
    client, size = stage.client(), limit_of(LIST_GROUPS).bytes_max + 1
    frame = struct.pack(">ihhih", size, LIST_GROUPS.key, 4, 7, -1)

    for piece in (frame[:first], frame[first:]):
        for _ in client.feed(bytearray(piece)):
            pass

    assert client.receive(ListGroupsResponse, 4).error_code == ErrorCode.INVALID_REQUEST


def test_where_only_rows_have_errors_the_connection_is_closed_and_the_log_says_why(stage: "Stage") -> None:
    client, limit = stage.client(), limit_of(DESCRIBE_GROUPS)

    with recorded_events() as events:
        announce(client, DESCRIBE_GROUPS.key, 5, limit.bytes_max + 1, 100)

    assert client.tcp.is_closed
    (event,) = events.named("kafka.request_too_large")
    assert (event["api"], event["limit"]) == (
        "DescribeGroups",
        f"it has {limit.bytes_max + 1:,} bytes, and {limit.bytes_max:,} are allowed",
    )


def test_a_frame_within_the_limit_of_its_api_is_received(stage: "Stage") -> None:
    client = stage.client()

    announce(client, METADATA.key, 9, limit_of(METADATA).bytes_max, 100)

    assert not client.tcp.is_closed
    assert not client.has_answer


def test_more_entries_than_an_api_allows_are_refused(stage: "Stage") -> None:
    limit = limit_of(LIST_GROUPS)
    client = stage.client()

    client.send(ListGroupsRequest(states_filter=("",) * (limit.entries_max + 1)), 5)
    stage.run()

    assert client.receive(ListGroupsResponse, 5).error_code == ErrorCode.INVALID_REQUEST


def test_as_many_entries_as_an_api_allows_are_served(stage: "Stage") -> None:
    limit = limit_of(LIST_GROUPS)
    client = stage.client()

    client.send(ListGroupsRequest(states_filter=("",) * limit.entries_max), 5)
    stage.run()

    assert client.receive(ListGroupsResponse, 5).error_code == ErrorCode.NONE


def test_too_many_entries_close_the_connection_where_only_rows_have_errors(stage: "Stage") -> None:
    limit = limit_of(DESCRIBE_GROUPS)
    client = stage.client()

    with recorded_events() as events:
        client.send(DescribeGroupsRequest(groups=("",) * (limit.entries_max + 1)), 5)
        stage.run()

    assert client.tcp.is_closed
    (event,) = events.named("kafka.request_too_large")
    assert event["limit"] == f"it has more than {limit.entries_max:,} entries"


def test_requests_behind_a_large_one_are_answered_behind_it(stage: "Stage") -> None:
    client = stage.client()
    topics = tuple(MetadataRequestTopic(name=f"t{number}") for number in range(5_000))
    header = RequestHeader(METADATA.key, 9, 7, "test")
    large = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    small = MetadataRequest(topics=(), allow_auto_topic_creation=False)

    for _ in client.feed(request_frame(METADATA, header, large) + request_frame(METADATA, header, small)):
        pass
    assert not client.has_answer
    stage.run()

    assert len(client.receive(MetadataResponse, 9).topics) == 5_000
    assert client.receive(MetadataResponse, 9).topics == ()


def test_a_client_that_leaves_takes_its_large_request_with_it(stage: "Stage") -> None:
    client, other = stage.client(), stage.client()
    topics = tuple(MetadataRequestTopic(name=f"t{number}") for number in range(50_000))
    client.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)

    client.leave()
    other.send(MetadataRequest(topics=topics[:5_000], allow_auto_topic_creation=False), 9)
    stage.run()

    assert not client.has_answer
    assert len(other.receive(MetadataResponse, 9).topics) == 5_000
