"""How each fact changes the image. Total: a fact about what is not there changes nothing."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, groupby
from types import MappingProxyType
from typing import Any

import msgspec

from penstock.core.metadata import records
from penstock.core.metadata.access import entity_key
from penstock.core.metadata.image import (
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    Partition,
    PersistentMap,
    Topic,
)
from penstock.core.metadata.topic_names import collision_key
from penstock.core.model import BrokerEpoch, NodeId, ProducerId, TopicId, TopicName


def apply(image: MetadataImage, fact: records.Fact) -> MetadataImage:
    """The image after `fact`; `image` itself stays as it is."""
    return _RULES[type(fact)](image, fact)


def replay(image: MetadataImage, history: Iterable[records.Fact]) -> MetadataImage:
    """The image after all of `history`.

    Changes of one topic's partitions that follow one another make one new image, and so do partitions that
    it gets: a start has thousands of the first, a new topic of the others.
    """
    for (kind, _), facts in groupby(history, _run_of):
        if kind is records.PartitionChanged:
            image = _partitions_changed(image, facts)
        elif kind is records.PartitionCreated:
            image = _partitions_created(image, facts)
        else:
            for fact in facts:
                image = _RULES[type(fact)](image, fact)
    return image


def _run_of(fact: records.Fact) -> tuple[type[records.Fact] | None, TopicId | None]:
    """What facts have in common that make one new image."""
    if isinstance(fact, records.PartitionChanged | records.PartitionCreated):
        return type(fact), fact.topic_id
    return None, None


def _cluster_id_set(image: MetadataImage, fact: records.ClusterIdSet) -> MetadataImage:
    return replace(image, cluster_id=fact.cluster_id)


def _feature_level_set(image: MetadataImage, fact: records.FeatureLevelSet) -> MetadataImage:
    if fact.level == 0:
        return replace(image, features=image.features.drop(fact.name))
    return replace(image, features=image.features.put(fact.name, fact.level))


def _broker_registered(image: MetadataImage, fact: records.BrokerRegistered) -> MetadataImage:
    broker = fact.broker
    return replace(
        image,
        brokers=image.brokers.put(broker.node_id, broker),
        last_broker_epoch=max(image.last_broker_epoch, broker.epoch),
    )


def _broker_fenced(image: MetadataImage, fact: records.BrokerFenced) -> MetadataImage:
    return _with_state(image, fact.node_id, fact.epoch, fenced=True)


def _broker_unfenced(image: MetadataImage, fact: records.BrokerUnfenced) -> MetadataImage:
    return _with_state(image, fact.node_id, fact.epoch, fenced=False)


def _broker_stopping(image: MetadataImage, fact: records.BrokerStopping) -> MetadataImage:
    return _with_state(image, fact.node_id, fact.epoch, stopping=True)


def _broker_drained(image: MetadataImage, fact: records.BrokerDrained) -> MetadataImage:
    return _with_state(image, fact.node_id, None, drained=fact.drained)


def _with_state(
    image: MetadataImage, node_id: NodeId, epoch: BrokerEpoch | None, **changes: bool
) -> MetadataImage:
    broker = image.brokers.get(node_id)
    if broker is None or epoch not in (None, broker.epoch):
        return image
    changed = msgspec.structs.replace(broker, **changes)
    return replace(image, brokers=image.brokers.put(node_id, changed))


def _broker_unregistered(image: MetadataImage, fact: records.BrokerUnregistered) -> MetadataImage:
    broker = image.brokers.get(fact.node_id)
    if broker is None or broker.epoch != fact.epoch:
        return image
    return replace(image, brokers=image.brokers.drop(fact.node_id))


def _broker_epoch_reserved(image: MetadataImage, fact: records.BrokerEpochReserved) -> MetadataImage:
    return replace(image, last_broker_epoch=max(image.last_broker_epoch, fact.epoch))


def _topic_created(image: MetadataImage, fact: records.TopicCreated) -> MetadataImage:
    if fact.id in image.topics or fact.name in image.topic_ids:
        return image
    topic = Topic(fact.id, fact.name)
    return replace(
        image,
        topics=image.topics.put(fact.id, topic),
        topic_ids=image.topic_ids.put(fact.name, fact.id),
        lookalikes=_with_lookalike(image, fact.name, present=True),
    )


def _topic_deleted(image: MetadataImage, fact: records.TopicDeleted) -> MetadataImage:
    topic = image.topics.get(fact.id)
    if topic is None:
        return image
    return replace(
        image,
        topics=image.topics.drop(topic.id),
        topic_ids=image.topic_ids.drop(topic.name),
        lookalikes=_with_lookalike(image, topic.name, present=False),
        partition_count=image.partition_count - len(topic.partitions),
        replica_counts=_with_replicas(image, gone=topic.partitions),
        configs=image.configs.drop(ConfigResource(ConfigResourceType.TOPIC, topic.name)),
    )


def _with_lookalike(
    image: MetadataImage, name: TopicName, *, present: bool
) -> PersistentMap[str, tuple[TopicName, ...]]:
    key = collision_key(name)
    if key is None:
        return image.lookalikes
    others = tuple(other for other in image.lookalikes.get(key) or () if other != name)
    names = tuple(sorted((*others, name))) if present else others
    return image.lookalikes.put(key, names) if names else image.lookalikes.drop(key)


def _partition_created(image: MetadataImage, fact: records.PartitionCreated) -> MetadataImage:
    return _partitions_created(image, (fact,))


def _partitions_created(image: MetadataImage, facts: Iterable[records.Fact]) -> MetadataImage:
    """The image after one topic got more partitions."""
    former: Topic | None = None
    more: list[Partition] = []
    for fact in facts:
        assert isinstance(fact, records.PartitionCreated)
        former = former or image.topics.get(fact.topic_id)
        if former is None:
            return image
        if fact.partition.index == len(former.partitions) + len(more):
            more.append(fact.partition)
    if former is None or not more:
        return image
    topics = image.topics.put(former.id, former.with_partitions(more))
    return replace(
        image,
        topics=topics,
        partition_count=image.partition_count + len(more),
        replica_counts=_with_replicas(image, more=more),
    )


def _with_replicas(
    image: MetadataImage, gone: Iterable[Partition] = (), more: Iterable[Partition] = ()
) -> Mapping[NodeId, int]:
    """How many replicas each broker has without those of some partitions, and with those of others."""
    counts = Counter(image.replica_counts)
    counts.update(chain.from_iterable(partition.replicas for partition in more))
    counts.subtract(chain.from_iterable(partition.replicas for partition in gone))
    return MappingProxyType({node_id: count for node_id, count in counts.items() if count})


def _partition_changed(image: MetadataImage, fact: records.PartitionChanged) -> MetadataImage:
    return _partitions_changed(image, (fact,))


def _partitions_changed(image: MetadataImage, facts: Iterable[records.Fact]) -> MetadataImage:
    """The image after changes of one topic."""
    former: Topic | None = None
    topic: Topic | None = None
    gone: list[Partition] = []
    more: list[Partition] = []
    for fact in facts:
        assert isinstance(fact, records.PartitionChanged)
        if topic is None:
            former = topic = image.topics.get(fact.topic_id)
            if topic is None:
                return image
        before = topic.partition(fact.partition.index)
        if before is not None:
            topic = topic.with_partition(fact.partition)
            if before.replicas != fact.partition.replicas:
                gone.append(before)
                more.append(fact.partition)
    if topic is None or topic is former:
        return image
    topics = image.topics.put(topic.id, topic)
    if not more:
        return replace(image, topics=topics)
    return replace(image, topics=topics, replica_counts=_with_replicas(image, gone, more))


def _config_set(image: MetadataImage, fact: records.ConfigSet) -> MetadataImage:
    values = {**image.config(fact.kind, fact.name), fact.key: fact.value}
    return _with_config(image, ConfigResource(fact.kind, fact.name), values)


def _config_removed(image: MetadataImage, fact: records.ConfigRemoved) -> MetadataImage:
    values = {key: value for key, value in image.config(fact.kind, fact.name).items() if key != fact.key}
    return _with_config(image, ConfigResource(fact.kind, fact.name), values)


def _with_config(image: MetadataImage, resource: ConfigResource, values: dict[str, str]) -> MetadataImage:
    if not values:
        return replace(image, configs=image.configs.drop(resource))
    # Sorted, so that a snapshot does not depend on the order in which keys were set.
    frozen = MappingProxyType(dict(sorted(values.items())))
    return replace(image, configs=image.configs.put(resource, frozen))


def _producer_ids_allocated(image: MetadataImage, fact: records.ProducerIdsAllocated) -> MetadataImage:
    return replace(image, next_producer_id=ProducerId(max(image.next_producer_id, fact.start + fact.count)))


def _acl_created(image: MetadataImage, fact: records.AclCreated) -> MetadataImage:
    return replace(image, acls=image.acls.put(fact.acl, True))


def _acl_deleted(image: MetadataImage, fact: records.AclDeleted) -> MetadataImage:
    return replace(image, acls=image.acls.drop(fact.acl))


def _scram_credential_set(image: MetadataImage, fact: records.ScramCredentialSet) -> MetadataImage:
    key = fact.credential.user, fact.credential.mechanism
    return replace(image, credentials=image.credentials.put(key, fact.credential))


def _scram_credential_removed(image: MetadataImage, fact: records.ScramCredentialRemoved) -> MetadataImage:
    return replace(image, credentials=image.credentials.drop((fact.user, fact.mechanism)))


def _api_key_set(image: MetadataImage, fact: records.ApiKeySet) -> MetadataImage:
    return replace(image, api_keys=image.api_keys.put(fact.api_key.id, fact.api_key))


def _api_key_removed(image: MetadataImage, fact: records.ApiKeyRemoved) -> MetadataImage:
    return replace(image, api_keys=image.api_keys.drop(fact.id))


def _delegation_secret_set(image: MetadataImage, fact: records.DelegationSecretSet) -> MetadataImage:
    return replace(image, delegation_secret=fact.secret)


def _quota_set(image: MetadataImage, fact: records.QuotaSet) -> MetadataImage:
    key = entity_key(fact.entity)
    limits = {**(image.quotas.get(key) or {}), fact.key: fact.value}
    # Sorted, so that a snapshot does not depend on the order in which keys were set.
    frozen = MappingProxyType(dict(sorted(limits.items())))
    return replace(image, quotas=image.quotas.put(key, frozen))


def _quota_removed(image: MetadataImage, fact: records.QuotaRemoved) -> MetadataImage:
    key = entity_key(fact.entity)
    limits = {name: value for name, value in (image.quotas.get(key) or {}).items() if name != fact.key}
    quotas = image.quotas.put(key, MappingProxyType(limits)) if limits else image.quotas.drop(key)
    return replace(image, quotas=quotas)


_RULES: dict[type[Any], Callable[[MetadataImage, Any], MetadataImage]] = {
    records.ClusterIdSet: _cluster_id_set,
    records.FeatureLevelSet: _feature_level_set,
    records.BrokerRegistered: _broker_registered,
    records.BrokerFenced: _broker_fenced,
    records.BrokerUnfenced: _broker_unfenced,
    records.BrokerStopping: _broker_stopping,
    records.BrokerDrained: _broker_drained,
    records.BrokerUnregistered: _broker_unregistered,
    records.BrokerEpochReserved: _broker_epoch_reserved,
    records.TopicCreated: _topic_created,
    records.TopicDeleted: _topic_deleted,
    records.PartitionCreated: _partition_created,
    records.PartitionChanged: _partition_changed,
    records.ConfigSet: _config_set,
    records.ConfigRemoved: _config_removed,
    records.ProducerIdsAllocated: _producer_ids_allocated,
    records.AclCreated: _acl_created,
    records.AclDeleted: _acl_deleted,
    records.ScramCredentialSet: _scram_credential_set,
    records.ScramCredentialRemoved: _scram_credential_removed,
    records.ApiKeySet: _api_key_set,
    records.ApiKeyRemoved: _api_key_removed,
    records.DelegationSecretSet: _delegation_secret_set,
    records.QuotaSet: _quota_set,
    records.QuotaRemoved: _quota_removed,
}
