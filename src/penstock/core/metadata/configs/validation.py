"""Whether a resource may have these values: known keys, good values, and good together."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.core.metadata.configs.layers import Layers
from penstock.core.metadata.configs.registry import definitions
from penstock.core.metadata.state import ResourceKind


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
    return None


def _number(layers: Layers, key: str) -> int:
    value = layers.usable_value(key)
    assert isinstance(value, int), key
    return value


def _problem_with_topic(layers: Layers) -> str | None:
    least, most = _number(layers, "min.compaction.lag.ms"), _number(layers, "max.compaction.lag.ms")
    if least > most:
        return f"min.compaction.lag.ms ({least}) must not be above max.compaction.lag.ms ({most})"
    return None
