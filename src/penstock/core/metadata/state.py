"""What the cluster consists of: brokers, topics, partitions. All of it frozen.

`Broker` and `Partition` are stored inside facts as they stand, so that applying a fact is
putting a value in its place. Fields are written in order; a later format may only add
fields with defaults at the end.
"""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import msgspec

from penstock.core.metadata.names import is_internal
from penstock.core.metadata.sharing import Series
from penstock.core.model import BrokerEpoch, LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName

NO_LEADER = NodeId(-1)
NO_BROKER = NodeId(-1)
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_BROKER_EPOCH = BrokerEpoch(-1)
NO_INCARNATION = UUID(int=0)


class Stored(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A value that facts carry: a row of fields, closed to fields it does not know."""


# Where brokers and controllers reach each other; every other name is a listener for clients.
PEER_LISTENER = "PEER"


class Listener(Stored, frozen=True):
    """One door of a broker, as clients and peers are told to reach it."""

    name: str
    host: str
    port: int
    security: str = "PLAINTEXT"


class FeatureRange(Stored, frozen=True):
    """The levels of one feature that a broker can read and write."""

    name: str
    lowest: int
    highest: int


class Broker(Stored, frozen=True):
    """One registration of a broker: each start is a new epoch."""

    node_id: NodeId
    epoch: BrokerEpoch
    directory_id: UUID
    listeners: tuple[Listener, ...] = ()
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()
    # The epoch on the clean marker of the data directory; -1 if the last stop was not clean.
    previous_epoch: BrokerEpoch = NO_BROKER_EPOCH
    fenced: bool = True
    # About to stop: it keeps what nobody else can lead, and is never elected.
    stopping: bool = False
    # An operator wants it empty: no new replicas, and it leads only what nobody else can.
    drained: bool = False
    # Whether this life acknowledges only what is on disk: its crash loses nothing then.
    synced: bool = True
    # Which life of its process registered: a registration that arrives twice is one.
    incarnation: UUID = NO_INCARNATION

    def listener(self, name: str) -> Listener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)

    def supports(self, feature: str, level: int) -> bool:
        """Level 0 is the absence of a feature, which everybody supports."""
        ranges = (known for known in self.features if known.name == feature)
        return level == 0 or any(known.lowest <= level <= known.highest for known in ranges)


class Partition(Stored, frozen=True):
    """Who keeps one partition, who leads it, and who may lead it next.

    `elr` are replicas outside the ISR that hold every committed record all the same
    (KIP-966); `last_known_elr` are those that once did. The leader epoch grows with every
    change of leader, the partition epoch with every change at all. While replicas move,
    `replicas` holds the old and the new ones: first those that shall be, then `removing`.
    """

    index: PartitionIndex
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch = LeaderEpoch(0)
    partition_epoch: int = 0
    elr: tuple[NodeId, ...] = ()
    last_known_elr: tuple[NodeId, ...] = ()
    # Where each replica was when it was in sync last; on another disk it has nothing of that.
    directories: tuple[UUID, ...] = ()
    # Replicas that a reassignment brings, and those it takes away once the new ones are in sync.
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    # The last leader epoch that began under a leader who may miss committed records: replicas whose
    # records are older may have to cut even what was committed.
    unclean_epoch: LeaderEpoch = NO_LEADER_EPOCH

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas that the partition shall have, the preferred leader first."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.removing)

    @property
    def origin(self) -> tuple[NodeId, ...]:
        """The replicas that the partition had before a reassignment."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.adding)

    @property
    def replicas_to_rely_on(self) -> int:
        """How many replicas there are, both before and after a reassignment."""
        return len(self.replicas) - max(len(self.adding), len(self.removing))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions, in the order of their indexes."""

    id: TopicId
    name: TopicName
    partitions: Series[Partition] = field(default_factory=Series)
    # How many partitions there are per number of replicas: nearly always one pair.
    factors: tuple[tuple[int, int], ...] = ()

    @property
    def internal(self) -> bool:
        return is_internal(self.name)

    @property
    def replication_factor(self) -> int:
        """How many replicas a partition shall have; reassignments may make that differ."""
        return len(self.partitions[0].target) if self.partitions else 0

    @property
    def replicas_to_rely_on(self) -> int:
        """The smallest number of replicas that any partition has or shall have."""
        return self.factors[0][0] if self.factors else 0

    def with_partition(self, partition: Partition) -> "Topic":
        """The topic with one more partition, or with another state of one it has."""
        former = self.partition(partition.index)
        if former is None:
            assert partition.index == len(self.partitions), "partitions are numbered without a gap"
            partitions = self.partitions.appended(partition)
        else:
            partitions = self.partitions.replaced(partition.index, partition)
        factors = dict(self.factors)
        if former is not None:
            factors[former.replicas_to_rely_on] -= 1
        factor = partition.replicas_to_rely_on
        factors[factor] = factors.get(factor, 0) + 1
        counts = tuple(sorted((factor, count) for factor, count in factors.items() if count))
        return Topic(self.id, self.name, partitions, counts)

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class ResourceKind(enum.IntEnum):
    """What a configuration belongs to; numbered as Kafka numbers them."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One thing that can be configured. The broker named "" stands for every broker."""

    kind: ResourceKind
    name: str
