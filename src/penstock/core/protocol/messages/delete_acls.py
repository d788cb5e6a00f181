"""DeleteAcls: removing access rules."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, NullableString, Part, String, since


@part
class DeleteAclsRequestFilter(Part):
    """Which rules to remove."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = since(1, default=3)
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


@message(api_key=31, versions=range(4), flexible_from=2)
class DeleteAclsRequest(Message):
    """Sent by an administrator: everything that matches one of the filters goes."""

    filters: Array[DeleteAclsRequestFilter]


@part
class DeleteAclsResponseAcl(Part):
    """A rule, or what became of it."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = since(1, default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@part
class DeleteAclsResponseFilter(Part):
    """What one filter removed."""

    error_code: Int16
    error_message: NullableString
    matching_acls: Array[DeleteAclsResponseAcl]


@message(api_key=31, versions=range(4), flexible_from=2)
class DeleteAclsResponse(Message):
    """Sent by the broker: the rules each filter removed."""

    throttle_time_ms: Int32
    filter_results: Array[DeleteAclsResponseFilter]
