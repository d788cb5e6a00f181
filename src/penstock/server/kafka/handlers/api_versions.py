"""ApiVersions: what this node serves, derived from the router."""

from functools import cache

from penstock.core.metadata import OFFERED_FEATURES
from penstock.core.protocol import ErrorCode, decoder, response_frame
from penstock.core.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseApi,
    ApiVersionsResponseFinalizedFeature,
    ApiVersionsResponseSupportedFeature,
)
from penstock.core.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from penstock.core.protocol.messages.produce import ProduceRequest
from penstock.core.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import NAME_CHARS_MAX
from penstock.server.kafka.router import routes

NAMED_SINCE = 3
# Older librdkafka compresses only for a broker that lists Produce 0, which it never sends. Kafka 4 lists
# it for this reason (KAFKA-18659), and like Kafka we reject clients that really send it.
LISTED_FROM = {ProduceRequest.__schema__.api_key: 0}
# Listed while a client-metrics subscription exists, as Kafka lists them where somebody takes the metrics:
# every client would ask, and librdkafka would write a line about it.
TELEMETRY_KEYS = (
    GetTelemetrySubscriptionsRequest.__schema__.api_key,
    PushTelemetryRequest.__schema__.api_key,
)
SUPPORTED_FEATURES = tuple(
    ApiVersionsResponseSupportedFeature(
        name=feature.name, min_version=feature.lowest, max_version=feature.highest
    )
    for feature in OFFERED_FEATURES
    if feature.highest > 0
)


@routes.handles_frames(ApiVersionsRequest)
def api_versions(call: Request, frame: memoryview, position: int) -> None:
    """Reply; an unknown version gets the oldest form, with the versions we support (KIP-511)."""
    if call.version not in call.api.versions:
        rejection = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_listed(call))
        call.reply_parts([response_frame(call.api, 0, call.correlation_id, rejection)])
        return
    request, _ = decoder(ApiVersionsRequest, call.version)(frame, position)
    code = ErrorCode.NONE
    if call.version >= NAMED_SINCE and not (
        _is_name(request.client_software_name) and _is_name(request.client_software_version)
    ):
        code = ErrorCode.INVALID_REQUEST
    else:
        call.connection.client_software = (request.client_software_name, request.client_software_version)
    image = call.backend.controller.image
    call.reply(
        ApiVersionsResponse(
            error_code=code,
            api_keys=_listed(call),
            supported_features=SUPPORTED_FEATURES,
            finalized_features_epoch=call.backend.controller.committed,
            finalized_features=tuple(
                ApiVersionsResponseFinalizedFeature(
                    name=name, min_version_level=level, max_version_level=level
                )
                for name, level in image.features.items()
                if level > 0
            ),
        )
    )


def _listed(call: Request) -> tuple[ApiVersionsResponseApi, ...]:
    return _listed_without(() if call.backend.telemetry.has_subscriptions else TELEMETRY_KEYS)


@cache
def _listed_without(hidden: tuple[int, ...]) -> tuple[ApiVersionsResponseApi, ...]:
    """Made once: every connection begins with this request, and some repeat it."""
    return tuple(
        ApiVersionsResponseApi(
            api_key=route.api.key,
            min_version=LISTED_FROM.get(route.api.key, route.versions.start),
            max_version=route.versions.stop - 1,
        )
        for route in routes.all()
        if route.api.key not in hidden
    )


def _is_name(text: str) -> bool:
    """What Kafka allows: letters, digits, dots and dashes, neither first nor last a mark (KIP-511)."""
    return (
        0 < len(text) <= NAME_CHARS_MAX
        and text[0].isalnum()
        and text[-1].isalnum()
        and all(c.isalnum() or c in ".-" for c in text)
    )
