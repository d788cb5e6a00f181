"""UpdateFeatures: raising or lowering feature levels of the cluster."""

from penstock.core.protocol.codec import Message, message, part
from penstock.core.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    NullableString,
    Part,
    String,
    since,
    until,
)


@part
class UpdateFeaturesRequestFeature(Part):
    """A feature and its new level."""

    feature: String
    max_version_level: Int16
    upgrade_type: Int8 = since(1, default=1)
    allow_downgrade: Bool = until(0, default=False)


@message(api_key=57, versions=range(3), flexible_from=0)
class UpdateFeaturesRequest(Message):
    """Sent by an administrator, for instance after an upgrade."""

    timeout_ms: Int32 = 60000
    feature_updates: Array[UpdateFeaturesRequestFeature]
    validate_only: Bool = since(1, default=False)


@part
class UpdateFeaturesResponseFeature(Part):
    """The outcome for one feature."""

    feature: String
    error_code: Int16
    error_message: NullableString


@message(api_key=57, versions=range(3), flexible_from=0)
class UpdateFeaturesResponse(Message):
    """Sent by the controller: the outcome; one refused feature refuses all from version 2 on."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    results: Array[UpdateFeaturesResponseFeature] = until(1, default=(), ignorable=True)
