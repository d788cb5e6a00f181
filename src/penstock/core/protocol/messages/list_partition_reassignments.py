"""ListPartitionReassignments: which partitions are being moved."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, NullableArray, NullableString, Part, String


@part
class ListPartitionReassignmentsRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partition_indexes: Array[Int32]


@message(api_key=46, versions=range(1), flexible_from=0)
class ListPartitionReassignmentsRequest(Message):
    """Sent by a tool that follows a reassignment."""

    timeout_ms: Int32 = 60000
    topics: NullableArray[ListPartitionReassignmentsRequestTopic] = None


@part
class ListPartitionReassignmentsResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    replicas: Array[Int32]
    adding_replicas: Array[Int32]
    removing_replicas: Array[Int32]


@part
class ListPartitionReassignmentsResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[ListPartitionReassignmentsResponsePartition]


@message(api_key=46, versions=range(1), flexible_from=0)
class ListPartitionReassignmentsResponse(Message):
    """Sent by the controller: the moves under way, with the replicas that come and go."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    topics: Array[ListPartitionReassignmentsResponseTopic]
