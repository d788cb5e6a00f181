"""AlterReplicaLogDirs on a node of several: it has replicas of some partitions only."""

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.core.metadata import BrokerEndpoint, CreatedTopic, CreateTopic, ReplicaAssignment
from penstock.core.model import NodeId, PartitionIndex, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDirectory,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def test_a_partition_without_a_replica_here_is_told_from_one_that_there_is_not(stage: "Stage") -> None:
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "host-2", 9092))
    placed = [ReplicaAssignment(PartitionIndex(index), (NodeId(1 + index),)) for index in range(2)]
    created = stage.submit(CreateTopic("orders", TopicId(UUID(int=5)), assignments=tuple(placed)))
    assert isinstance(created, CreatedTopic)
    asked = AlterReplicaLogDirsRequestTopic(name="orders", partitions=(0, 1, 2))
    here = AlterReplicaLogDirsRequestDirectory(path=stage.backend.node.data_dir, topics=(asked,))

    answer = stage.client().ask(AlterReplicaLogDirsRequest(dirs=(here,)), AlterReplicaLogDirsResponse, 2)

    assert [row.error_code for topic in answer.results for row in topic.partitions] == [
        ErrorCode.NONE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
