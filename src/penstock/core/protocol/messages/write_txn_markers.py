"""WriteTxnMarkers: writing the outcome of transactions into partitions."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int8, Int16, Int32, Int64, Part, String, since


@part
class WriteTxnMarkersRequestTopic(Part):
    """A topic that the request is about."""

    name: String
    partition_indexes: Array[Int32]


@part
class WriteTxnMarkersRequestMarker(Part):
    """The outcome of one transaction."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Array[WriteTxnMarkersRequestTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = since(2, default=0, ignorable=True)


@message(api_key=27, versions=range(3), flexible_from=1)
class WriteTxnMarkersRequest(Message):
    """Sent by a transaction coordinator to the leaders that took part."""

    markers: Array[WriteTxnMarkersRequestMarker]


@part
class WriteTxnMarkersResponsePartition(Part):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


@part
class WriteTxnMarkersResponseTopic(Part):
    """A topic of the answer."""

    name: String
    partitions: Array[WriteTxnMarkersResponsePartition]


@part
class WriteTxnMarkersResponseMarker(Part):
    """The markers of one producer."""

    producer_id: Int64
    topics: Array[WriteTxnMarkersResponseTopic]


@message(api_key=27, versions=range(3), flexible_from=1)
class WriteTxnMarkersResponse(Message):
    """Sent by a leader: whether each marker was appended."""

    markers: Array[WriteTxnMarkersResponseMarker]
