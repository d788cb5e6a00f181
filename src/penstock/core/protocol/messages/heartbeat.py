"""Heartbeat: staying in a classic group."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Int16, Int32, NullableString, String, since


@message(api_key=12, versions=range(5), flexible_from=4)
class HeartbeatRequest(Message):
    """Sent by a member of a classic group to its coordinator."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since(3, default=None)


@message(api_key=12, versions=range(5), flexible_from=4)
class HeartbeatResponse(Message):
    """Sent by the coordinator: stay, or rejoin because the group rebalances."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
