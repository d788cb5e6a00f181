"""Distinct types for what would otherwise all be `int` and `str`."""

from typing import NamedTuple, NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
BrokerEpoch = NewType("BrokerEpoch", int)

TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)
PartitionIndex = NewType("PartitionIndex", int)

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
