"""The last batches of every idempotent producer, so that a retry is not appended twice.

A producer numbers its records per partition and keeps at most five requests in flight.
The last five batches therefore hold every batch that can still be retried.

How many producers a partition remembers is bounded: the one that has not written for longest is evicted,
unless it has an open transaction. If it may be alive still, it is remembered that it was (see
`forgotten_producers`). The order in which producers wrote last is that of the log, so that every replica
evicts the same ones; where a node evicts more, for its own limit, the others are none the worse for it.

The state as bytes (little endian), for snapshots and checkpoints:

counts      producers 4 │ open transactions 4 │ ended transactions 4
producer    id 8 │ epoch 2 │ batches 2 │ coordinator epoch 4 │ seen at 8
  batch     base sequence 4 │ last sequence 4 │ first offset 8 │ last offset 8 │ timestamp 8
open        producer id 8 │ first offset 8
ended       first offset 8 │ marker offset 8
forgotten   count 4 │ incomplete 4 │ key 8 …      if bit 31 of the number of ended transactions is set
"""

import struct
import sys
from array import array
from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

from penstock.core.model import (
    ApiError,
    CorruptionError,
    ErrorKind,
    Offset,
    ProducerEpoch,
    ProducerId,
    Timestamp,
)
from penstock.core.records import BatchHeader, Buffer, ControlRecord, ControlType
from penstock.core.replica.forgotten_producers import RETRY_MS_MAX, ForgottenProducers
from penstock.core.replica.transactions import AbortedTransaction, EndedTransaction, OpenTransactions
from penstock.core.values import dataclass

BATCHES_KEPT = 5
SEQUENCES = 2**31
# Of one partition; a producer takes about 350 bytes.
PRODUCERS_MAX = 50_000
# They are evicted by so many parts of that at a time.
EVICTED_PART = 16
# From this version on every transaction has an epoch of its own, and its marker the next one (KIP-890).
EPOCH_PER_TRANSACTION = 2
_COUNTS = struct.Struct("<III")
_PRODUCER = struct.Struct("<qhHiq")
_BATCH = struct.Struct("<iiqqq")
_PAIR = struct.Struct("<qq")
_LAST_SEQUENCE = struct.Struct("<i")
_LAST_OFFSET = struct.Struct("<q")
_FORGOTTEN = struct.Struct("<II")
_HAS_FORGOTTEN = 1 << 31
# Where the last sequence of the last batch is, from the end.
_LAST_SEQUENCE_AT = _BATCH.size - 4
_KEPT_BYTES = BATCHES_KEPT * _BATCH.size
NOT_KNOWN_ANY_MORE = ApiError(ErrorKind.PRODUCER_FORGOTTEN)


@dataclass(frozen=True, slots=True)
class BatchAccepted:
    """The batch follows what the producer wrote before."""


@dataclass(frozen=True, slots=True)
class DuplicateBatch:
    """The batch is in the log already: respond as if it had just been appended."""

    first_offset: Offset
    last_offset: Offset
    timestamp: Timestamp


@dataclass(frozen=True, slots=True)
class DuplicateMarker:
    """The marker is in the log already: a coordinator that did not hear of it has sent it again."""


BatchVerdict: TypeAlias = BatchAccepted | DuplicateBatch | ApiError
MarkerVerdict: TypeAlias = BatchAccepted | DuplicateMarker | ApiError
ACCEPTED = BatchAccepted()


class BatchMetadata(NamedTuple):
    """One batch that is in the log."""

    base_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp: Timestamp


