"""Heartbeat: staying in a classic group."""

from penstock.core.wire.message import Message, message
from penstock.core.wire.schema import since
from penstock.core.wire.types import Int16, Int32, NullableString, String


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
