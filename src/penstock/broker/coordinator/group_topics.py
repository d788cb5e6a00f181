"""The cluster's metadata as consumer groups see it: topics with their racks, and timeouts of groups."""

from collections.abc import Mapping, Sequence

from penstock.core.groups import AssignableTopic, ConsumerGroupTimeouts, GroupType, digest_of
from penstock.core.metadata import (
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    Topic,
    broker_setting,
    layers_for,
)
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.metadata.topic_names import is_internal
from penstock.core.model import NodeId, TopicId, TopicName, TopicPartition

REMEMBERED_MAX = 10_000
# Groups may have very long names, which are not kept when they are gone.
REMEMBERED_CHARS_MAX = 300
# The session timeout and the heartbeat interval, each with its bounds.
TIMEOUT_KEYS = {
    GroupType.CONSUMER: (
        (
            "consumer.session.timeout.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
        (
            "consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
    ),
    GroupType.SHARE: (
        (
            "share.session.timeout.ms",
            "group.share.min.session.timeout.ms",
            "group.share.max.session.timeout.ms",
        ),
        (
            "share.heartbeat.interval.ms",
            "group.share.min.heartbeat.interval.ms",
            "group.share.max.heartbeat.interval.ms",
        ),
    ),
}


class GroupTopics:
    """The topics of the latest image; what is made of a topic is kept until the topic changes."""

    def __init__(self) -> None:
        self._image = MetadataImage()
        self._racks: Mapping[NodeId, str] = {}
        self._made: dict[TopicId, tuple[Topic, AssignableTopic]] = {}

    def find(self, name: str) -> AssignableTopic | None:
        topic = self._image.topic(name)
        if topic is None:
            return None
        made = self._made.get(topic.id)
        if made is None or made[0] is not topic:
            made = self._made[topic.id] = (topic, self._assignable(topic))
        return made[1]

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return self._image.topic_name(topic_id)

    def lacks(self, partition: TopicPartition) -> bool:
        topic = self._image.topic(partition.topic)
        return topic is None or not 0 <= partition.partition < len(topic.partitions)

    def names(self) -> Sequence[TopicName]:
        return [name for name in self._image.topic_names() if not is_internal(name)]

    def on_metadata(self, image: MetadataImage) -> tuple[TopicName, ...]:
        """Take over an image; returns the topics that were created, deleted, grew or moved."""
        before, self._image = self._image, image
        if image.brokers is not before.brokers:
            racks = {broker.node_id: broker.rack for broker in image.each_broker() if broker.rack is not None}
            if racks != self._racks:
                self._racks = racks
                self._made.clear()
                return tuple(sorted({*before.topic_names(), *image.topic_names()}))
        changed: list[TopicName] = []
        for topic_id in before.topics.keys_missing_in(image.topics):
            gone = before.topics.get(topic_id)
            assert gone is not None
            self._made.pop(topic_id, None)
            changed.append(gone.name)
        for topic_id in image.topics.keys_changed_since(before.topics):
            topic, old = image.topics.get(topic_id), before.topics.get(topic_id)
            assert topic is not None
            if old is None or self._differs(old, topic):
                changed.append(topic.name)
        return tuple(changed)

    def _differs(self, old: Topic, new: Topic) -> bool:
        if len(old.partitions) != len(new.partitions):
            return True
        pairs = zip(old.partitions, new.partitions, strict=True)
        return bool(self._racks) and any(before.replicas != after.replicas for before, after in pairs)

    def _assignable(self, topic: Topic) -> AssignableTopic:
        racks: tuple[tuple[str, ...], ...] = ()
        if self._racks:
            racks = tuple([self._racks_of(partition.replicas) for partition in topic.partitions])
        count = len(topic.partitions)
        return AssignableTopic(topic.id, topic.name, count, racks, digest_of(topic.id, count, racks))

    def _racks_of(self, replicas: Sequence[NodeId]) -> tuple[str, ...]:
        return tuple(sorted({self._racks[node_id] for node_id in replicas if node_id in self._racks}))


class GroupTimeouts:
    """The timeouts of groups of one type, within the node's bounds; kept until configuration changes."""

    def __init__(
        self,
        node_id: NodeId,
        image: MetadataImage,
        static: Mapping[str, str] = NO_CONFIGS,
        type_: GroupType = GroupType.CONSUMER,
    ) -> None:
        self._keys = TIMEOUT_KEYS[type_]
        self._node_id = node_id
        self._static = static
        self._image = image
        self._found: dict[str, ConsumerGroupTimeouts] = {}

    def __call__(self, group_id: str) -> ConsumerGroupTimeouts:
        found = self._found.get(group_id)
        if found is None:
            found = ConsumerGroupTimeouts(*[self._bounded(group_id, *keys) for keys in self._keys])
            if len(group_id) <= REMEMBERED_CHARS_MAX:
                if len(self._found) >= REMEMBERED_MAX:
                    self._found.clear()
                self._found[group_id] = found
        return found

    def on_metadata(self, image: MetadataImage) -> None:
        if image.configs is not self._image.configs:
            self._found.clear()
        self._image = image

    def _bounded(self, group_id: str, key: str, least: str, most: str) -> int:
        layers = layers_for(
            self._image, ConfigResource(ConfigResourceType.GROUP, group_id), self._node_id, self._static
        )
        value = layers.usable_value(key)
        assert isinstance(value, int), key
        return min(max(value, self._bound(least)), self._bound(most))

    def _bound(self, key: str) -> int:
        value = broker_setting(self._image, key, self._node_id, self._static)
        assert isinstance(value, int), key
        return value
