"""AlterReplicaLogDirs: a node has one directory, so a move to it succeeds and any other fails."""

import os

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes


@routes.handles(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, call: Request) -> None:
    allowed = call.authorize(AclOperation.ALTER, CLUSTER)
    by_topic: dict[str, list[AlterReplicaLogDirsResponsePartition]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            by_topic.setdefault(topic.name, []).extend(
                AlterReplicaLogDirsResponsePartition(
                    partition_index=index,
                    error_code=_judge(call, directory.path, topic.name, index)
                    if allowed
                    else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                )
                for index in topic.partitions
            )
    call.reply(
        AlterReplicaLogDirsResponse(
            throttle_time_ms=call.charge_time(),
            results=tuple(
                AlterReplicaLogDirsResponseTopic(topic_name=name, partitions=tuple(rows))
                for name, rows in by_topic.items()
            ),
        )
    )


def _judge(call: Request, path: str, topic: str, index: int) -> ErrorCode:
    if os.path.normpath(path) != os.path.normpath(call.backend.node.data_dir):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if call.backend.partitions.find_log(topic, index) is not None:
        return ErrorCode.NONE
    exists = call.backend.controller.image.partition(topic, index) is not None
    return ErrorCode.REPLICA_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
