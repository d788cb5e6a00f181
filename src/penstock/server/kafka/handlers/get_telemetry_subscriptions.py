"""GetTelemetrySubscriptions: which metrics the caller shall push (KIP-714)."""

from uuid import UUID

from penstock.broker.telemetry import COMPRESSION_TYPES, NO_INSTANCE, TELEMETRY_BYTES_MAX
from penstock.core.metadata.client_metrics import MetricsClient
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(request: GetTelemetrySubscriptionsRequest, call: Request) -> None:
    telemetry = call.backend.telemetry
    instance_id = request.client_instance_id
    if instance_id == NO_INSTANCE:
        instance_id = telemetry.new_instance_id()
    subscription = telemetry.subscribe(metrics_client(call, instance_id))
    if isinstance(subscription, ApiError):
        call.reply(
            GetTelemetrySubscriptionsResponse(
                throttle_time_ms=call.charge_time(),
                error_code=code_of(subscription),
                client_instance_id=NO_INSTANCE,
                subscription_id=0,
                accepted_compression_types=(),
                push_interval_ms=0,
                telemetry_max_bytes=0,
                delta_temporality=False,
                requested_metrics=(),
            )
        )
        return
    call.reply(
        GetTelemetrySubscriptionsResponse(
            throttle_time_ms=call.charge_time(),
            error_code=ErrorCode.NONE,
            client_instance_id=instance_id,
            subscription_id=subscription.subscription_id,
            accepted_compression_types=tuple(int(kind) for kind in COMPRESSION_TYPES),
            push_interval_ms=subscription.interval_ms,
            telemetry_max_bytes=TELEMETRY_BYTES_MAX,
            delta_temporality=True,
            requested_metrics=subscription.metrics,
        )
    )


def metrics_client(call: Request, instance_id: UUID) -> MetricsClient:
    """Who is calling, as subscriptions select clients."""
    host, _, port = call.connection.tcp.peer.rpartition(":")
    name, version = call.connection.client_software
    return MetricsClient(instance_id, call.session.client_id, name, version, host, port)
