"""Up to where the log is on disk for certain, and all that recovery needs to start there.

    fixed     recovery point 8 │ segment 8 │ position 8 │ log start 8 │ high watermark 8
              taken at 8 │ first append at 8 │ max timestamp 8 │ flags 4
    marks     three times: rows 4 │ CRC-32C 4       offset, time and aborted index
    segments  count 4, then each: base offset 8 │ size 8 │ flags 4      the sealed ones
    epochs    length 4, then the rows of the leader epochs as of the recovery point
    producers the rest: a producer snapshot as of the recovery point

The recovery point is an offset; `segment` and `position` say where its batch would
begin. Everything below was synced before the checkpoint was written, so whatever is
missing there is damage, and whatever is broken above is the tail of an unfinished write.
"""

import itertools
import struct
from dataclasses import dataclass
from typing import NamedTuple

from penstock.core.model import Offset, Timestamp
from penstock.storage.disk import Buffer
from penstock.storage.log.errors import CorruptFile
from penstock.storage.log.files.frame import Kind, frame, unframe

_FIXED = struct.Struct("<8qI")
_MARK = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_SEALED = struct.Struct("<qqI")
_GAPLESS = 1
_CLEANED = 2
_SWAPPING = 4
NO_TIME = Timestamp(-1)


class IndexMark(NamedTuple):
    """How many rows of an index file belong to the checkpoint, and their CRC."""

    rows: int
    crc: int


NO_ROWS = IndexMark(0, 0)


class SealedSegment(NamedTuple):
    """A segment that no longer grows.

    `cleaned` says that compaction has been through it. `swapping` says that its files may still
    stand under the names that compaction gave them; the size is that of the new file.
    """

    base_offset: Offset
    size_bytes: int
    gapless: bool
    cleaned: bool = False
    swapping: bool = False

    @property
    def flags(self) -> int:
        return self.gapless * _GAPLESS | self.cleaned * _CLEANED | self.swapping * _SWAPPING


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a log at its recovery point."""

    recovery_point: Offset
    segment: Offset
    position: int
    log_start: Offset
    high_watermark: Offset
    taken_at: Timestamp = NO_TIME
    first_append_at: Timestamp = NO_TIME
    max_timestamp: Timestamp = NO_TIME
    gapless: bool = True
    marks: tuple[IndexMark, IndexMark, IndexMark] = (NO_ROWS, NO_ROWS, NO_ROWS)
    sealed: tuple[SealedSegment, ...] = ()
    epochs: bytes = b""
    producers: bytes = b""


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    fixed = _FIXED.pack(
        checkpoint.recovery_point,
        checkpoint.segment,
        checkpoint.position,
        checkpoint.log_start,
        checkpoint.high_watermark,
        checkpoint.taken_at,
        checkpoint.first_append_at,
        checkpoint.max_timestamp,
        _GAPLESS if checkpoint.gapless else 0,
    )
    marks = b"".join(_MARK.pack(*mark) for mark in checkpoint.marks)
    sealed = b"".join(_SEALED.pack(row.base_offset, row.size_bytes, row.flags) for row in checkpoint.sealed)
    count = _COUNT.pack(len(checkpoint.sealed))
    epochs = _COUNT.pack(len(checkpoint.epochs)) + checkpoint.epochs
    return frame(Kind.CHECKPOINT, b"".join((fixed, marks, count, sealed, epochs, checkpoint.producers)))


def decode_checkpoint(content: Buffer) -> Checkpoint:
    payload = unframe(Kind.CHECKPOINT, content)
    try:
        *numbers, flags = _FIXED.unpack_from(payload)
        position = _FIXED.size
        marks = [IndexMark(*_MARK.unpack_from(payload, position + i * _MARK.size)) for i in range(3)]
        position += 3 * _MARK.size
        (count,) = _COUNT.unpack_from(payload, position)
    except struct.error:
        raise CorruptFile("the checkpoint ends early") from None
    position += _COUNT.size
    end = position + count * _SEALED.size
    if end + _COUNT.size > len(payload):
        raise CorruptFile("the checkpoint is shorter than its segments")
    sealed = [
        SealedSegment(
            Offset(base), size, bool(bits & _GAPLESS), bool(bits & _CLEANED), bool(bits & _SWAPPING)
        )
        for base, size, bits in _SEALED.iter_unpack(payload[position:end])
    ]
    (length,) = _COUNT.unpack_from(payload, end)
    epochs = payload[end + _COUNT.size : end + _COUNT.size + length]
    recovery_point, segment, place, log_start, high_watermark, taken_at, first_append_at, latest = numbers
    checkpoint = Checkpoint(
        recovery_point=Offset(recovery_point),
        segment=Offset(segment),
        position=place,
        log_start=Offset(log_start),
        high_watermark=Offset(high_watermark),
        taken_at=Timestamp(taken_at),
        first_append_at=Timestamp(first_append_at),
        max_timestamp=Timestamp(latest),
        gapless=bool(flags & _GAPLESS),
        marks=(marks[0], marks[1], marks[2]),
        sealed=tuple(sealed),
        epochs=bytes(epochs),
        producers=bytes(payload[end + _COUNT.size + length :]),
    )
    _check_order(checkpoint)
    return checkpoint


def _check_order(checkpoint: Checkpoint) -> None:
    bases = [row.base_offset for row in checkpoint.sealed] + [checkpoint.segment]
    if any(low >= high for low, high in itertools.pairwise(bases)) or bases[0] < 0:
        raise CorruptFile("the segments of the checkpoint do not follow one another")
    if not checkpoint.segment <= checkpoint.recovery_point or checkpoint.position < 0:
        raise CorruptFile("the recovery point of the checkpoint is not in its segment")
    if checkpoint.log_start > checkpoint.recovery_point:
        raise CorruptFile("the checkpoint's log starts behind its recovery point")
