"""FindCoordinator: which broker looks after a group, transactional id or share partition."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
    since,
    until,
)


@message(api_key=10, versions=range(7), flexible_from=3)
class FindCoordinatorRequest(Message):
    """Sent by a client before its first request to a coordinator."""

    key: String = until(3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: Array[String] = since(4, default=())


@part
class FindCoordinatorResponseCoordinator(Part):
    """The node that looks after one key."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: NullableString


@message(api_key=10, versions=range(7), flexible_from=3)
class FindCoordinatorResponse(Message):
    """Sent by any broker: the node that coordinates each key."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    coordinators: Array[FindCoordinatorResponseCoordinator] = since(4, default=())
    error_code: Int16 = until(3, default=0)
    error_message: NullableString = since(1, until=3, default="", ignorable=True)
    node_id: Int32 = until(3, default=0)
    host: String = until(3, default="")
    port: Int32 = until(3, default=0)
