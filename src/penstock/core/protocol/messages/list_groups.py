"""ListGroups: which groups a broker coordinates."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Part, String, since


@message(api_key=16, versions=range(6), flexible_from=3)
class ListGroupsRequest(Message):
    """Sent by a tool to every broker in turn, since each knows its own groups only."""

    states_filter: Array[String] = since(4, default=())
    types_filter: Array[String] = since(5, default=())


@part
class ListGroupsResponseGroup(Part):
    """A group of the answer."""

    group_id: String
    protocol_type: String
    group_state: String = since(4, default="", ignorable=True)
    group_type: String = since(5, default="", ignorable=True)


@message(api_key=16, versions=range(6), flexible_from=3)
class ListGroupsResponse(Message):
    """Sent by a broker: the groups it coordinates."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
    groups: Array[ListGroupsResponseGroup]
