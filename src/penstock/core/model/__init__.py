"""The words everything else is written in: ids, instants and the roots of errors.

Ids are distinct types so that a leader epoch cannot be passed where an offset is
meant. Ranges are half open and named `start` and `end`. A moment is either an
`Instant` (monotonic nanoseconds, never stored) or a `Timestamp` (wall-clock
milliseconds, as Kafka records carry them); mixing them up is a type error.

A refusal is a value (`Refused`, with its `Why`); a decision is facts plus a reply.

Left out: anything that one package alone uses.
"""

from penstock.core.model.errors import (
    CorruptionError,
    Fault,
    PenstockError,
    ProtocolError,
    StorageError,
)
from penstock.core.model.ids import (
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.model.machine import Decision, Now
from penstock.core.model.moments import (
    MICROSECOND,
    MILLISECOND,
    SECOND,
    Instant,
    Timestamp,
)
from penstock.core.model.refusals import Refused, Why

__all__ = [
    "NodeId",
    "BrokerEpoch",
    "TopicId",
    "TopicName",
    "PartitionIndex",
    "TopicPartition",
    "Offset",
    "LeaderEpoch",
    "ProducerId",
    "ProducerEpoch",
    "Instant",
    "Timestamp",
    "MICROSECOND",
    "MILLISECOND",
    "SECOND",
    "Decision",
    "Now",
    "Refused",
    "Why",
    "PenstockError",
    "Fault",
    "ProtocolError",
    "CorruptionError",
    "StorageError",
]
