"""PushTelemetry: client metrics (KIP-714)."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Bool, Bytes, Int8, Int16, Int32, Uuid


@message(api_key=72, versions=range(1), flexible_from=0)
class PushTelemetryRequest(Message):
    """Sent by a client at the interval its subscription asks for."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


@message(api_key=72, versions=range(1), flexible_from=0)
class PushTelemetryResponse(Message):
    """Sent by the broker: whether the metrics were taken."""

    throttle_time_ms: Int32
    error_code: Int16
