"""Classic groups in `__consumer_offsets`."""

from penstock.core.wire.message import Message, Part, message, part
from penstock.core.wire.schema import since
from penstock.core.wire.types import Array, Bytes, Int32, Int64, NullableString, String


@message(versions=range(2, 3))
class GroupMetadataKey(Message):
    """Keys the state of a classic group."""

    group: String


@part
class GroupMetadataValueMember(Part):
    """A member of the group, with its subscription and assignment."""

    member_id: String
    group_instance_id: NullableString = since(3, default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(versions=range(5), flexible_from=4)
class GroupMetadataValue(Message):
    """A classic group as it was when its last rebalance ended."""

    protocol_type: String
    generation: Int32
    protocol: NullableString
    leader: NullableString
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Array[GroupMetadataValueMember]
