"""PushTelemetry: the metrics of a client (KIP-714)."""

from penstock.broker.telemetry import TelemetryPush
from penstock.core.model import ApiError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from penstock.server.kafka.errors import code_of
from penstock.server.kafka.handlers.get_telemetry_subscriptions import metrics_client
from penstock.server.kafka.request import Request
from penstock.server.kafka.router import routes


@routes.handles(PushTelemetryRequest)
def push_telemetry(request: PushTelemetryRequest, call: Request) -> None:
    def done(error: ApiError | None) -> None:
        call.reply(
            PushTelemetryResponse(
                throttle_time_ms=call.charge_time(),
                error_code=ErrorCode.NONE if error is None else code_of(error),
            )
        )

    push = TelemetryPush(
        request.subscription_id, request.terminating, request.compression_type, bytes(request.metrics)
    )
    call.backend.telemetry.push(metrics_client(call, request.client_instance_id), push, done)
