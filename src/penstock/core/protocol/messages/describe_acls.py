"""DescribeAcls: which access rules exist."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, NullableString, Part, String, since


@message(api_key=29, versions=range(4), flexible_from=2)
class DescribeAclsRequest(Message):
    """Sent by a tool with a filter over resources, principals and operations."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


@part
class DescribeAclsResponseAcl(Part):
    """A rule, or what became of it."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@part
class DescribeAclsResponseResource(Part):
    """A resource of the answer."""

    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = since(1, default=3)
    acls: Array[DescribeAclsResponseAcl]


@message(api_key=29, versions=range(4), flexible_from=2)
class DescribeAclsResponse(Message):
    """Sent by the broker: the rules that match."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    resources: Array[DescribeAclsResponseResource]
