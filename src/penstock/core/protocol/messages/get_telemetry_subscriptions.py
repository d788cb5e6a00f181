"""GetTelemetrySubscriptions: which client metrics a cluster wants (KIP-714)."""

from penstock.core.protocol.codec import Message, message
from penstock.core.protocol.schema import Array, Bool, Int8, Int16, Int32, String, Uuid


@message(api_key=71, versions=range(1), flexible_from=0)
class GetTelemetrySubscriptionsRequest(Message):
    """Sent by a client that starts, and again when its subscription changed."""

    client_instance_id: Uuid


@message(api_key=71, versions=range(1), flexible_from=0)
class GetTelemetrySubscriptionsResponse(Message):
    """Sent by the broker: which metrics to push, how often, how encoded."""

    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: Array[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Bool
    requested_metrics: Array[String]
