"""ReadShareGroupStateSummary: where share partitions start, without the details."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    String,
    Uuid,
    since,
)


@part
class ReadShareGroupStateSummaryRequestPartition(Part):
    """A partition that the request is about."""

    partition: Int32
    leader_epoch: Int32


@part
class ReadShareGroupStateSummaryRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid
    partitions: Array[ReadShareGroupStateSummaryRequestPartition]


@message(api_key=87, versions=range(2), flexible_from=0)
class ReadShareGroupStateSummaryRequest(Message):
    """Sent by a group coordinator to the share coordinator to answer questions about offsets."""

    group_id: String
    topics: Array[ReadShareGroupStateSummaryRequestTopic]


@part
class ReadShareGroupStateSummaryResponsePartition(Part):
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16
    error_message: NullableString = None
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = since(1, default=-1, ignorable=True)


@part
class ReadShareGroupStateSummaryResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid
    partitions: Array[ReadShareGroupStateSummaryResponsePartition]


@message(api_key=87, versions=range(2), flexible_from=0)
class ReadShareGroupStateSummaryResponse(Message):
    """Sent by the share coordinator: start offset and epochs of each share partition."""

    results: Array[ReadShareGroupStateSummaryResponseTopic]
