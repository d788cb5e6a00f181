"""ShareFetch: taking records from a share group's queue (KIP-932)."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Part,
    SentRecords,
    String,
    Uuid,
    since,
)


@part
class ShareFetchRequestAcknowledgementBatch(Part):
    """What the consumer did with a range of records."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Array[Int8]


@part
class ShareFetchRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    acknowledgement_batches: Array[ShareFetchRequestAcknowledgementBatch]


@part
class ShareFetchRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid
    partitions: Array[ShareFetchRequestPartition]


@part
class ShareFetchRequestForgottenTopic(Part):
    """A topic whose partitions the session shall drop."""

    topic_id: Uuid
    partitions: Array[Int32]


@message(api_key=78, versions=range(1, 3), flexible_from=0)
class ShareFetchRequest(Message):
    """Sent by a share consumer to a leader.

    Which partitions to acquire records from, with acknowledgements of earlier ones.
    """

    group_id: NullableString = None
    member_id: NullableString
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = since(2, default=0)
    is_renew_ack: Bool = since(2, default=False)
    topics: Array[ShareFetchRequestTopic]
    forgotten_topics_data: Array[ShareFetchRequestForgottenTopic]


@part
class ShareFetchResponseLeader(Part):
    """The leader to turn to instead, where this broker is not it any more."""

    leader_id: Int32
    leader_epoch: Int32


@part
class ShareFetchResponseAcquiredRecords(Part):
    """A range of records that is now the consumer's to finish."""

    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@part
class ShareFetchResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None
    acknowledge_error_code: Int16
    acknowledge_error_message: NullableString = None
    current_leader: ShareFetchResponseLeader
    records: SentRecords
    acquired_records: Array[ShareFetchResponseAcquiredRecords]


@part
class ShareFetchResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid
    partitions: Array[ShareFetchResponsePartition]


@part
class ShareFetchResponseNode(Part):
    """Where a node is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


@message(api_key=78, versions=range(1, 3), flexible_from=0)
class ShareFetchResponse(Message):
    """Sent by a leader: the records, which of them are acquired, and until when."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32
    responses: Array[ShareFetchResponseTopic]
    node_endpoints: Array[ShareFetchResponseNode]
