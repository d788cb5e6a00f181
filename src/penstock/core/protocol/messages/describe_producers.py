"""DescribeProducers: which producers write to a partition."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Int64, NullableString, Part, String


@part
class DescribeProducersRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partition_indexes: Array[Int32]


@message(api_key=61, versions=range(1), flexible_from=0)
class DescribeProducersRequest(Message):
    """Sent by a tool that looks for hanging transactions."""

    topics: Array[DescribeProducersRequestTopic]


@part
class DescribeProducersResponseProducer(Part):
    """A producer the partition remembers."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@part
class DescribeProducersResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None
    active_producers: Array[DescribeProducersResponseProducer]


@part
class DescribeProducersResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[DescribeProducersResponsePartition]


@message(api_key=61, versions=range(1), flexible_from=0)
class DescribeProducersResponse(Message):
    """Sent by a leader: the producers it remembers, with the start of their open transactions."""

    throttle_time_ms: Int32
    topics: Array[DescribeProducersResponseTopic]
