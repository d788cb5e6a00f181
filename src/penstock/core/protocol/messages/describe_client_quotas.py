"""DescribeClientQuotas: which quotas exist."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
)


@part
class DescribeClientQuotasRequestComponent(Part):
    """One condition on quota entities."""

    entity_type: String
    match_type: Int8
    match: NullableString


@message(api_key=48, versions=range(2), flexible_from=1)
class DescribeClientQuotasRequest(Message):
    """Sent by a tool with a filter over users, client ids and addresses."""

    components: Array[DescribeClientQuotasRequestComponent]
    strict: Bool


@part
class DescribeClientQuotasResponseEntityPart(Part):
    """One half of an entity: a user, client id or address; null is the default."""

    entity_type: String
    entity_name: NullableString


@part
class DescribeClientQuotasResponseValue(Part):
    """A quota and its value."""

    key: String
    value: Float64


@part
class DescribeClientQuotasResponseEntry(Part):
    """An entity and its quotas."""

    entity: Array[DescribeClientQuotasResponseEntityPart]
    values: Array[DescribeClientQuotasResponseValue]


@message(api_key=48, versions=range(2), flexible_from=1)
class DescribeClientQuotasResponse(Message):
    """Sent by the broker: the quotas of each entity that matches."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    entries: NullableArray[DescribeClientQuotasResponseEntry]
