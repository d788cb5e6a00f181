"""DescribeCluster: the brokers (or controllers) of a cluster."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import Array, Bool, Int8, Int16, Int32, NullableString, Part, String, since


@message(api_key=60, versions=range(3), flexible_from=0)
class DescribeClusterRequest(Message):
    """Sent by an administration client that starts."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = since(1, default=1)
    include_fenced_brokers: Bool = since(2, default=False)


@part
class DescribeClusterResponseBroker(Part):
    """A broker, and where it is reached."""

    broker_id: Int32
    host: String
    port: Int32
    rack: NullableString = None
    is_fenced: Bool = since(2, default=False)


@message(api_key=60, versions=range(3), flexible_from=0)
class DescribeClusterResponse(Message):
    """Sent by any broker: cluster id, controller and endpoints."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: Array[DescribeClusterResponseBroker]
    cluster_authorized_operations: Int32 = -2147483648
