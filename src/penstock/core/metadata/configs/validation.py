"""Whether a resource may have these values: known keys, good values, and good together."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.core.metadata.configs.layers import Layers
from penstock.core.metadata.configs.registry import definitions
from penstock.core.metadata.state import ResourceKind

_GROUP_BOUNDS = (
    ("consumer.session.timeout.ms", "group.consumer.{}.session.timeout.ms"),
    ("consumer.heartbeat.interval.ms", "group.consumer.{}.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "group.share.{}.session.timeout.ms"),
    ("share.heartbeat.interval.ms", "group.share.{}.heartbeat.interval.ms"),
    ("share.record.lock.duration.ms", "group.share.{}.record.lock.duration.ms"),
)
_LOCAL_LIMITS = (
    ("local.retention.ms", "retention.ms"),
    ("local.retention.bytes", "retention.bytes"),
)
_FOLLOWS = -2
_NO_LIMIT = -1


def problem_with(layers: Layers, values: Mapping[str, str]) -> str | None:
    """What is wrong if the resource had `values` of its own; None if nothing is."""
    table = definitions(layers.kind)
    for key, text in values.items():
        definition = table.get(key)
        if definition is None:
            return f"{layers.kind.name.lower()} has no configuration key {key!r}"
        complaint = definition.problem(text)
        if complaint is not None:
            return complaint
    if layers.kind is ResourceKind.TOPIC:
        return _problem_with_topic(replace(layers, own=values))
    if layers.kind is ResourceKind.GROUP:
        return _problem_with_group(replace(layers, own=values))
    return None


def _number(layers: Layers, key: str) -> int:
    value = layers.usable_value(key)
    assert isinstance(value, int), key
    return value


def _problem_with_topic(layers: Layers) -> str | None:
    least, most = _number(layers, "min.compaction.lag.ms"), _number(layers, "max.compaction.lag.ms")
    if least > most:
        return f"min.compaction.lag.ms ({least}) must not be above max.compaction.lag.ms ({most})"
    if not layers.usable_value("remote.storage.enable"):
        return None
    if not replace(layers, kind=ResourceKind.BROKER).usable_value("remote.log.storage.system.enable"):
        return "remote.storage.enable needs remote storage, which this cluster does not have"
    for local, whole in _LOCAL_LIMITS:
        here, limit = _number(layers, local), _number(layers, whole)
        if limit != _NO_LIMIT and here != _FOLLOWS and not 0 <= here <= limit:
            return f"{local} ({here}) must not be above {whole} ({limit})"
    return None


def _problem_with_group(layers: Layers) -> str | None:
    shared = replace(layers, kind=ResourceKind.BROKER)
    for key, bound in _GROUP_BOUNDS:
        if key not in layers.own:
            continue
        value = _number(layers, key)
        least, most = _number(shared, bound.format("min")), _number(shared, bound.format("max"))
        if not least <= value <= most:
            return f"{key} must lie between {least} and {most} on this cluster, not {value}"
    for protocol in ("consumer", "share"):
        session = _number(layers, f"{protocol}.session.timeout.ms")
        heartbeat = _number(layers, f"{protocol}.heartbeat.interval.ms")
        if session <= heartbeat:
            return f"{protocol}.session.timeout.ms ({session}) must be above its heartbeats ({heartbeat})"
    return None
