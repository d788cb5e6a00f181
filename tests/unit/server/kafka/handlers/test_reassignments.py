"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders and UnregisterBroker."""

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.core.metadata import AlterPartition, BrokerEndpoint, CreateTopic, FenceBroker, IsrMember
from penstock.core.model import NodeId, PartitionIndex, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
    AlterPartitionReassignmentsResponse,
)
from penstock.core.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
    ElectLeadersResponse,
)
from penstock.core.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
    ListPartitionReassignmentsResponse,
)
from penstock.core.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

TOPIC = TopicId(UUID(int=1))
Target = tuple[int, ...] | None


def with_topic(stage: "Stage", partitions: int = 2) -> None:
    """Brokers 2 and 3 join, and topic "t" is on broker 1 alone."""
    stage.submit(CreateTopic("t", TOPIC, partitions, 1))
    for node_id in (2, 3):
        stage.add_broker(node_id, BrokerEndpoint("PLAINTEXT", "other", 9092))


def reassign(
    stage: "Stage", version: int = 1, *, resize: bool = True, **topics: dict[int, Target]
) -> AlterPartitionReassignmentsResponse:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=resize,
        topics=tuple(
            AlterPartitionReassignmentsRequestTopic(
                name=name,
                partitions=tuple(
                    AlterPartitionReassignmentsRequestPartition(partition_index=index, replicas=target)
                    for index, target in targets.items()
                ),
            )
            for name, targets in topics.items()
        ),
    )
    return stage.ask(request, AlterPartitionReassignmentsResponse, version)


def codes(answer: AlterPartitionReassignmentsResponse) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (topic.name, [(part.partition_index, part.error_code) for part in topic.partitions])
        for topic in answer.responses
    ]


def moves(stage: "Stage", **named: tuple[int, ...]) -> list[Any]:
    topics = tuple(
        ListPartitionReassignmentsRequestTopic(name=name, partition_indexes=indexes)
        for name, indexes in named.items()
    )
    request = ListPartitionReassignmentsRequest(topics=topics or None)
    answer = stage.ask(request, ListPartitionReassignmentsResponse, 0)
    assert answer.error_code == 0
    return [
        (topic.name, part.partition_index, part.replicas, part.adding_replicas, part.removing_replicas)
        for topic in answer.topics
        for part in topic.partitions
    ]


@pytest.mark.parametrize("version", range(2))
def test_every_version_starts_moves_and_calls_them_off(stage: "Stage", version: int) -> None:
    with_topic(stage)

    started = reassign(stage, version, t={0: (2, 3), 1: (3,)})
    under_way = moves(stage)
    called_off = reassign(stage, version, t={0: None})

    assert (started.error_code, started.error_message) == (0, None)
    assert codes(started) == [("t", [(0, 0), (1, 0)])]
    assert under_way == [("t", 0, (2, 3, 1), (2, 3), (1,)), ("t", 1, (3, 1), (3,), (1,))]
    assert codes(called_off) == [("t", [(0, 0)])]
    assert [move[:2] for move in moves(stage)] == [("t", 1)]


