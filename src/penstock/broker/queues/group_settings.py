"""The configuration of groups as their queues need it.

A queue has settings under two names: `queue.…`, and what Kafka calls them for share groups. What a group has
as `queue.…` counts first, then what anybody has set as `share.…`, then what all queues have.
"""

from collections.abc import Mapping

from penstock.core.metadata import (
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    broker_setting,
    layers_for,
)
from penstock.core.metadata.configs import GROUP_CONFIGS, NO_CONFIGS, ConfigLayers, ConfigSource
from penstock.core.model import NodeId
from penstock.core.queues import REDRIVE_GROUP, QueueSettings


class GroupQueueSettings:
    """How the queues of a group deliver, and where new ones begin."""

    def __init__(self, node_id: NodeId, static: Mapping[str, str] = NO_CONFIGS) -> None:
        self._node_id = node_id
        self._static = static
        self._image = MetadataImage()

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def __call__(self, group_id: str) -> QueueSettings:
        layers = self._layers(group_id)
        lease_ms = _number(layers, "queue.visibility.timeout.ms")
        if _is_of_share_group(layers, "share.record.lock.duration.ms", "queue.visibility.timeout.ms"):
            lease_ms = min(
                max(
                    _number(layers, "share.record.lock.duration.ms"),
                    self._bound("group.share.min.record.lock.duration.ms"),
                ),
                self._bound("group.share.max.record.lock.duration.ms"),
            )
        # The first delivery is no retry.
        deliveries_max = _number(layers, "queue.retries.max") + 1
        if _is_of_share_group(layers, "share.delivery.count.limit", "queue.retries.max"):
            deliveries_max = _number(layers, "share.delivery.count.limit")
        backoff_ms_max = _number(layers, "queue.backoff.max.ms")
        return QueueSettings(
            is_key_ordered=layers.usable_value("queue.key.ordered") is True,
            deliveries_max=deliveries_max,
            has_dead_letters=layers.usable_value("queue.dead.letter.enable") is True,
            lease_ms=lease_ms,
            backoff_ms=min(_number(layers, "queue.backoff.ms"), backoff_ms_max),
            backoff_ms_max=backoff_ms_max,
            window_max=_number(layers, "queue.window.max"),
        )

    def starts_at_end(self, group_id: str) -> bool:
        """Whether a new queue of the group begins with what comes, not with what is there."""
        if group_id == REDRIVE_GROUP:
            # It is there for the dead letters that there are, whatever is set for others.
            return False
        layers = self._layers(group_id)
        is_shared = _is_of_share_group(layers, "share.auto.offset.reset", "queue.start")
        return layers.usable_value("share.auto.offset.reset" if is_shared else "queue.start") == "latest"

    def _layers(self, group_id: str) -> ConfigLayers:
        resource = ConfigResource(ConfigResourceType.GROUP, group_id)
        return layers_for(self._image, resource, self._node_id, self._static)

    def _bound(self, key: str) -> int:
        value = broker_setting(self._image, key, self._node_id, self._static)
        assert isinstance(value, int), key
        return value


def _is_of_share_group(layers: ConfigLayers, key: str, queue_key: str) -> bool:
    """Whether somebody has set Kafka's key, and the group does not have ours."""
    if queue_key in layers.own:
        return False
    first = next(layers.candidates(GROUP_CONFIGS[key]), None)
    return first is not None and first.source is not ConfigSource.DEFAULT


def _number(layers: ConfigLayers, key: str) -> int:
    value = layers.usable_value(key)
    assert isinstance(value, int), key
    return value
