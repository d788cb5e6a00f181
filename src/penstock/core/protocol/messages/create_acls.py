"""CreateAcls: adding access rules."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, NullableString, Part, String, since


@part
class CreateAclsRequestAcl(Part):
    """A rule to add."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = since(1, default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(api_key=30, versions=range(4), flexible_from=2)
class CreateAclsRequest(Message):
    """Sent by an administrator."""

    creations: Array[CreateAclsRequestAcl]


@part
class CreateAclsResponseAcl(Part):
    """A rule, or what became of it."""

    error_code: Int16
    error_message: NullableString


@message(api_key=30, versions=range(4), flexible_from=2)
class CreateAclsResponse(Message):
    """Sent by the broker: one result per rule, in the order of the request."""

    throttle_time_ms: Int32
    results: Array[CreateAclsResponseAcl]
