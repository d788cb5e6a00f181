"""AlterReplicaLogDirs: a node has one directory, so a move to it succeeds and any other fails."""

import os
from collections.abc import Iterator

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, by_topic_in_steps, collected
from penstock.server.kafka.router import routes


@routes.handles(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, call: Request) -> Iterator[None]:
    allowed = call.authorize(AclOperation.ALTER, CLUSTER)
    found = yield from by_topic_in_steps(_rows(request, call, allowed=allowed))
    results = yield from collected(
        AlterReplicaLogDirsResponseTopic(topic_name=name, partitions=rows) for name, rows in found
    )
    call.reply(AlterReplicaLogDirsResponse(throttle_time_ms=call.charge_time(), results=results))


def _rows(
    request: AlterReplicaLogDirsRequest, call: Request, *, allowed: bool
) -> Iterator[tuple[str, AlterReplicaLogDirsResponsePartition]]:
    ours = os.path.normpath(call.backend.node.data_dir)
    for directory in request.dirs:
        is_ours = os.path.normpath(directory.path) == ours
        for topic in directory.topics:
            for index in topic.partitions:
                code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if allowed:
                    code = _judge(call, topic.name, index) if is_ours else ErrorCode.LOG_DIR_NOT_FOUND
                yield (
                    topic.name,
                    AlterReplicaLogDirsResponsePartition(partition_index=index, error_code=code),
                )


def _judge(call: Request, topic: str, index: int) -> ErrorCode:
    if call.backend.partitions.find_log(topic, index) is not None:
        return ErrorCode.NONE
    exists = call.backend.controller.image.partition(topic, index) is not None
    return ErrorCode.REPLICA_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
