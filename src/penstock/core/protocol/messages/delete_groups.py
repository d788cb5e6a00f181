"""DeleteGroups: removing groups that have no members."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int16, Int32, Part, String


@message(api_key=42, versions=range(3), flexible_from=2)
class DeleteGroupsRequest(Message):
    """Sent by an administrator to the groups' coordinator."""

    groups_names: Array[String]


@part
class DeleteGroupsResponseGroup(Part):
    """A group of the answer."""

    group_id: String
    error_code: Int16


@message(api_key=42, versions=range(3), flexible_from=2)
class DeleteGroupsResponse(Message):
    """Sent by the coordinator: what became of each group."""

    throttle_time_ms: Int32
    results: Array[DeleteGroupsResponseGroup]
