"""Committed positions in `__consumer_offsets`."""

from penstock.core.wire.message import Message, message
from penstock.core.wire.schema import since, tagged
from penstock.core.wire.types import ZERO_UUID, Int32, Int64, String, Uuid


@message(versions=range(2))
class OffsetCommitKey(Message):
    """Keys the committed position of a group in one partition."""

    group: String
    topic: String
    partition: Int32


@message(versions=range(5), flexible_from=4)
class OffsetCommitValue(Message):
    """How far a group has read a partition, as the coordinator stored it."""

    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = tagged(0, since=4, default=ZERO_UUID, ignorable=True)
