"""The small files beside the segments: identity, leader epochs, checkpoint, snapshots.

Each is a frame with kind, version and CRC around a payload, and is replaced as a whole:
written under a temporary name, synced, renamed, and the directory synced. A reader sees
the old file, the new file or `CorruptFile`, never a mixture.

     0 "PSTK" 4 │ 4 kind 2 │ 6 version 2 │ 8 payload length 4 │ 12 CRC-32C 4 │ 16 payload …

Little endian. The CRC covers kind, version, length and payload.

The **identity** is the 16 bytes of the topic id. It is written last when a log is created: a
directory without it was never finished, so nothing was ever appended there.

The **leader epochs** say where each epoch began.

The **checkpoint** says up to where the log is on disk for certain, with all that recovery needs
to start there:

    fixed     recovery point 8 │ segment 8 │ position 8 │ log start 8 │ high watermark 8
              taken at 8 │ first append at 8 │ max timestamp 8 │ flags 4
    journal   if flag 8 is set: journal id 8 │ sequence 8      the last frame that is covered
    unsure    if flag 16 is set: offset 8     from here on, producers and aborted transactions lack something
    marks     three times: rows 4 │ CRC-32C 4       offset, time and aborted index
    segments  count 4, then each: base offset 8 │ size 8 │ flags 4      the sealed ones
    epochs    length 4, then the rows of the leader epochs as of the recovery point
    producers the rest: a producer snapshot as of the recovery point

The recovery point is an offset; `segment` and `position` say where its batch would
begin. Everything below was synced before the checkpoint was written, so whatever is
missing there is damage, and whatever is broken above is the tail of an unfinished write.

Left out: a history of old checkpoints. When the checkpoint cannot be read, the whole log is
scanned instead.
"""

import enum
import errno as errnos
import itertools
import struct
from typing import NamedTuple
from uuid import UUID

from fastcrc import crc32

from penstock.core.model import LeaderEpoch, Offset, Timestamp, TopicId
from penstock.core.replica import EpochStart, LeaderEpochHistory
from penstock.core.values import dataclass
from penstock.storage.disk import Buffer, Disk, DiskFailed, NoSuchFile
from penstock.storage.journal import NO_POSITION, JournalPosition
from penstock.storage.log.file_names import TEMPORARY
from penstock.storage.log.types import CorruptFile

_crc32c = crc32.iscsi
_MAGIC = b"PSTK"
_FRAME = struct.Struct("<4sHHII")
_VERSION = 1
_ROW = struct.Struct("<iq")
_TOPIC_ID_BYTES = 16
_FIXED = struct.Struct("<8qI")
_MARK = struct.Struct("<II")
_MARKS = struct.Struct("<6I")
_COUNT = struct.Struct("<I")
_SEALED = struct.Struct("<qqI")
_GAPLESS = 1
_CLEANED = 2
_SWAPPING = 4
_JOURNALED = 8
_UNSURE = 16
_POSITION = struct.Struct("<QQ")
_OFFSET = struct.Struct("<q")
NO_TIME = Timestamp(-1)


class FileKind(enum.IntEnum):
    """What a small file is."""

    IDENTITY = 1
    EPOCHS = 2
    CHECKPOINT = 3
    SNAPSHOT = 4
    METADATA = 5
    LOSS = 6
    SEALED_METADATA = 10


def frame(kind: FileKind, payload: bytes) -> bytes:
    """The content of a file of this kind."""
    head = _FRAME.pack(_MAGIC, kind, _VERSION, len(payload), 0)[4:12]
    return b"".join((_MAGIC, head, struct.pack("<I", _crc32c(payload, _crc32c(head))), payload))


def unframe(kind: FileKind, content: Buffer) -> memoryview:
    """The payload, or CorruptFile."""
    view = memoryview(content)
    if len(view) < _FRAME.size:
        raise CorruptFile(f"a {kind.name.lower()} file of {len(view)} bytes is too short")
    magic, found, version, length, crc = _FRAME.unpack_from(view)
    payload = view[_FRAME.size :]
    if magic != _MAGIC or found != kind:
        raise CorruptFile(f"this is not a {kind.name.lower()} file")
    if length != len(payload):
        raise CorruptFile(f"the {kind.name.lower()} file says {length} bytes and has {len(payload)}")
    if _crc32c(payload, _crc32c(view[4:12])) != crc:
        raise CorruptFile(f"the CRC-32C of the {kind.name.lower()} file does not match")
    if version != _VERSION:
        raise CorruptFile(f"version {version} of the {kind.name.lower()} file is not known here")
    return payload


def read_file(disk: Disk, path: str) -> bytes | None:
    """The content of a small file, or None if there is no such file."""
    try:
        return disk.read(path)
    except NoSuchFile:
        return None


def read_if_good(disk: Disk, path: str) -> bytes | None:
    """Like `read_file`; raises CorruptFile if the device cannot read it. Any other failure may pass."""
    try:
        return read_file(disk, path)
    except DiskFailed as error:
        if error.errno != errnos.EIO:
            raise
        raise CorruptFile(str(error)) from error


