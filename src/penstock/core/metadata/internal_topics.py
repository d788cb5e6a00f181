"""The settings that internal topics must have, whatever anybody sets.

The cluster keeps its own state in them. A retention, or a limit below what it writes, would lose that state
or stop it from being written: groups would forget their offsets, queues their leases. So these settings
cannot be changed, a topic of such a name that a client creates gets them too, and what is stored otherwise
does not count. `__audit` is no state: it has a retention, which can be changed.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from penstock.core.metadata.configs import (
    NO_CONFIGS,
    CleanupPolicy,
    ConfigLayers,
    TopicOptions,
    definitions,
)
from penstock.core.metadata.configs.definition import shown
from penstock.core.metadata.image import ConfigResource, ConfigResourceType
from penstock.core.metadata.topic_names import (
    AUDIT_TOPIC,
    DELAYED_TOPIC,
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
    is_internal,
)

# The latest record of a key says everything.
_TABLE = {"cleanup.policy": "compact", "compression.type": "producer"}
# Each record changes what those before it left, so that none may be missing.
_JOURNAL = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "producer",
}
# The oldest records go first.
_HISTORY = {"cleanup.policy": "delete", "compression.type": "producer"}
REQUIRED_SETTINGS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: _TABLE,
    TRANSACTIONS_TOPIC: _TABLE,
    QUEUES_TOPIC: _JOURNAL,
    DELAYED_TOPIC: _JOURNAL,
    AUDIT_TOPIC: _HISTORY,
}
# A record that is delayed is stored with its target, and some more.
MESSAGE_BYTES_MIN: Mapping[str, int] = {
    OFFSETS_TOPIC: 1 << 20,
    TRANSACTIONS_TOPIC: 1 << 20,
    QUEUES_TOPIC: 1 << 20,
    DELAYED_TOPIC: 2 << 20,
    AUDIT_TOPIC: 1 << 20,
}
_MESSAGE_BYTES = "max.message.bytes"


def problem_with_internal_topic(
    resource: ConfigResource, layers: ConfigLayers, changed: Collection[str]
) -> str | None:
    """Why an internal topic cannot work with these settings of its own; None for others, or if it can."""
    if resource.kind is not ConfigResourceType.TOPIC or not is_internal(resource.name):
        return None
    table = definitions(ConfigResourceType.TOPIC)
    for key, required in REQUIRED_SETTINGS[resource.name].items():
        if key in changed and layers.usable_value(key) != table[key].parse(required):
            value = shown(layers.own[key]) if key in layers.own else "removed"
            return (
                f"{key} of {resource.name} must be {required!r}, not {value}: the cluster needs what it holds"
            )
    least, most = MESSAGE_BYTES_MIN[resource.name], layers.usable_value(_MESSAGE_BYTES)
    assert isinstance(most, int)
    if _MESSAGE_BYTES in changed and _MESSAGE_BYTES in layers.own and most < least:
        return f"{_MESSAGE_BYTES} of {resource.name} must be at least {least}, not {most}"
    return None


def required_settings(topic: str) -> Mapping[str, str]:
    """What a topic of this name is created with; nothing, unless it is internal."""
    return REQUIRED_SETTINGS.get(topic, NO_CONFIGS)


def with_required(topic: str, options: TopicOptions) -> TopicOptions:
    """The options of a topic: those of an internal one are what the cluster needs."""
    if not is_internal(topic):
        return options
    is_table, is_journal = REQUIRED_SETTINGS[topic] is _TABLE, REQUIRED_SETTINGS[topic] is _JOURNAL
    return replace(
        options,
        cleanup=CleanupPolicy.COMPACT if is_table else CleanupPolicy.DELETE,
        retention_ms=-1 if is_journal else options.retention_ms,
        retention_bytes=-1 if is_journal else options.retention_bytes,
        compression=None,
        compression_level=None,
        max_message_bytes=max(options.max_message_bytes, MESSAGE_BYTES_MIN[topic]),
    )
