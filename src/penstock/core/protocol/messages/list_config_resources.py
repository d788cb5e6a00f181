"""ListConfigResources: which resources have settings of their own."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Int8, Int16, Int32, Part, String, since


@message(api_key=74, versions=range(2), flexible_from=0)
class ListConfigResourcesRequest(Message):
    """Sent by a tool; version 0 asks for client metrics subscriptions only."""

    resource_types: Array[Int8] = since(1, default=())


@part
class ListConfigResourcesResponseConfigResource(Part):
    """A resource that has settings of its own."""

    resource_name: String
    resource_type: Int8 = since(1, default=16, ignorable=True)


@message(api_key=74, versions=range(2), flexible_from=0)
class ListConfigResourcesResponse(Message):
    """Sent by the broker: names and kinds of the resources."""

    throttle_time_ms: Int32
    error_code: Int16
    config_resources: Array[ListConfigResourcesResponseConfigResource]
