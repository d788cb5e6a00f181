"""The words everything else is written in: ids, instants and the roots of errors.

Ids are distinct types so that a leader epoch cannot be passed where an offset is
meant. Ranges are half open and named `start` and `end`. A moment is either an
`Instant` (monotonic nanoseconds, never stored) or a `Timestamp` (wall-clock
milliseconds, as Kafka records carry them); mixing them up is a type error.

Left out: refusals (`Why`) arrive with the first machine that refuses something.
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
    Sequence,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.core.model.moments import (
    MICROSECOND,
    MILLISECOND,
    SECOND,
    Instant,
    Timestamp,
)

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
    "Sequence",
    "Instant",
    "Timestamp",
    "MICROSECOND",
    "MILLISECOND",
    "SECOND",
    "PenstockError",
    "Fault",
    "ProtocolError",
    "CorruptionError",
    "StorageError",
]
