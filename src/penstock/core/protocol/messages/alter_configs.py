"""AlterConfigs: replacing all settings of a resource (superseded by IncrementalAlterConfigs)."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int8, Int16, Int32, NullableString, Part, String


@part
class AlterConfigsRequestConfig(Part):
    """A setting to change, or to start with."""

    name: String
    value: NullableString


@part
class AlterConfigsRequestResource(Part):
    """A resource that the request is about."""

    resource_type: Int8
    resource_name: String
    configs: Array[AlterConfigsRequestConfig]


@message(api_key=33, versions=range(3), flexible_from=2)
class AlterConfigsRequest(Message):
    """Sent by an older administration client."""

    resources: Array[AlterConfigsRequestResource]
    validate_only: Bool


@part
class AlterConfigsResponseResource(Part):
    """A resource of the answer."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String


@message(api_key=33, versions=range(3), flexible_from=2)
class AlterConfigsResponse(Message):
    """Sent by the broker: whether each resource was changed."""

    throttle_time_ms: Int32
    responses: Array[AlterConfigsResponseResource]