def write_temporary(disk: Disk, path: str, content: bytes) -> None:
    """Write `path`.tmp and wait until its bytes are on the device."""
    file = disk.open(path + TEMPORARY, create=True)
    try:
        file.truncate(0)
        file.append(content)
        file.sync()
    finally:
        file.close()


def replace_durably(disk: Disk, directory: str, name: str, content: bytes) -> None:
    """Replace a small file; when this returns, the new one survives a power cut. Blocks."""
    path = f"{directory}/{name}"
    write_temporary(disk, path, content)
    disk.rename(path + TEMPORARY, path)
    disk.sync_directory(directory)


def encode_epochs(history: LeaderEpochHistory) -> bytes:
    return frame(FileKind.EPOCHS, epoch_rows(history))


def decode_epochs(content: Buffer) -> LeaderEpochHistory:
    return parse_epoch_rows(unframe(FileKind.EPOCHS, content))


def epoch_rows(history: LeaderEpochHistory) -> bytes:
    """The rows alone, as a checkpoint carries them."""
    return b"".join(_ROW.pack(*entry) for entry in history.entries())


def parse_epoch_rows(rows: Buffer) -> LeaderEpochHistory:
    """What `epoch_rows` wrote, or CorruptFile."""
    if len(rows) % _ROW.size:
        raise CorruptFile("the leader epochs end in the middle of a row")
    starts = [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in _ROW.iter_unpack(rows)]
    history = LeaderEpochHistory(starts)
    if list(history.entries()) != starts:
        raise CorruptFile("the leader epochs do not grow")
    return history


def encode_identity(topic_id: TopicId) -> bytes:
    return frame(FileKind.IDENTITY, topic_id.bytes)


def decode_identity(content: Buffer) -> TopicId:
    payload = unframe(FileKind.IDENTITY, content)
    if len(payload) != _TOPIC_ID_BYTES:
        raise CorruptFile(f"a topic id has 16 bytes, not {len(payload)}")
    return TopicId(UUID(bytes=bytes(payload)))


class IndexMark(NamedTuple):
    """How many rows of an index file belong to the checkpoint, and their CRC."""

    rows: int
    crc: int


NO_ROWS = IndexMark(0, 0)
NO_MARKS = (NO_ROWS, NO_ROWS, NO_ROWS)


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
    """The state of a log at its recovery point.

    `unsure_from`: producers and aborted transactions were derived while records from here on were missing.
    """

    recovery_point: Offset
    segment: Offset
    position: int
    log_start: Offset
    high_watermark: Offset
    taken_at: Timestamp = NO_TIME
    first_append_at: Timestamp = NO_TIME
    max_timestamp: Timestamp = NO_TIME
    gapless: bool = True
    marks: tuple[IndexMark, IndexMark, IndexMark] = NO_MARKS
    sealed: tuple[SealedSegment, ...] = ()
    epochs: bytes = b""
    producers: bytes = b""
    journal: JournalPosition = NO_POSITION
    unsure_from: Offset | None = None


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
        checkpoint.gapless * _GAPLESS
        | (checkpoint.journal != NO_POSITION) * _JOURNALED
        | (checkpoint.unsure_from is not None) * _UNSURE,
    )
    if checkpoint.journal != NO_POSITION:
        fixed += _POSITION.pack(*checkpoint.journal)
    if checkpoint.unsure_from is not None:
        fixed += _OFFSET.pack(checkpoint.unsure_from)
    marks = b"".join(_MARK.pack(*mark) for mark in checkpoint.marks)
    sealed = b"".join(_SEALED.pack(row.base_offset, row.size_bytes, row.flags) for row in checkpoint.sealed)
    count = _COUNT.pack(len(checkpoint.sealed))
    epochs = _COUNT.pack(len(checkpoint.epochs)) + checkpoint.epochs
    return frame(FileKind.CHECKPOINT, b"".join((fixed, marks, count, sealed, epochs, checkpoint.producers)))


def decode_checkpoint(content: Buffer) -> Checkpoint:
    payload = unframe(FileKind.CHECKPOINT, content)
    try:
        *numbers, flags = _FIXED.unpack_from(payload)
        position = _FIXED.size
        journal = NO_POSITION
        if flags & _JOURNALED:
            journal = JournalPosition(*_POSITION.unpack_from(payload, position))
            position += _POSITION.size
        unsure_from = None
        if flags & _UNSURE:
            unsure_from = Offset(_OFFSET.unpack_from(payload, position)[0])
            position += _OFFSET.size
        rows = _MARKS.unpack_from(payload, position)
        position += _MARKS.size
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
        marks=(IndexMark(*rows[:2]), IndexMark(*rows[2:4]), IndexMark(*rows[4:])) if any(rows) else NO_MARKS,
        sealed=tuple(sealed),
        epochs=bytes(epochs),
        producers=bytes(payload[end + _COUNT.size + length :]),
        journal=journal,
        unsure_from=unsure_from,
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
