"""The state of the cluster as far as facts have told it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.core.metadata.names import lookalike_key
from penstock.core.metadata.sharing import Table
from penstock.core.metadata.state import (
    NO_BROKER_EPOCH,
    Broker,
    ConfigResource,
    Partition,
    ResourceKind,
    Topic,
)
from penstock.core.model import BrokerEpoch, NodeId, ProducerId, TopicId, TopicName

FIRST_PRODUCER_ID = ProducerId(0)
_NO_CONFIG: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Topics, brokers, configuration and counters at one point of the metadata log.

    An image never changes: applying a fact makes the next one, which shares nearly
    everything with it. Whoever holds an image may keep it and compare it with a later one.
    """

    cluster_id: str | None = None
    topics: Table[TopicId, Topic] = field(default_factory=Table)
    topic_ids: Table[TopicName, TopicId] = field(default_factory=Table)
    # Names that differ in '.' and '_' only, under what they have in common.
    lookalikes: Table[str, tuple[TopicName, ...]] = field(default_factory=Table)
    partition_count: int = 0
    brokers: Table[NodeId, Broker] = field(default_factory=Table)
    last_broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    configs: Table[ConfigResource, Mapping[str, str]] = field(default_factory=Table)
    features: Table[str, int] = field(default_factory=Table)
    next_producer_id: ProducerId = FIRST_PRODUCER_ID

    def topic(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(TopicName(name))
        return None if topic_id is None else self.topics.get(topic_id)

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        return self.topics.get(topic_id)

    def topic_id(self, name: str) -> TopicId | None:
        return self.topic_ids.get(TopicName(name))

    def topic_name(self, topic_id: TopicId) -> TopicName | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.name

    def topic_names(self) -> list[TopicName]:
        """Every topic's name, sorted."""
        return self.topic_ids.keys()

    def each_topic(self) -> Iterator[Topic]:
        """Every topic in the order of names."""
        for topic_id in self.topic_ids.values():
            topic = self.topics.get(topic_id)
            assert topic is not None, "a name without its topic"
            yield topic

    def lookalike_of(self, name: str) -> TopicName | None:
        """A topic that metrics could not tell from one called `name`."""
        key = lookalike_key(name)
        names = None if key is None else self.lookalikes.get(key)
        return names[0] if names else None

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.topic(name)
        return None if topic is None else topic.partition(index)

    def partitions_of(self, node_id: NodeId) -> Iterator[tuple[Topic, Partition]]:
        """Every partition that has a replica on the broker, in the order of names."""
        for topic in self.each_topic():
            for partition in topic.partitions:
                if node_id in partition.replicas:
                    yield topic, partition

    def moving_partitions(self) -> Iterator[tuple[Topic, Partition]]:
        """Every partition that is being reassigned, in the order of names."""
        for topic in self.each_topic():
            for partition in topic.partitions:
                if partition.is_moving:
                    yield topic, partition

    def broker(self, node_id: int) -> Broker | None:
        return self.brokers.get(NodeId(node_id))

    def is_live(self, node_id: int) -> bool:
        """Whether the broker is registered and may lead."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and not broker.fenced

    def may_lead(self, node_id: int) -> bool:
        """Whether the broker can be elected: live, and not about to stop."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and not broker.fenced and not broker.stopping

    def is_leaving(self, node_id: int) -> bool:
        """Whether the broker's leaderships had better be elsewhere: it stops, or is drained."""
        broker = self.brokers.get(NodeId(node_id))
        return broker is not None and (broker.stopping or broker.drained)

    def each_broker(self) -> list[Broker]:
        """Every registered broker, fenced ones too, in the order of node ids."""
        return self.brokers.values()

    def live_brokers(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if not broker.fenced]

    def config(self, kind: ResourceKind, name: str) -> Mapping[str, str]:
        """What was set for this very resource, without defaults."""
        return self.configs.get(ConfigResource(kind, name)) or _NO_CONFIG

    def configured(self, kind: ResourceKind) -> list[str]:
        """The names of the resources of a kind that have configuration of their own."""
        return [resource.name for resource, _ in self.configs.items() if resource.kind == kind]

    def feature_level(self, name: str) -> int:
        """0 if the feature is not in use."""
        return self.features.get(name) or 0


EMPTY_IMAGE = MetadataImage()
