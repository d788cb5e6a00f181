"""How each fact changes the image. Total: a fact about what is not there changes nothing."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from penstock.core.metadata import facts
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.names import lookalike_key
from penstock.core.metadata.sharing import Table
from penstock.core.metadata.state import ConfigResource, Partition, ResourceKind, Topic
from penstock.core.model import BrokerEpoch, NodeId, ProducerId, TopicName


def applied(image: MetadataImage, fact: facts.Fact) -> MetadataImage:
    """The image after `fact`; `image` itself stays as it is."""
    return _RULES[type(fact)](image, fact)


def replayed(image: MetadataImage, history: Iterable[facts.Fact]) -> MetadataImage:
    """The image after all of `history`."""
    for fact in history:
        image = _RULES[type(fact)](image, fact)
    return image


def _cluster_id_set(image: MetadataImage, fact: facts.ClusterIdSet) -> MetadataImage:
    return replace(image, cluster_id=fact.cluster_id)


def _feature_level_set(image: MetadataImage, fact: facts.FeatureLevelSet) -> MetadataImage:
    if fact.level == 0:
        return replace(image, features=image.features.drop(fact.name))
    return replace(image, features=image.features.put(fact.name, fact.level))


def _broker_registered(image: MetadataImage, fact: facts.BrokerRegistered) -> MetadataImage:
    broker = fact.broker
    return replace(
        image,
        brokers=image.brokers.put(broker.node_id, broker),
        last_broker_epoch=max(image.last_broker_epoch, broker.epoch),
    )


def _broker_fenced(image: MetadataImage, fact: facts.BrokerFenced) -> MetadataImage:
    return _with_state(image, fact.node_id, fact.epoch, fenced=True)


def _broker_unfenced(image: MetadataImage, fact: facts.BrokerUnfenced) -> MetadataImage:
    return _with_state(image, fact.node_id, fact.epoch, fenced=False)


def _broker_stopping(image: MetadataImage, fact: facts.BrokerStopping) -> MetadataImage:
    return _with_state(image, fact.node_id, fact.epoch, stopping=True)


def _broker_drained(image: MetadataImage, fact: facts.BrokerDrained) -> MetadataImage:
    return _with_state(image, fact.node_id, None, drained=fact.drained)


def _with_state(
    image: MetadataImage, node_id: NodeId, epoch: BrokerEpoch | None, **changes: bool
) -> MetadataImage:
    broker = image.brokers.get(node_id)
    if broker is None or epoch not in (None, broker.epoch):
        return image
    changed = msgspec.structs.replace(broker, **changes)
    return replace(image, brokers=image.brokers.put(node_id, changed))


def _broker_unregistered(image: MetadataImage, fact: facts.BrokerUnregistered) -> MetadataImage:
    broker = image.brokers.get(fact.node_id)
    if broker is None or broker.epoch != fact.epoch:
        return image
    return replace(image, brokers=image.brokers.drop(fact.node_id))


def _broker_epoch_reserved(image: MetadataImage, fact: facts.BrokerEpochReserved) -> MetadataImage:
    return replace(image, last_broker_epoch=max(image.last_broker_epoch, fact.epoch))


def _topic_created(image: MetadataImage, fact: facts.TopicCreated) -> MetadataImage:
    if fact.id in image.topics or fact.name in image.topic_ids:
        return image
    topic = Topic(fact.id, fact.name)
    return replace(
        image,
        topics=image.topics.put(fact.id, topic),
        topic_ids=image.topic_ids.put(fact.name, fact.id),
        lookalikes=_with_lookalike(image, fact.name, present=True),
    )


def _topic_deleted(image: MetadataImage, fact: facts.TopicDeleted) -> MetadataImage:
    topic = image.topics.get(fact.id)
    if topic is None:
        return image
    return replace(
        image,
        topics=image.topics.drop(topic.id),
        topic_ids=image.topic_ids.drop(topic.name),
        lookalikes=_with_lookalike(image, topic.name, present=False),
        partition_count=image.partition_count - len(topic.partitions),
        configs=image.configs.drop(ConfigResource(ResourceKind.TOPIC, topic.name)),
    )


def _with_lookalike(
    image: MetadataImage, name: TopicName, *, present: bool
) -> Table[str, tuple[TopicName, ...]]:
    key = lookalike_key(name)
    if key is None:
        return image.lookalikes
    others = tuple(other for other in image.lookalikes.get(key) or () if other != name)
    names = tuple(sorted((*others, name))) if present else others
    return image.lookalikes.put(key, names) if names else image.lookalikes.drop(key)


def _partition_created(image: MetadataImage, fact: facts.PartitionCreated) -> MetadataImage:
    topic = image.topics.get(fact.topic_id)
    if topic is None or fact.partition.index != len(topic.partitions):
        return image
    topics = image.topics.put(topic.id, topic.with_partition(fact.partition))
    return replace(image, topics=topics, partition_count=image.partition_count + 1)


def _partition_changed(image: MetadataImage, fact: facts.PartitionChanged) -> MetadataImage:
    topic = image.topics.get(fact.topic_id)
    partition: Partition = fact.partition
    if topic is None or topic.partition(partition.index) is None:
        return image
    return replace(image, topics=image.topics.put(topic.id, topic.with_partition(partition)))


def _config_set(image: MetadataImage, fact: facts.ConfigSet) -> MetadataImage:
    values = {**image.config(fact.kind, fact.name), fact.key: fact.value}
    return _with_config(image, ConfigResource(fact.kind, fact.name), values)


def _config_removed(image: MetadataImage, fact: facts.ConfigRemoved) -> MetadataImage:
    values = {key: value for key, value in image.config(fact.kind, fact.name).items() if key != fact.key}
    return _with_config(image, ConfigResource(fact.kind, fact.name), values)


def _with_config(image: MetadataImage, resource: ConfigResource, values: dict[str, str]) -> MetadataImage:
    if not values:
        return replace(image, configs=image.configs.drop(resource))
    # Sorted, so that a snapshot does not depend on the order in which keys were set.
    frozen = MappingProxyType(dict(sorted(values.items())))
    return replace(image, configs=image.configs.put(resource, frozen))


def _producer_ids_allocated(image: MetadataImage, fact: facts.ProducerIdsAllocated) -> MetadataImage:
    return replace(image, next_producer_id=ProducerId(max(image.next_producer_id, fact.start + fact.count)))


_RULES: dict[type[Any], Callable[[MetadataImage, Any], MetadataImage]] = {
    facts.ClusterIdSet: _cluster_id_set,
    facts.FeatureLevelSet: _feature_level_set,
    facts.BrokerRegistered: _broker_registered,
    facts.BrokerFenced: _broker_fenced,
    facts.BrokerUnfenced: _broker_unfenced,
    facts.BrokerStopping: _broker_stopping,
    facts.BrokerDrained: _broker_drained,
    facts.BrokerUnregistered: _broker_unregistered,
    facts.BrokerEpochReserved: _broker_epoch_reserved,
    facts.TopicCreated: _topic_created,
    facts.TopicDeleted: _topic_deleted,
    facts.PartitionCreated: _partition_created,
    facts.PartitionChanged: _partition_changed,
    facts.ConfigSet: _config_set,
    facts.ConfigRemoved: _config_removed,
    facts.ProducerIdsAllocated: _producer_ids_allocated,
}
