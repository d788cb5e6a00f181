"""AlterPartitionReassignments: moving partitions to other brokers."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
    since,
)


@part
class AlterPartitionReassignmentsRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    replicas: NullableArray[Int32] = None


@part
class AlterPartitionReassignmentsRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partitions: Array[AlterPartitionReassignmentsRequestPartition]


@message(api_key=45, versions=range(2), flexible_from=0)
class AlterPartitionReassignmentsRequest(Message):
    """Sent by an administrator with the replicas each partition shall have; null cancels a move."""

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = since(1, default=True)
    topics: Array[AlterPartitionReassignmentsRequestTopic]


@part
class AlterPartitionReassignmentsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString


@part
class AlterPartitionReassignmentsResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[AlterPartitionReassignmentsResponsePartition]


@message(api_key=45, versions=range(2), flexible_from=0)
class AlterPartitionReassignmentsResponse(Message):
    """Sent by the controller: whether each move was started or cancelled."""

    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = since(1, default=True, ignorable=True)
    error_code: Int16
    error_message: NullableString
    responses: Array[AlterPartitionReassignmentsResponseTopic]
