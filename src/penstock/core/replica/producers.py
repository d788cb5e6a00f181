"""The last batches of every idempotent producer, so that a retry is not appended twice.

A producer numbers its records per partition and keeps at most five requests in flight.
The last five batches therefore hold every batch that can still be retried.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.model import Offset, ProducerEpoch, ProducerId, Refused, Timestamp, Why
from penstock.core.records import BatchHeader, ControlRecord, ControlType
from penstock.core.replica.transactions import AbortedTransaction, Transactions
from penstock.core.replica.verdicts import ACCEPTED, Duplicate, Verdict

BATCHES_KEPT = 5
SEQUENCES = 2**31


class SeenBatch(NamedTuple):
    """One batch that is in the log."""

    base_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: Timestamp


class Producer:
    """What one producer wrote last."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "seen_at")

    def __init__(self, epoch: ProducerEpoch) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.seen_at = Timestamp(-1)
        self.batches: deque[SeenBatch] = deque(maxlen=BATCHES_KEPT)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Producer) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]


class ProducerStates:
    """Every producer of a partition that has written lately, and its transactions."""

    __slots__ = ("_producers", "transactions")

    def __init__(
        self,
        producers: dict[ProducerId, Producer] | None = None,
        transactions: Transactions | None = None,
    ) -> None:
        self._producers = {} if producers is None else producers
        self.transactions = Transactions() if transactions is None else transactions

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[ProducerId, Producer]]:
        return iter(self._producers.items())

    def get(self, producer_id: ProducerId) -> Producer | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> Verdict:
        """Judge a batch before it is appended; changes nothing."""
        producer_id = header.producer_id
        producer = self._producers.get(ProducerId(producer_id)) if producer_id >= 0 else None
        if producer is None:
            # Nothing known: the state expired, or the partition moved. Refusing would
            # stop the producer for good (KIP-360), so any sequence may start.
            return ACCEPTED
        if header.producer_epoch < producer.epoch:
            return Refused(Why.PRODUCER_FENCED)
        if header.is_control:
            return ACCEPTED
        if header.producer_epoch > producer.epoch:
            return ACCEPTED if header.base_sequence == 0 else Refused(Why.OUT_OF_ORDER_SEQUENCE)
        return _check_sequence(producer, header)

    def check_marker(self, marker: ControlRecord) -> Verdict:
        """Judge the end of a transaction: neither an old producer nor an old coordinator may set it."""
        producer = self._producers.get(ProducerId(marker.producer_id))
        if producer is None:
            return ACCEPTED
        if marker.producer_epoch < producer.epoch:
            return Refused(Why.PRODUCER_FENCED)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return Refused(Why.STALE_COORDINATOR)
        return ACCEPTED

    def update(self, header: BatchHeader, first_offset: Offset, now: Timestamp) -> None:
        """Record a data batch of a producer that was appended at `first_offset`."""
        producer_id = ProducerId(header.producer_id)
        producer = self._begin(producer_id, ProducerEpoch(header.producer_epoch), now)
        last_offset = Offset(first_offset + header.last_offset_delta)
        producer.batches.append(
            SeenBatch(
                header.base_sequence,
                header.last_sequence,
                first_offset,
                last_offset,
                Timestamp(header.max_timestamp),
            )
        )
        if header.is_transactional:
            self.transactions.begin(producer_id, first_offset)

    def update_marker(self, marker: ControlRecord, now: Timestamp) -> AbortedTransaction | None:
        """Record the end of a transaction; answers what was aborted, if something was."""
        producer_id = ProducerId(marker.producer_id)
        producer = self._begin(producer_id, ProducerEpoch(marker.producer_epoch), now)
        producer.coordinator_epoch = marker.coordinator_epoch
        ended = self.transactions.end(producer_id, Offset(marker.offset))
        return ended if marker.control_type is ControlType.ABORT else None

    def expire(self, seen_before: Timestamp) -> int:
        """Forget producers last seen before this moment, unless a transaction is open."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.seen_at < seen_before and self.transactions.first_offset_of(producer_id) is None
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def _begin(self, producer_id: ProducerId, epoch: ProducerEpoch, now: Timestamp) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(epoch)
        elif epoch != producer.epoch:
            # A new instance counts from zero; what the old one wrote can no longer be retried.
            producer.epoch = epoch
            producer.batches.clear()
        producer.seen_at = now
        return producer


def _check_sequence(producer: Producer, header: BatchHeader) -> Verdict:
    """A batch of the producer's present epoch: the next one, a retry, or a hole."""
    if not producer.batches:
        # Only a marker raised the epoch so far.
        return ACCEPTED if header.base_sequence == 0 else Refused(Why.OUT_OF_ORDER_SEQUENCE)
    if header.base_sequence == (producer.batches[-1].last_sequence + 1) % SEQUENCES:
        return ACCEPTED
    last_sequence = header.last_sequence
    for seen in producer.batches:
        if seen.base_sequence == header.base_sequence and seen.last_sequence == last_sequence:
            return Duplicate(seen.first_offset, seen.last_offset, seen.timestamp)
    return Refused(Why.OUT_OF_ORDER_SEQUENCE)
