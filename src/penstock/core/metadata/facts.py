"""What has become true about the cluster: the entries of the metadata log.

A tag names a fact for ever. A new field goes to the end and has a default; a fact that
old nodes cannot read needs a new level of `metadata.version` before it may be written.
"""

from typing import TypeAlias

from penstock.core.metadata.state import Broker, Partition, ResourceKind, Stored
from penstock.core.model import BrokerEpoch, NodeId, ProducerId, TopicId, TopicName


class ClusterIdSet(Stored, frozen=True, tag="cluster_id_set"):
    """The cluster exists and has an identity."""

    cluster_id: str


class FeatureLevelSet(Stored, frozen=True, tag="feature_level_set"):
    """A feature is in use at this level; 0 takes it out of use."""

    name: str
    level: int


class BrokerRegistered(Stored, frozen=True, tag="broker_registered"):
    """A broker started, under a new epoch; it replaces its earlier registration."""

    broker: Broker


class BrokerFenced(Stored, frozen=True, tag="broker_fenced"):
    """A broker may not lead any more."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerUnfenced(Stored, frozen=True, tag="broker_unfenced"):
    """A broker may lead."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerStopping(Stored, frozen=True, tag="broker_stopping"):
    """A broker stops soon and is not elected any more; its next registration ends this."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerDrained(Stored, frozen=True, tag="broker_drained"):
    """An operator wants a broker empty, or not any more; registrations do not change it."""

    node_id: NodeId
    drained: bool


class BrokerUnregistered(Stored, frozen=True, tag="broker_unregistered"):
    """A broker left for good."""

    node_id: NodeId
    epoch: BrokerEpoch


class BrokerEpochReserved(Stored, frozen=True, tag="broker_epoch_reserved"):
    """No epoch up to this one is handed out again; in snapshots only."""

    epoch: BrokerEpoch


class TopicCreated(Stored, frozen=True, tag="topic_created"):
    """A topic exists, still without partitions."""

    name: TopicName
    id: TopicId


class TopicDeleted(Stored, frozen=True, tag="topic_deleted"):
    """A topic, its partitions and its configuration are gone."""

    id: TopicId


class PartitionCreated(Stored, frozen=True, tag="partition_created"):
    """A topic has one more partition."""

    topic_id: TopicId
    partition: Partition


class PartitionChanged(Stored, frozen=True, tag="partition_changed"):
    """A partition has other replicas, another ISR or another leader: its whole new state."""

    topic_id: TopicId
    partition: Partition


class ConfigSet(Stored, frozen=True, tag="config_set"):
    """One key of one resource has a value of its own."""

    kind: ResourceKind
    name: str
    key: str
    value: str


class ConfigRemoved(Stored, frozen=True, tag="config_removed"):
    """One key of one resource follows the default again."""

    kind: ResourceKind
    name: str
    key: str


class ProducerIdsAllocated(Stored, frozen=True, tag="producer_ids_allocated"):
    """The ids from `start` on, `count` of them, belong to one broker to hand out."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    start: ProducerId
    count: int


Fact: TypeAlias = (
    ClusterIdSet
    | FeatureLevelSet
    | BrokerRegistered
    | BrokerFenced
    | BrokerUnfenced
    | BrokerStopping
    | BrokerDrained
    | BrokerUnregistered
    | BrokerEpochReserved
    | TopicCreated
    | TopicDeleted
    | PartitionCreated
    | PartitionChanged
    | ConfigSet
    | ConfigRemoved
    | ProducerIdsAllocated
)
