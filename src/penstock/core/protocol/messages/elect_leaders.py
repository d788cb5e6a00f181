"""ElectLeaders: electing partition leaders on demand."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
    since,
)


@part
class ElectLeadersRequestTopicPartitions(Part):
    """A topic and some of its partitions."""

    topic: String
    partitions: Array[Int32]


@message(api_key=43, versions=range(3), flexible_from=2)
class ElectLeadersRequest(Message):
    """Sent by an administrator: preferred leaders back into office, or any replica where none is in sync."""

    election_type: Int8 = since(1, default=0)
    topic_partitions: NullableArray[ElectLeadersRequestTopicPartitions]
    timeout_ms: Int32 = 60000


@part
class ElectLeadersResponsePartition(Part):
    """The outcome for one partition."""

    partition_id: Int32
    error_code: Int16
    error_message: NullableString


@part
class ElectLeadersResponseTopic(Part):
    """A topic of the answer."""

    topic: String
    partition_result: Array[ElectLeadersResponsePartition]


@message(api_key=43, versions=range(3), flexible_from=2)
class ElectLeadersResponse(Message):
    """Sent by the controller: the outcome for each partition."""

    throttle_time_ms: Int32
    error_code: Int16 = since(1, default=0)
    replica_election_results: Array[ElectLeadersResponseTopic]
