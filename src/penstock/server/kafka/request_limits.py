"""How large a request of each API may be: bytes, and entries in its arrays.

Both are checked before anything is made of a request: the bytes when its first ones have arrived, the
entries while it is decoded. What passes costs memory and time in proportion to its entries, and the time
is cut into slices (`slice_scheduler`).

The limits are those of the largest sensible use: a tool that describes a cluster of 100,000 partitions or
groups in one request, a client with some ten thousand partitions. Only Produce carries records by the
megabyte, and may be as large as the listener allows. A request of up to `WHOLE_BYTES_MAX` is decoded at
once and its entries are not counted: they cannot be many.

A request beyond its limit gets INVALID_REQUEST if its response has an error code of its own; if errors
have their place only in rows, its connection is closed, and `kafka.request_too_large` says why.
"""

from typing import Final, NamedTuple

from penstock.core.protocol import Api

KB, MB = 1 << 10, 1 << 20
# Requests up to this size are decoded in one go.
WHOLE_BYTES_MAX: Final = 4 * KB
# Only the listener's own limit, `socket.request.max.bytes`.
ANY_SIZE: Final = 2**31 - 1


class RequestLimit(NamedTuple):
    """The largest request of an API; entries are the elements of all its arrays together."""

    bytes_max: int
    entries_max: int


# One group, one member, one transaction, or no argument at all. A group id may have 8,000 characters.
ONE_THING = RequestLimit(128 * KB, 5_000)
# Groups, transactional ids, users: a list of names.
NAMES = RequestLimit(4 * MB, 100_000)
# Topics, with little for each.
TOPICS = RequestLimit(8 * MB, 100_000)
# Topics with their partitions.
PARTITIONS = RequestLimit(8 * MB, 200_000)
# Each entry becomes a command of the controller.
CHANGES = RequestLimit(4 * MB, 50_000)

# Frames up to this size are within the limit of every API.
LIMITED_BYTES: Final = ONE_THING.bytes_max

REQUEST_LIMITS: Final[dict[str, RequestLimit]] = {
    # As many batches wait for one sync, and are acknowledged together.
    "Produce": RequestLimit(ANY_SIZE, 10_000),
    "Fetch": RequestLimit(8 * MB, 100_000),
    "ListOffsets": PARTITIONS,
    "Metadata": TOPICS,
    "OffsetCommit": PARTITIONS,
    "OffsetFetch": PARTITIONS,
    "FindCoordinator": NAMES,
    # The metadata of a member names its topics, and the partitions that it has.
    "JoinGroup": RequestLimit(8 * MB, 5_000),
    "Heartbeat": ONE_THING,
    "LeaveGroup": RequestLimit(1 * MB, 20_000),
    # The leader of a group sends what every member gets.
    "SyncGroup": RequestLimit(16 * MB, 20_000),
    "DescribeGroups": NAMES,
    "ListGroups": ONE_THING,
    "SaslHandshake": ONE_THING,
    "ApiVersions": ONE_THING,
    "CreateTopics": CHANGES,
    "DeleteTopics": CHANGES,
    # Each partition is deleted from in its turn.
    "DeleteRecords": RequestLimit(4 * MB, 20_000),
    "InitProducerId": ONE_THING,
    "OffsetForLeaderEpoch": PARTITIONS,
    "AddPartitionsToTxn": RequestLimit(4 * MB, 50_000),
    "AddOffsetsToTxn": ONE_THING,
    "EndTxn": ONE_THING,
    "WriteTxnMarkers": PARTITIONS,
    "TxnOffsetCommit": PARTITIONS,
    "DescribeAcls": ONE_THING,
    "CreateAcls": CHANGES,
    "DeleteAcls": CHANGES,
    "DescribeConfigs": RequestLimit(4 * MB, 100_000),
    "AlterConfigs": CHANGES,
    "AlterReplicaLogDirs": PARTITIONS,
    "DescribeLogDirs": PARTITIONS,
    # Before a login nobody sends more than this at once.
    "SaslAuthenticate": ONE_THING,
    "CreatePartitions": CHANGES,
    "CreateDelegationToken": ONE_THING,
    "RenewDelegationToken": ONE_THING,
    "ExpireDelegationToken": ONE_THING,
    "DescribeDelegationToken": ONE_THING,
    "DeleteGroups": NAMES,
    "ElectLeaders": PARTITIONS,
    "IncrementalAlterConfigs": CHANGES,
    "AlterPartitionReassignments": PARTITIONS,
    "ListPartitionReassignments": PARTITIONS,
    "OffsetDelete": PARTITIONS,
    "DescribeClientQuotas": ONE_THING,
    "AlterClientQuotas": CHANGES,
    "DescribeUserScramCredentials": CHANGES,
    "AlterUserScramCredentials": CHANGES,
    "DescribeQuorum": ONE_THING,
    "UpdateFeatures": ONE_THING,
    "DescribeCluster": ONE_THING,
    "DescribeProducers": PARTITIONS,
    "UnregisterBroker": ONE_THING,
    "DescribeTransactions": NAMES,
    "ListTransactions": RequestLimit(1 * MB, 50_000),
    # The partitions that a member has.
    "ConsumerGroupHeartbeat": RequestLimit(2 * MB, 50_000),
    "ConsumerGroupDescribe": NAMES,
    "GetTelemetrySubscriptions": ONE_THING,
    # Clients push 1 MB at most.
    "PushTelemetry": RequestLimit(2 * MB, 5_000),
    "ListConfigResources": ONE_THING,
    "DescribeTopicPartitions": TOPICS,
    "ShareGroupHeartbeat": RequestLimit(1 * MB, 20_000),
    "ShareGroupDescribe": NAMES,
    "ShareFetch": RequestLimit(4 * MB, 50_000),
    "ShareAcknowledge": RequestLimit(4 * MB, 50_000),
    "AddRaftVoter": ONE_THING,
    "RemoveRaftVoter": ONE_THING,
    "DescribeShareGroupOffsets": RequestLimit(1 * MB, 20_000),
    "AlterShareGroupOffsets": RequestLimit(1 * MB, 20_000),
    "DeleteShareGroupOffsets": RequestLimit(1 * MB, 20_000),
    "BatchCommit": RequestLimit(4 * MB, 50_000),
    "QueueReceive": RequestLimit(1 * MB, 20_000),
    "QueueSettle": RequestLimit(1 * MB, 5_000),
    "QueueDescribe": RequestLimit(1 * MB, 20_000),
    "QueueAlter": RequestLimit(1 * MB, 20_000),
    "QueuePeek": ONE_THING,
    "QueueRedrive": RequestLimit(1 * MB, 20_000),
    # A thousand records of a size that a log takes, with their headers.
    "DelayRecords": RequestLimit(16 * MB, 50_000),
    "CancelDelays": RequestLimit(1 * MB, 5_000),
    "ListDelays": ONE_THING,
    "CreateApiKey": ONE_THING,
    "ListApiKeys": ONE_THING,
    "DeleteApiKey": ONE_THING,
    "RotateMasterKey": ONE_THING,
    "DescribeMasterKeys": ONE_THING,
}


def limit_of(api: Api) -> RequestLimit:
    """The limit of an API that is served; every one has a row."""
    return REQUEST_LIMITS[api.name]
