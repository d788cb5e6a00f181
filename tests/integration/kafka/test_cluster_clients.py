"""Moves, elections and the quorum, asked for by other people's clients and by sockets, on one node."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import (
    InvalidReplicationAssignmentError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

from penstock.client import ClientError, Endpoint
from penstock.client.admin import drain, is_drained
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from tests.support.nodes import NodeProcess
    from tests.support.wire import Wire

TIMEOUT_SECONDS = 30


@pytest.fixture
def plain(node: "NodeProcess") -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=node.kafka)
    yield client
    client.close()


@pytest.fixture
def topic(plain: Any, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with two partitions."""
    name = f"t-{request.node.name}"
    plain.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])
    return name


def test_kafka_python_gets_the_error_of_an_impossible_reassignment(plain: Any, topic: str) -> None:
    moved = plain.alter_partition_reassignments(
        {TopicPartition(topic, 0): [9], TopicPartition(topic, 1): None, TopicPartition("gone", 0): [1]}
    )
    stays = plain.alter_partition_reassignments({TopicPartition(topic, 0): [1]})

    assert moved[TopicPartition(topic, 0)] is InvalidReplicationAssignmentError
    assert moved[TopicPartition(topic, 1)] is NoReassignmentInProgressError
    assert moved[TopicPartition("gone", 0)] is UnknownTopicOrPartitionError
    assert stays == {TopicPartition(topic, 0): None}
    assert plain.list_partition_reassignments() == {}


def test_kafka_python_elects_only_where_it_is_needed(plain: Any, topic: str) -> None:
    named = plain.elect_leaders(0, {topic: [0]})
    everywhere = plain.elect_leaders(0)

    (row,) = named.replica_election_results[0].partition_result
    assert (row.partition_id, row.error_code) == (0, ErrorCode.ELECTION_NOT_NEEDED)
    codes = [part.error_code for row in everywhere.replica_election_results for part in row.partition_result]
    assert frozenset(codes) == {ErrorCode.ELECTION_NOT_NEEDED}
    with pytest.raises(UnknownTopicOrPartitionError):
        plain.elect_leaders(0, {"gone": [0]})


def test_kafka_python_sees_one_voter(plain: Any) -> None:
    quorum = plain.describe_metadata_quorum()

    (row,) = quorum["topics"][0]["partitions"]
    assert (row["leader_id"], [voter["replica_id"] for voter in row["current_voters"]]) == (1, [1])
    assert row["high_watermark"] > 0


def test_librdkafka_gets_the_error_of_an_election_that_is_not_needed(node: "NodeProcess", topic: str) -> None:
    client = AdminClient({"bootstrap.servers": node.kafka})

    future = client.elect_leaders(ElectionType.PREFERRED, [LibrdkafkaPartition(topic, 1)])
    (error,) = future.result(TIMEOUT_SECONDS).values()

    assert error.name() == "ELECTION_NOT_NEEDED"


def test_the_broker_that_answers_is_not_forgotten(wire: "Wire") -> None:
    live = wire.ask(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse, 0)
    unknown = wire.ask(UnregisterBrokerRequest(broker_id=7), UnregisterBrokerResponse, 0)

    assert live.error_code == ErrorCode.INVALID_REQUEST
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_drained_node_gets_no_topics_and_serves_those_it_has(
    node: "NodeProcess", plain: Any, wire: "Wire", topic: str
) -> None:
    wanted = CreateTopicsRequestTopic(
        name="drained-away", num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    create = CreateTopicsRequest(topics=(wanted,))
    connection = BrokerConnection(node.address)
    drain(Endpoint(node.kafka), 1)

    drained = is_drained(connection, 1)
    refused = wire.ask(create, CreateTopicsResponse, 7)
    (described,) = plain.describe_topics([topic])
    drain(Endpoint(node.kafka), 1, undo=True)
    accepted = wire.ask(create, CreateTopicsResponse, 7)

    assert drained
    assert not is_drained(connection, 1)
    assert [row.error_code for row in refused.topics] == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert [part["leader_id"] for part in described["partitions"]] == [1, 1]
    assert [row.error_code for row in accepted.topics] == [ErrorCode.NONE]
    connection.close()


def test_any_client_can_drain_a_broker_and_only_one_that_exists(node: "NodeProcess", plain: Any) -> None:
    def set_to(value: str) -> None:
        resource = ConfigResource(ConfigResourceType.BROKER, "1", {"broker.drained": value})
        plain.alter_configs([resource])

    connection = BrokerConnection(node.address)
    set_to("true")
    drained = is_drained(connection, 1)
    set_to("false")

    assert (drained, is_drained(connection, 1)) == (True, False)
    with pytest.raises(ClientError, match="there is no broker 9"):
        drain(Endpoint(node.kafka), 9)
    connection.close()
