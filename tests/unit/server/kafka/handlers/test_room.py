"""Large requests keep their room until they have a response, and no longer."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.model import MILLISECOND
from penstock.core.protocol import Message
from penstock.core.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.server.kafka.slice_scheduler import ADDRESS_BYTES

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

TOPICS = 300
TOPIC_RESOURCE = 2


def names() -> list[str]:
    return [f"a topic with a name of some length {number}" for number in range(TOPICS)]


def topics_to_create() -> CreateTopicsRequest:
    topics = tuple(
        CreateTopicsRequestTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in names()
    )
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000)


def configs_to_alter() -> IncrementalAlterConfigsRequest:
    config = IncrementalAlterConfigsRequestConfig(name="retention.ms", config_operation=0, value="1")
    resources = tuple(
        IncrementalAlterConfigsRequestResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configs=(config,)
        )
        for name in names()
    )
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


CHANGES = [
    (topics_to_create(), 5),
    (DeleteTopicsRequest(topic_names=tuple(names()), timeout_ms=60_000), 5),
    (configs_to_alter(), 1),
]


@pytest.mark.parametrize(("request_", "version"), CHANGES, ids=["create", "delete", "alter"])
@pytest.mark.parametrize("leaves", [False, True])
def test_changes_keep_their_room_until_all_of_them_are_decided(
    stage: "Stage", request_: Message, version: int, leaves: bool
) -> None:
    client = stage.client()
    client.send(request_, version)

    while not stage.room_bytes:
        stage.run(MILLISECOND // 100)
    if leaves:
        client.leave()
    else:
        stage.world.run(100 * MILLISECOND, lambda: not stage.room_bytes or client.has_answer)
        assert client.has_answer
    stage.run()

    assert stage.room_bytes == 0


def test_who_leaves_while_its_request_is_decoded_leaves_no_room_behind(stage: "Stage") -> None:
    client = stage.client()
    client.send(MetadataRequest(topics=tuple(MetadataRequestTopic(name=name) for name in names())), 9)
    assert stage.room_bytes > 0

    client.leave()
    stage.run()

    assert stage.room_bytes == 0


def test_a_large_fetch_that_waits_for_records_needs_no_room(stage: "Stage") -> None:
    create = CreateTopicsRequestTopic(
        name="orders", num_partitions=1_000, replication_factor=1, assignments=(), configs=()
    )
    stage.client().send(CreateTopicsRequest(topics=(create,), timeout_ms=60_000), 5)
    stage.run()
    parts = tuple(
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
        for index in range(1_000)
    )
    client = stage.client()

    topic = FetchRequestTopic(topic="orders", partitions=parts)
    client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=(topic,)), 11)
    assert 0 < stage.room_bytes <= ADDRESS_BYTES
    stage.run()

    assert not client.has_answer
    assert stage.room_bytes == 0
    assert not client.tcp.is_paused
    stage.run(60_000 * MILLISECOND)
    assert client.has_answer
