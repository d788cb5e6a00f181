"""CreateTopic, DeleteTopic, ListTopics, and what a wrong one is told."""

from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from penstock.v1.penstock_pb2 import CreateTopicRequest, DeleteTopicRequest, PublishRequest


def test_a_topic_is_created_listed_and_deleted(penstock: Any) -> None:
    created = penstock.CreateTopic(
        CreateTopicRequest(name="made", partitions=3, replication_factor=1, config={"retention.ms": "1000"})
    )
    listed = {topic.name: topic for topic in penstock.ListTopics(Empty()).topics}
    penstock.DeleteTopic(DeleteTopicRequest(name="made"))

    assert (created.name, created.partitions, created.replication_factor) == ("made", 3, 1)
    assert listed["made"] == created
    assert "made" not in {topic.name for topic in penstock.ListTopics(Empty()).topics}


def test_a_topic_without_numbers_has_the_defaults_of_the_cluster(penstock: Any) -> None:
    created = penstock.CreateTopic(CreateTopicRequest(name="by-default"))

    assert (created.partitions, created.replication_factor) == (2, 1)


def test_internal_topics_are_not_listed(penstock: Any) -> None:
    assert not [topic.name for topic in penstock.ListTopics(Empty()).topics if topic.name.startswith("__")]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "a b"}, "INVALID_TOPIC_EXCEPTION"),
        ({"name": ""}, "INVALID_TOPIC_EXCEPTION"),
        ({"partitions": 0}, "partitions: 0 is less than 1"),
        ({"partitions": 2_000_000_000}, "INVALID_PARTITIONS"),
        ({"replication_factor": -1}, "replication_factor: -1 is less than 1"),
        ({"replication_factor": 1 << 20}, "replication_factor: 1048576 is more than 32767"),
        ({"replication_factor": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"config": {"colour": "red"}}, "colour"),
    ],
    ids=str,
)
def test_a_topic_that_cannot_be_is_refused(penstock: Any, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.CreateTopic(CreateTopicRequest(**{"name": "x"} | fields))

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert words in refused.value.details()


def test_a_topic_is_not_created_twice(penstock: Any, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.CreateTopic(CreateTopicRequest(name=topic))

    assert refused.value.code() == grpc.StatusCode.ALREADY_EXISTS


def test_internal_topics_are_not_deleted(penstock: Any, topic: str) -> None:
    penstock.Publish(PublishRequest(topic=topic, value=b"v", delay_ms=3_600_000))

    with pytest.raises(grpc.RpcError) as refused:
        penstock.DeleteTopic(DeleteTopicRequest(name="__delayed"))

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_topic_that_is_not_there_is_not_deleted(penstock: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        penstock.DeleteTopic(DeleteTopicRequest(name="nowhere"))

    assert refused.value.code() == grpc.StatusCode.NOT_FOUND
