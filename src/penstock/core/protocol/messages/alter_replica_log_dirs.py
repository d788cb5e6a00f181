"""AlterReplicaLogDirs: moving replicas between a broker's data directories."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Part, String


@part
class AlterReplicaLogDirsRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partitions: Array[Int32]


@part
class AlterReplicaLogDirsRequestDirectory(Part):
    """A data directory, and the replicas that shall live there."""

    path: String
    topics: Array[AlterReplicaLogDirsRequestTopic]


@message(api_key=34, versions=range(3), flexible_from=2)
class AlterReplicaLogDirsRequest(Message):
    """Sent by an administrator to the broker that holds the replicas."""

    dirs: Array[AlterReplicaLogDirsRequestDirectory]


@part
class AlterReplicaLogDirsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


@part
class AlterReplicaLogDirsResponseTopic(Part):
    """A topic of the answer."""

    topic_name: String
    partitions: Array[AlterReplicaLogDirsResponsePartition]


@message(api_key=34, versions=range(3), flexible_from=2)
class AlterReplicaLogDirsResponse(Message):
    """Sent by that broker: whether each move was accepted."""

    throttle_time_ms: Int32
    results: Array[AlterReplicaLogDirsResponseTopic]
