"""Producer state as bytes (little endian), for snapshots and checkpoints.

counts      producers 4 │ open transactions 4 │ ended transactions 4
producer    id 8 │ epoch 2 │ batches 2 │ coordinator epoch 4 │ seen at 8
  batch     base sequence 4 │ last sequence 4 │ first offset 8 │ last offset 8 │ timestamp 8
open        producer id 8 │ first offset 8
ended       first offset 8 │ marker offset 8
"""

import struct

from penstock.core.model import CorruptionError, Offset, ProducerEpoch, ProducerId, Timestamp
from penstock.core.records import Buffer
from penstock.core.replica.producers import BATCHES_KEPT, Producer, ProducerStates, SeenBatch
from penstock.core.replica.transactions import EndedTransaction, Transactions

_COUNTS = struct.Struct("<III")
_PRODUCER = struct.Struct("<qhHiq")
_BATCH = struct.Struct("<iiqqq")
_PAIR = struct.Struct("<qq")


def encode_snapshot(states: ProducerStates) -> bytes:
    """The state as it is now."""
    ongoing = states.transactions.ongoing()
    ended = states.transactions.ended()
    parts = [_COUNTS.pack(len(states), len(ongoing), len(ended))]
    for producer_id, producer in states:
        parts.append(
            _PRODUCER.pack(
                producer_id,
                producer.epoch,
                len(producer.batches),
                producer.coordinator_epoch,
                producer.seen_at,
            )
        )
        parts.extend(_BATCH.pack(*batch) for batch in producer.batches)
    parts.extend(_PAIR.pack(*pair) for pair in ongoing)
    parts.extend(_PAIR.pack(*pair) for pair in ended)
    return b"".join(parts)


def decode_snapshot(content: Buffer) -> ProducerStates:
    """The state that `encode_snapshot` wrote; CorruptionError if these bytes are none."""
    view = memoryview(content)
    try:
        producer_count, ongoing_count, ended_count = _COUNTS.unpack_from(view)
        # Smallest size that these counts need: nothing is built for counts that cannot be true.
        pairs = ongoing_count + ended_count
        if _COUNTS.size + producer_count * _PRODUCER.size + pairs * _PAIR.size > len(view):
            raise CorruptionError("the snapshot is shorter than its counts say")
        producers, position = _decode_producers(view, producer_count)
        if len(view) != position + pairs * _PAIR.size:
            raise CorruptionError("the snapshot is not as long as its counts say")
    except struct.error:
        raise CorruptionError("the snapshot ends early") from None
    rows = list(_PAIR.iter_unpack(view[position:]))
    ongoing = [(ProducerId(row[0]), Offset(row[1])) for row in rows[:ongoing_count]]
    ended = [EndedTransaction(Offset(row[0]), Offset(row[1])) for row in rows[ongoing_count:]]
    return ProducerStates(producers, Transactions(ongoing, ended))


def _decode_producers(view: memoryview, count: int) -> tuple[dict[ProducerId, Producer], int]:
    producers: dict[ProducerId, Producer] = {}
    position = _COUNTS.size
    for _ in range(count):
        producer_id, epoch, batches, coordinator_epoch, seen_at = _PRODUCER.unpack_from(view, position)
        position += _PRODUCER.size
        if batches > BATCHES_KEPT or producer_id in producers:
            raise CorruptionError(f"producer {producer_id} of the snapshot is impossible")
        producer = Producer(ProducerEpoch(epoch))
        producer.coordinator_epoch = coordinator_epoch
        producer.seen_at = Timestamp(seen_at)
        for _ in range(batches):
            base, last, first_offset, last_offset, timestamp = _BATCH.unpack_from(view, position)
            producer.batches.append(
                SeenBatch(base, last, Offset(first_offset), Offset(last_offset), Timestamp(timestamp))
            )
            position += _BATCH.size
        producers[ProducerId(producer_id)] = producer
    return producers, position
