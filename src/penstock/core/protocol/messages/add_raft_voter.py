"""AddRaftVoter: adding a voter to the metadata quorum."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
    UInt16,
    Uuid,
    since,
)


@part
class AddRaftVoterRequestListener(Part):
    """An address of a controller."""

    name: String
    host: String
    port: UInt16


@message(api_key=80, versions=range(2), flexible_from=0)
class AddRaftVoterRequest(Message):
    """Sent by an administrator, or by a controller that joins by itself."""

    cluster_id: NullableString
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Array[AddRaftVoterRequestListener]
    ack_when_committed: Bool = since(1, default=True)


@message(api_key=80, versions=range(2), flexible_from=0)
class AddRaftVoterResponse(Message):
    """Sent by the quorum's leader: whether the voter is in."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
