"""What a command is answered with when it is not refused."""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.metadata.state import Partition
from penstock.core.model import BrokerEpoch, ProducerId, Refused, TopicId, TopicName


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing to add."""


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """The epoch under which the broker speaks from now on."""

    epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class LeavingBroker:
    """What a broker that stops or is drained still has: nobody else can lead these partitions."""

    leading: int
    replicas: int


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The topic as it is, or as it would be if the command only asked for validation."""

    name: TopicName
    id: TopicId
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """What the topic was called and which id it had."""

    name: TopicName
    id: TopicId


@dataclass(frozen=True, slots=True)
class CreatedPartitions:
    """The number of partitions that the topic has now."""

    name: TopicName
    partitions: int


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """The ids from `start` on, `count` of them."""

    start: ProducerId
    count: int


@dataclass(frozen=True, slots=True)
class ChangedPartition:
    """The partition as it is after the change."""

    partition: Partition


@dataclass(frozen=True, slots=True)
class BalancedLeaders:
    """How many leaderships went back, and how many are to follow."""

    moved: int
    left: int


@dataclass(frozen=True, slots=True)
class StartedMoves:
    """How many partitions began to move."""

    partitions: int


Reply: TypeAlias = (
    Done
    | RegisteredBroker
    | LeavingBroker
    | CreatedTopic
    | DeletedTopic
    | CreatedPartitions
    | ProducerIdBlock
    | ChangedPartition
    | BalancedLeaders
    | StartedMoves
    | Refused
)