class ProducerState:
    """What one producer wrote last; `packed` are its batches as in a snapshot, since there may be many."""

    __slots__ = ("coordinator_epoch", "epoch", "marker_offset", "packed", "seen_at")

    def __init__(self, epoch: ProducerEpoch) -> None:
        self.epoch = epoch
        self.coordinator_epoch = -1
        # Where its last marker is; not stored, and -1 if that is not known.
        self.marker_offset = Offset(-1)
        self.seen_at = Timestamp(-1)
        self.packed = b""

    @property
    def last_offset(self) -> Offset | None:
        """Where its last batch ends."""
        packed = self.packed
        return Offset(_LAST_OFFSET.unpack_from(packed, len(packed) - 16)[0]) if packed else None

    @property
    def batches(self) -> list[BatchMetadata]:
        """The last ones, oldest first."""
        return list(map(BatchMetadata._make, _BATCH.iter_unpack(self.packed)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProducerState) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__ if name != "marker_offset"
        )

    __hash__ = None  # type: ignore[assignment]


class ProducerStateManager:
    """Every producer of a partition that has written lately, and its transactions."""

    __slots__ = ("_newest", "_producers", "evictions", "forgotten", "transactions")

    def __init__(
        self,
        producers: dict[ProducerId, ProducerState] | None = None,
        transactions: OpenTransactions | None = None,
        forgotten: ForgottenProducers | None = None,
    ) -> None:
        # In the order of their last batches.
        self._producers = {} if producers is None else producers
        self._newest: ProducerId | None = None
        self.transactions = OpenTransactions() if transactions is None else transactions
        self.forgotten = ForgottenProducers() if forgotten is None else forgotten
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[tuple[ProducerId, ProducerState]]:
        return iter(self._producers.items())

    def get(self, producer_id: ProducerId) -> ProducerState | None:
        return self._producers.get(producer_id)

    def check(self, header: BatchHeader) -> BatchVerdict:
        """Check a batch before it is appended; changes nothing."""
        producer_id = header.producer_id
        producer = self._producers.get(ProducerId(producer_id)) if producer_id >= 0 else None
        if producer is None:
            # Nothing known: the state expired, or the partition moved. An error would
            # stop the producer for good (KIP-360), so any sequence may start.
            if not self.forgotten or header.is_control or producer_id < 0:
                return ACCEPTED
            is_known = self.forgotten.may_include(producer_id, header.producer_epoch, header.base_sequence)
            return NOT_KNOWN_ANY_MORE if is_known else ACCEPTED
        if header.producer_epoch < producer.epoch:
            return ApiError(ErrorKind.PRODUCER_FENCED)
        if header.is_control:
            return ACCEPTED
        if header.producer_epoch > producer.epoch:
            return ACCEPTED if header.base_sequence == 0 else ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)
        return _check_sequence(producer, header)

    def check_marker(self, marker: ControlRecord, transaction_version: int = 0) -> MarkerVerdict:
        """Check the end of a transaction: neither an old producer nor an old coordinator may write it.

        Of transaction version 2, the marker's epoch is above that of the records: one with the same epoch
        would end the next transaction (KIP-1228), or is a repetition if none is open.
        """
        producer_id = ProducerId(marker.producer_id)
        producer = self._producers.get(producer_id)
        if producer is None:
            return ACCEPTED
        if marker.producer_epoch < producer.epoch:
            return ApiError(ErrorKind.PRODUCER_FENCED)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return ApiError(ErrorKind.STALE_COORDINATOR)
        if transaction_version >= EPOCH_PER_TRANSACTION and marker.producer_epoch == producer.epoch:
            if self.transactions.first_offset_of(producer_id) is None:
                return DuplicateMarker()
            return ApiError(ErrorKind.PRODUCER_FENCED, "the marker's epoch is that of an open transaction")
        return ACCEPTED

    def update(self, header: BatchHeader, first_offset: Offset, now: Timestamp) -> None:
        """Record a data batch of a producer that was appended at `first_offset`."""
        producer_id = ProducerId(header.producer_id)
        producer = self._begin(producer_id, ProducerEpoch(header.producer_epoch), now)
        last_offset = Offset(first_offset + header.last_offset_delta)
        packed = producer.packed
        producer.packed = (packed if len(packed) < _KEPT_BYTES else packed[_BATCH.size :]) + _BATCH.pack(
            header.base_sequence, header.last_sequence, first_offset, last_offset, header.max_timestamp
        )
        if header.is_transactional:
            self.transactions.begin(producer_id, first_offset)

    def update_marker(self, marker: ControlRecord, now: Timestamp) -> AbortedTransaction | None:
        """Record the end of a transaction; returns what was aborted, if something was."""
        producer_id = ProducerId(marker.producer_id)
        producer = self._begin(producer_id, ProducerEpoch(marker.producer_epoch), now)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.marker_offset = Offset(marker.offset)
        ended = self.transactions.end(producer_id, Offset(marker.offset))
        return ended if marker.control_type is ControlType.ABORT else None

    def without_open(self, producer_ids: Collection[int]) -> "ProducerStateManager":
        """The same, but no transaction of these producers is open."""
        transactions = self.transactions
        ongoing = [pair for pair in transactions.ongoing() if pair[0] not in producer_ids]
        return ProducerStateManager(
            self._producers, OpenTransactions(ongoing, transactions.ended()), self.forgotten
        )

    def expire(self, seen_before: Timestamp) -> int:
        """Forget producers last seen before this time, unless a transaction is open."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.seen_at < seen_before and self.transactions.first_offset_of(producer_id) is None
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def evict(self, count_max: int, now: Timestamp) -> int:
        """Forget those that have not written for longest until so many are left; returns how many went.

        Those with an open transaction stay. Those that may retry a batch are remembered by their ids.
        """
        producers, transactions = self._producers, self.transactions
        too_many = len(producers) - count_max
        if too_many <= 0:
            return 0
        is_open = transactions.is_open
        gone = list(islice((one for one in producers if not is_open(one)), too_many))
        retrying = now - RETRY_MS_MAX
        alive = [
            (one, state.epoch)
            for one in gone
            if (state := producers[one]).packed and state.seen_at > retrying
        ]
        if alive:
            self.forgotten.add(alive, now)
        for one in gone:
            del producers[one]
        self.evictions += len(gone)
        return len(gone)

    def _begin(self, producer_id: ProducerId, epoch: ProducerEpoch, now: Timestamp) -> ProducerState:
        producers = self._producers
        producer = producers.get(producer_id)
        if producer is None:
            if len(producers) >= PRODUCERS_MAX:
                self.evict(PRODUCERS_MAX - PRODUCERS_MAX // EVICTED_PART, now)
            producer = producers[producer_id] = ProducerState(epoch)
        else:
            if producer_id != self._newest:
                del producers[producer_id]
                producers[producer_id] = producer
            if epoch != producer.epoch:
                # A new instance counts from zero; what the old one wrote can no longer be retried.
                producer.epoch = epoch
                producer.packed = b""
        self._newest = producer_id
        producer.seen_at = now
        return producer


def _check_sequence(producer: ProducerState, header: BatchHeader) -> BatchVerdict:
    """A batch of the producer's present epoch: the next one, a retry, or a hole."""
    packed = producer.packed
    if not packed:
        # Only a marker raised the epoch so far.
        return ACCEPTED if header.base_sequence == 0 else ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)
    (last_sequence,) = _LAST_SEQUENCE.unpack_from(packed, len(packed) - _LAST_SEQUENCE_AT)
    if header.base_sequence == (last_sequence + 1) % SEQUENCES:
        return ACCEPTED
    last_sequence = header.last_sequence
    for seen in producer.batches:
        if seen.base_sequence == header.base_sequence and seen.last_sequence == last_sequence:
            return DuplicateBatch(seen.first_offset, seen.last_offset, seen.timestamp)
    return ApiError(ErrorKind.OUT_OF_ORDER_SEQUENCE)


