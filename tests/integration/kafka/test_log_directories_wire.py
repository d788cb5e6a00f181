"""A node has one directory: replicas are there already, and cannot be anywhere else."""

from typing import TYPE_CHECKING

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDirectory,
    AlterReplicaLogDirsRequestTopic,
    AlterReplicaLogDirsResponse,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

if TYPE_CHECKING:
    from tests.support.nodes import NodeProcess
    from tests.support.wire import Wire


def moved_to(path: str, topic: str, *partitions: int) -> AlterReplicaLogDirsRequest:
    wanted = AlterReplicaLogDirsRequestTopic(name=topic, partitions=partitions)
    return AlterReplicaLogDirsRequest(
        dirs=(AlterReplicaLogDirsRequestDirectory(path=path, topics=(wanted,)),)
    )


def codes(answer: AlterReplicaLogDirsResponse) -> list[int]:
    return [row.error_code for topic in answer.results for row in topic.partitions]


def test_moving_a_replica_to_where_it_is_changes_nothing(node: "NodeProcess", wire: "Wire") -> None:
    wire.ask(MetadataRequest(topics=(MetadataRequestTopic(name="settled"),)), MetadataResponse, 9)

    answer = wire.ask(moved_to(str(node.data_dir), "settled", 0, 99), AlterReplicaLogDirsResponse, 2)

    assert codes(answer) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_no_other_directory_is_known(wire: "Wire") -> None:
    answer = wire.ask(moved_to("/elsewhere", "settled", 0), AlterReplicaLogDirsResponse, 2)

    assert codes(answer) == [ErrorCode.LOG_DIR_NOT_FOUND]
