"""UpdateFeatures: raising or lowering feature levels of the cluster."""

from penstock.core.metadata import FeatureUpdate, Reply, UpdateFeatures, UpgradeType
from penstock.core.model import ApiError, ErrorKind
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesRequestFeature,
    UpdateFeaturesResponse,
    UpdateFeaturesResponseFeature,
)
from penstock.security import AclOperation
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER
from penstock.server.kafka.router import routes

DIRECTIONS_SINCE = 1


@routes.handles(UpdateFeaturesRequest)
def update_features(request: UpdateFeaturesRequest, call: Request) -> None:
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _reply(request, call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster")
        return
    try:
        updates = tuple(
            FeatureUpdate(each.feature, each.max_version_level, _direction(each, call.version))
            for each in request.feature_updates
        )
    except ValueError as error:
        _answer(request, call, ApiError(ErrorKind.INVALID_FEATURE_LEVEL, str(error)))
        return
    call.backend.controller.submit(
        UpdateFeatures(updates, request.validate_only), lambda reply: _answer(request, call, reply)
    )


def _direction(update: UpdateFeaturesRequestFeature, version: int) -> UpgradeType:
    if version >= DIRECTIONS_SINCE:
        return UpgradeType(update.upgrade_type)
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


def _answer(request: UpdateFeaturesRequest, call: Request, reply: Reply) -> None:
    if isinstance(reply, ApiError):
        _reply(request, call, code_of(reply), message_of(reply))
    else:
        _reply(request, call, ErrorCode.NONE, None)


def _reply(request: UpdateFeaturesRequest, call: Request, code: ErrorCode, message: str | None) -> None:
    """All features share one result; old versions repeat it for each."""
    call.reply(
        UpdateFeaturesResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code,
            error_message=message,
            results=tuple(
                UpdateFeaturesResponseFeature(feature=each.feature, error_code=code, error_message=message)
                for each in request.feature_updates
            ),
        )
    )
