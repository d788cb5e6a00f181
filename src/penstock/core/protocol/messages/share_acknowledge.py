"""ShareAcknowledge: finishing records of a share group's queue (KIP-932)."""

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
    String,
    Uuid,
    since,
)


@part
class ShareAcknowledgeRequestAcknowledgementBatch(Part):
    """What the consumer did with a range of records."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: Array[Int8]


@part
class ShareAcknowledgeRequestPartition(Part):
    """A partition that the request is about."""

    partition_index: Int32
    acknowledgement_batches: Array[ShareAcknowledgeRequestAcknowledgementBatch]


@part
class ShareAcknowledgeRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid
    partitions: Array[ShareAcknowledgeRequestPartition]


@message(api_key=79, versions=range(1, 3), flexible_from=0)
class ShareAcknowledgeRequest(Message):
    """Sent by a share consumer to a leader: accept, release, reject or (version 2) renew."""

    group_id: NullableString = None
    member_id: NullableString
    share_session_epoch: Int32
    is_renew_ack: Bool = since(2, default=False)
    topics: Array[ShareAcknowledgeRequestTopic]


@part
class ShareAcknowledgeResponseLeader(Part):
    """The leader to turn to instead, where this broker is not it any more."""

    leader_id: Int32
    leader_epoch: Int32


@part
class ShareAcknowledgeResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: NullableString = None
    current_leader: ShareAcknowledgeResponseLeader


@part
class ShareAcknowledgeResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid
    partitions: Array[ShareAcknowledgeResponsePartition]


@part
class ShareAcknowledgeResponseNode(Part):
    """Where a node is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


@message(api_key=79, versions=range(1, 3), flexible_from=0)
class ShareAcknowledgeResponse(Message):
    """Sent by a leader: whether the acknowledgements counted."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = since(2, default=0, ignorable=True)
    responses: Array[ShareAcknowledgeResponseTopic]
    node_endpoints: Array[ShareAcknowledgeResponseNode]