def test_each_partition_has_its_own_error(stage: "Stage") -> None:
    with_topic(stage)

    answer = reassign(stage, t={0: (7,), 1: None, 9: (1,)}, u={0: (1,)})

    assert answer.error_code == 0
    assert codes(answer) == [
        (
            "t",
            [
                (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
                (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
                (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
        ),
        ("u", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    assert all(part.error_message for topic in answer.responses for part in topic.partitions)


def test_the_number_of_replicas_is_kept_if_the_caller_says_so(stage: "Stage") -> None:
    with_topic(stage)

    answer = reassign(stage, resize=False, t={0: (1, 2), 1: (2,)})

    assert answer.allow_replication_factor_change is False
    assert codes(answer) == [("t", [(0, ErrorCode.INVALID_REPLICATION_FACTOR), (1, 0)])]


def test_moves_can_be_asked_for_by_name(stage: "Stage") -> None:
    with_topic(stage)
    reassign(stage, t={0: (2,), 1: (3,)})

    assert [move[:2] for move in moves(stage, t=(1, 1, 5), u=(0,))] == [("t", 1)]


def test_who_may_not_alter_or_describe_the_cluster_moves_and_sees_nothing(stage: "Stage") -> None:
    with_topic(stage)
    stage.authorizer.denied = {
        (AclOperation.ALTER, "kafka-cluster"),
        (AclOperation.DESCRIBE, "kafka-cluster"),
    }

    moved = reassign(stage, t={0: (2,)})
    seen = stage.ask(ListPartitionReassignmentsRequest(topics=None), ListPartitionReassignmentsResponse, 0)

    assert (moved.error_code, moved.responses) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    assert (seen.error_code, seen.topics) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
    partition = stage.backend.controller.image.partition("t", 0)
    assert partition is not None
    assert not partition.is_moving


def elect(
    stage: "Stage", version: int, election: int = 0, named: dict[str, tuple[int, ...]] | None = None
) -> ElectLeadersResponse:
    topics = None
    if named is not None:
        topics = tuple(
            ElectLeadersRequestTopicPartitions(topic=name, partitions=indexes)
            for name, indexes in named.items()
        )
    request = ElectLeadersRequest(election_type=election, topic_partitions=topics)
    return stage.ask(request, ElectLeadersResponse, version)


def results(answer: ElectLeadersResponse) -> list[tuple[str, int, int]]:
    return [
        (topic.topic, part.partition_id, part.error_code)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    ]


def prefer_another(stage: "Stage") -> None:
    """Broker 2 takes part in partition 0, and is preferred; broker 1 leads it still."""
    with_topic(stage)
    reassign(stage, t={0: (2, 1)})
    image = stage.backend.controller.image
    partition = image.partition("t", 0)
    assert partition is not None
    members = []
    for node_id in (1, 2):
        broker = image.broker(node_id)
        assert broker is not None
        members.append(IsrMember(NodeId(node_id), broker.epoch))
    stage.submit(
        AlterPartition(
            NodeId(1),
            members[0].broker_epoch,
            TOPIC,
            PartitionIndex(0),
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(members),
        )
    )


def leader_of(stage: "Stage", index: int = 0) -> int:
    partition = stage.backend.controller.image.partition("t", index)
    assert partition is not None
    return partition.leader


@pytest.mark.parametrize("version", range(3))
def test_every_version_elects_preferred_leaders(stage: "Stage", version: int) -> None:
    prefer_another(stage)
    assert leader_of(stage) == 1

    answer = elect(stage, version, named={"t": (0, 1), "u": (0,)})

    assert answer.error_code == 0
    assert results(answer) == [
        ("t", 0, 0),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
        ("u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert leader_of(stage) == 2


def test_an_election_everywhere_tells_of_those_partitions_only_that_needed_one(stage: "Stage") -> None:
    prefer_another(stage)

    assert results(elect(stage, 2)) == [("t", 0, 0)]
    assert results(elect(stage, 2)) == []
    assert leader_of(stage) == 2


def test_an_unclean_election_is_for_partitions_without_a_leader(stage: "Stage") -> None:
    with_topic(stage)
    reassign(stage, t={0: (2, 1)})

    led = elect(stage, 2, election=1, named={"t": (0,)})
    everywhere = elect(stage, 2, election=1)

    assert results(led) == [("t", 0, ErrorCode.ELECTION_NOT_NEEDED)]
    assert results(everywhere) == []


@pytest.mark.parametrize(("version", "code"), [(0, 0), (1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)])
def test_who_may_not_alter_the_cluster_elects_nobody(stage: "Stage", version: int, code: int) -> None:
    prefer_another(stage)
    stage.authorizer.denied = {(AclOperation.ALTER, "kafka-cluster")}

    answer = elect(stage, version, named={"t": (0,)})

    assert answer.error_code == code
    assert results(answer) == [("t", 0, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    assert leader_of(stage) == 1


def test_an_election_of_an_unknown_kind_is_refused(stage: "Stage") -> None:
    answer = elect(stage, 1, election=2)

    assert (answer.error_code, results(answer)) == (ErrorCode.INVALID_REQUEST, [])


def unregister(stage: "Stage", node_id: int) -> ErrorCode:
    answer = stage.ask(UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse, 0)
    assert (answer.error_message is None) == (answer.error_code == 0)
    return ErrorCode(answer.error_code)


def test_a_broker_is_forgotten_once_it_is_down(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "other", 9092))

    live = unregister(stage, 2)
    broker = stage.backend.controller.image.broker(2)
    assert broker is not None
    stage.submit(FenceBroker(NodeId(2), broker.epoch))
    down = unregister(stage, 2)

    assert (live, down) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    assert stage.backend.controller.image.broker(2) is None
    assert unregister(stage, 2) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_who_may_not_alter_the_cluster_forgets_no_broker(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "other", 9092), fenced=True)
    stage.authorizer.denied = {(AclOperation.ALTER, "kafka-cluster")}

    assert unregister(stage, 2) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert stage.backend.controller.image.broker(2) is not None
