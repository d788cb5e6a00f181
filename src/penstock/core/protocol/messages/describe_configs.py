"""DescribeConfigs: reading settings."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableArray,
    NullableString,
    Part,
    String,
    since,
    until,
)


@part
class DescribeConfigsRequestResource(Part):
    """A resource that the request is about."""

    resource_type: Int8
    resource_name: String
    configuration_keys: NullableArray[String]


@message(api_key=32, versions=range(5), flexible_from=4)
class DescribeConfigsRequest(Message):
    """Sent by a tool that wants the settings of topics, brokers, groups or loggers."""

    resources: Array[DescribeConfigsRequestResource]
    include_synonyms: Bool = since(1, default=False)
    include_documentation: Bool = since(3, default=False)


@part
class DescribeConfigsResponseSynonym(Part):
    """Another place the value could have come from."""

    name: String
    value: NullableString
    source: Int8


@part
class DescribeConfigsResponseConfig(Part):
    """A setting."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8 = since(1, default=-1, ignorable=True)
    is_default: Bool = until(0, default=False)
    is_sensitive: Bool
    synonyms: Array[DescribeConfigsResponseSynonym] = since(1, default=(), ignorable=True)
    config_type: Int8 = since(3, default=0, ignorable=True)
    documentation: NullableString = since(3, default="", ignorable=True)


@part
class DescribeConfigsResponseResource(Part):
    """A resource of the answer."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String
    configs: Array[DescribeConfigsResponseConfig]


@message(api_key=32, versions=range(5), flexible_from=4)
class DescribeConfigsResponse(Message):
    """Sent by the broker.

    Each setting with its value, where it comes from and what else it could have been.
    """

    throttle_time_ms: Int32
    results: Array[DescribeConfigsResponseResource]
