"""The topics that the cluster keeps its own state in, as they are made on first use."""

from collections.abc import Mapping

from penstock.core.metadata import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, MetadataImage, broker_setting
from penstock.services.topics.wanted import NewTopic

# The settings that say how many partitions, how many replicas, and how large a segment is.
_SETTINGS = {
    OFFSETS_TOPIC: (
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
    ),
    TRANSACTIONS_TOPIC: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        None,
    ),
}


def internal_topic(name: str, image: MetadataImage, static: Mapping[str, str]) -> NewTopic | None:
    """An internal topic with the configuration that its owner counts on; None for other names."""
    settings = _SETTINGS.get(name)
    if settings is None:
        return None
    partitions, factor, segment = settings
    configs: list[tuple[str, str | None]] = [("cleanup.policy", "compact"), ("compression.type", "producer")]
    if segment is not None:
        configs.append(("segment.bytes", str(_number(image, segment, static))))
    return NewTopic(
        name, _number(image, partitions, static), _number(image, factor, static), (), tuple(configs)
    )


def _number(image: MetadataImage, key: str, static: Mapping[str, str]) -> int:
    value = broker_setting(image, key, static=static)
    assert isinstance(value, int), key
    return value
