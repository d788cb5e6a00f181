"""RemoveRaftVoter: removing a voter from the metadata quorum."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Int16, Int32, NullableString, Uuid


@message(api_key=81, versions=range(1), flexible_from=0)
class RemoveRaftVoterRequest(Message):
    """Sent by an administrator."""

    cluster_id: NullableString
    voter_id: Int32
    voter_directory_id: Uuid


@message(api_key=81, versions=range(1), flexible_from=0)
class RemoveRaftVoterResponse(Message):
    """Sent by the quorum's leader: whether the voter is out."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