def encode_snapshot(states: ProducerStateManager) -> bytes:
    """The state as it is now."""
    ongoing = states.transactions.ongoing()
    ended = states.transactions.ended()
    forgotten = states.forgotten
    parts = [_COUNTS.pack(len(states), len(ongoing), len(ended) | (_HAS_FORGOTTEN if forgotten else 0))]
    for producer_id, producer in states:
        packed = producer.packed
        parts += (
            _PRODUCER.pack(
                producer_id,
                producer.epoch,
                len(packed) // _BATCH.size,
                producer.coordinator_epoch,
                producer.seen_at,
            ),
            packed,
        )
    parts.extend(_PAIR.pack(*pair) for pair in ongoing)
    parts.extend(_PAIR.pack(*pair) for pair in ended)
    if forgotten:
        parts += (_FORGOTTEN.pack(len(forgotten), forgotten.is_incomplete), _little(forgotten.keys()))
    return b"".join(parts)


def _little(keys: "array[int]") -> bytes:
    if sys.byteorder == "big":
        keys.byteswap()
    return keys.tobytes()


def decode_snapshot(content: Buffer) -> ProducerStateManager:
    """The state that `encode_snapshot` wrote; CorruptionError if these bytes are none."""
    view = memoryview(content)
    try:
        producer_count, ongoing_count, ended_count = _COUNTS.unpack_from(view)
        has_forgotten = bool(ended_count & _HAS_FORGOTTEN)
        ended_count &= ~_HAS_FORGOTTEN
        # Smallest size that these counts need: nothing is built for counts that cannot be true.
        pairs = ongoing_count + ended_count
        if _COUNTS.size + producer_count * _PRODUCER.size + pairs * _PAIR.size > len(view):
            raise CorruptionError("the snapshot is shorter than its counts say")
        producers, position = _decode_producers(view, producer_count)
        behind = position + pairs * _PAIR.size
        forgotten = _decode_forgotten(view[behind:]) if has_forgotten else None
        if not has_forgotten and len(view) != behind:
            raise CorruptionError("the snapshot is not as long as its counts say")
    except struct.error:
        raise CorruptionError("the snapshot ends early") from None
    rows = list(_PAIR.iter_unpack(view[position:behind]))
    ongoing = [(ProducerId(row[0]), Offset(row[1])) for row in rows[:ongoing_count]]
    ended = [EndedTransaction(Offset(row[0]), Offset(row[1])) for row in rows[ongoing_count:]]
    return ProducerStateManager(producers, OpenTransactions(ongoing, ended), forgotten)


