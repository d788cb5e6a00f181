"""An image as the shortest list of facts that rebuilds it."""

from collections.abc import Iterator

from penstock.core.metadata import facts
from penstock.core.metadata.image import MetadataImage
from penstock.core.metadata.state import NO_BROKER, NO_BROKER_EPOCH


def snapshot(image: MetadataImage) -> Iterator[facts.Fact]:
    """Facts that make `image` out of nothing, always in the same order."""
    if image.cluster_id is not None:
        yield facts.ClusterIdSet(image.cluster_id)
    for name, level in image.features.items():
        yield facts.FeatureLevelSet(name, level)
    yield from _brokers(image)
    for topic in image.each_topic():
        yield facts.TopicCreated(topic.name, topic.id)
        for partition in topic.partitions:
            yield facts.PartitionCreated(topic.id, partition)
    for resource, values in image.configs.items():
        for key, value in values.items():
            yield facts.ConfigSet(resource.kind, resource.name, key, value)
    if image.next_producer_id:
        yield facts.ProducerIdsAllocated(NO_BROKER, NO_BROKER_EPOCH, image.next_producer_id, 0)


def _brokers(image: MetadataImage) -> Iterator[facts.Fact]:
    brokers = image.each_broker()
    for broker in brokers:
        yield facts.BrokerRegistered(broker)
    # An unregistered broker may have had the highest epoch: it must not be used again.
    if image.last_broker_epoch > max((broker.epoch for broker in brokers), default=NO_BROKER_EPOCH):
        yield facts.BrokerEpochReserved(image.last_broker_epoch)
