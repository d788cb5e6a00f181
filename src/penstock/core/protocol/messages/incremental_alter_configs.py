"""IncrementalAlterConfigs: changing single settings."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int8, Int16, Int32, NullableString, Part, String


@part
class IncrementalAlterConfigsRequestConfig(Part):
    """A setting to change, or to start with."""

    name: String
    config_operation: Int8
    value: NullableString


@part
class IncrementalAlterConfigsRequestResource(Part):
    """A resource that the request is about."""

    resource_type: Int8
    resource_name: String
    configs: Array[IncrementalAlterConfigsRequestConfig]


@message(api_key=44, versions=range(2), flexible_from=1)
class IncrementalAlterConfigsRequest(Message):
    """Sent by an administrator: set, delete, append to or subtract from named settings."""

    resources: Array[IncrementalAlterConfigsRequestResource]
    validate_only: Bool


@part
class IncrementalAlterConfigsResponseResource(Part):
    """A resource of the answer."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String


@message(api_key=44, versions=range(2), flexible_from=1)
class IncrementalAlterConfigsResponse(Message):
    """Sent by the broker: whether each resource was changed."""

    throttle_time_ms: Int32
    responses: Array[IncrementalAlterConfigsResponseResource]
