"""Produce: appending record batches to partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    NullableRecords,
    NullableString,
    Part,
    String,
    Uuid,
    since,
    tagged,
    until,
)


@part
class ProduceRequestPartition(Part):
    """A partition that the request is about."""

    index: Int32
    records: NullableRecords


@part
class ProduceRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    name: String = until(12, default="", ignorable=True)
    partition_data: Array[ProduceRequestPartition]


@message(api_key=0, versions=range(3, 14), flexible_from=9)
class ProduceRequest(Message):
    """Sent by a producer to the leader of every partition it names; with acks 0 it expects no answer."""

    transactional_id: NullableString = None
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[ProduceRequestTopic]


@part
class ProduceResponseRecordError(Part):
    """A record that made its batch unacceptable."""

    batch_index: Int32
    batch_index_error_message: NullableString = None


@part
class ProduceResponseLeader(Part):
    """The leader to turn to instead, where this broker is not it any more."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@part
class ProduceResponsePartition(Part):
    """The outcome for one partition."""

    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: Array[ProduceResponseRecordError] = since(8, default=(), ignorable=True)
    error_message: NullableString = since(8, default=None, ignorable=True)
    current_leader: ProduceResponseLeader = tagged(0, since=10, default=ProduceResponseLeader())


@part
class ProduceResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    name: String = until(12, default="", ignorable=True)
    partition_responses: Array[ProduceResponsePartition]


@part
class ProduceResponseNode(Part):
    """Where a node is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


@message(api_key=0, versions=range(3, 14), flexible_from=9)
class ProduceResponse(Message):
    """Sent by a leader: the offset each batch got, or why it was refused."""

    responses: Array[ProduceResponseTopic]
    throttle_time_ms: Int32 = 0
    node_endpoints: Array[ProduceResponseNode] = tagged(0, since=10, default=())