def _decode_forgotten(view: memoryview) -> ForgottenProducers:
    count, is_incomplete = _FORGOTTEN.unpack_from(view)
    if len(view) != _FORGOTTEN.size + 8 * count:
        raise CorruptionError("the snapshot's list of forgotten producers is not as long as it says")
    keys = array("q")
    keys.frombytes(view[_FORGOTTEN.size :])
    if sys.byteorder == "big":
        keys.byteswap()
    return ForgottenProducers(keys, is_incomplete=bool(is_incomplete))


def _decode_producers(view: memoryview, count: int) -> tuple[dict[ProducerId, ProducerState], int]:
    producers: dict[ProducerId, ProducerState] = {}
    position = _COUNTS.size
    for _ in range(count):
        producer_id, epoch, batches, coordinator_epoch, seen_at = _PRODUCER.unpack_from(view, position)
        position += _PRODUCER.size
        if batches > BATCHES_KEPT or producer_id in producers:
            raise CorruptionError(f"producer {producer_id} of the snapshot is impossible")
        producer = ProducerState(ProducerEpoch(epoch))
        producer.coordinator_epoch = coordinator_epoch
        producer.seen_at = Timestamp(seen_at)
        producer.packed = bytes(view[position : position + batches * _BATCH.size])
        position += batches * _BATCH.size
        if position > len(view):
            raise CorruptionError("the snapshot ends early")
        producers[ProducerId(producer_id)] = producer
    return producers, position
