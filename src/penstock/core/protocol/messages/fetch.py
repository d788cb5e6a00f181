"""Fetch: reading record batches from partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    ZERO_UUID,
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableArray,
    NullableSentRecords,
    NullableString,
    Part,
    String,
    Uuid,
    since,
    tagged,
    until,
)


@part
class FetchRequestReplicaState(Part):
    """Who fetches: a replica and its broker epoch."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@part
class FetchRequestPartition(Part):
    """A partition that the request is about."""

    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, since=17, default=ZERO_UUID, ignorable=True)
    high_watermark: Int64 = tagged(1, since=18, default=9223372036854775807, ignorable=True)


@part
class FetchRequestTopic(Part):
    """A topic that the request is about."""

    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    topic: String = until(12, default="", ignorable=True)
    partitions: Array[FetchRequestPartition]


@part
class FetchRequestForgottenTopic(Part):
    """A topic whose partitions the session shall drop."""

    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    topic: String = until(12, default="", ignorable=True)
    partitions: Array[Int32]


@message(api_key=1, versions=range(4, 19), flexible_from=12)
class FetchRequest(Message):
    """Sent by a consumer or follower to a leader: from where to read, how much, and how long to wait."""

    cluster_id: NullableString = tagged(0, since=12, default=None, ignorable=True)
    replica_state: FetchRequestReplicaState = tagged(1, since=15, default=FetchRequestReplicaState())
    replica_id: Int32 = until(14, default=-1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=-1, ignorable=True)
    topics: Array[FetchRequestTopic]
    forgotten_topics_data: Array[FetchRequestForgottenTopic] = since(7, default=())
    rack_id: String = since(11, default="", ignorable=True)


@part
class FetchResponseEpochEnd(Part):
    """Where the histories of reader and leader part."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


@part
class FetchResponseLeader(Part):
    """The leader to turn to instead, where this broker is not it any more."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@part
class FetchResponseSnapshot(Part):
    """The metadata snapshot to fetch instead."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


@part
class FetchResponseAbortedTransaction(Part):
    """A transaction whose records must not be shown."""

    producer_id: Int64
    first_offset: Int64


@part
class FetchResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    diverging_epoch: FetchResponseEpochEnd = tagged(0, since=12, default=FetchResponseEpochEnd())
    current_leader: FetchResponseLeader = tagged(1, since=12, default=FetchResponseLeader())
    snapshot_id: FetchResponseSnapshot = tagged(2, since=12, default=FetchResponseSnapshot())
    aborted_transactions: NullableArray[FetchResponseAbortedTransaction]
    preferred_read_replica: Int32 = since(11, default=-1)
    records: NullableSentRecords


@part
class FetchResponseTopic(Part):
    """A topic of the answer."""

    topic_id: Uuid = since(13, default=ZERO_UUID, ignorable=True)
    topic: String = until(12, default="", ignorable=True)
    partitions: Array[FetchResponsePartition]


@part
class FetchResponseNode(Part):
    """Where a node is reached."""

    node_id: Int32
    host: String
    port: Int32
    rack: NullableString = None


@message(api_key=1, versions=range(4, 19), flexible_from=12)
class FetchResponse(Message):
    """Sent by a leader: the batches it read, with the positions a reader must know to judge them."""

    throttle_time_ms: Int32
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: Array[FetchResponseTopic]
    node_endpoints: Array[FetchResponseNode] = tagged(0, since=16, default=())
