"""What a log has lost, noted beside it until it is whole again or nobody counts on it any more.

A start finds out what is missing, and tells the cluster. If it ends before the cluster has taken that
down, the next start must say the same, although its checkpoint is newer and the journal has moved on.

    lost end 8 │ ranges 4, then each: segment 8 │ start 8 │ end 8 │ position 8 │ stop 8 │ reason │ doubt

A reason, and the doubt, is a length of 2 bytes and UTF-8. The file is there only if there is something in it.
"""

import struct
from contextlib import suppress
from typing import NamedTuple

from penstock.core.model import CorruptionError, Offset, StorageError
from penstock.observability import log as events
from penstock.storage.disk import Buffer, Disk, NoSuchFile
from penstock.storage.log.file_names import LOSS
from penstock.storage.log.files import FileKind, frame, read_if_good, replace_durably, unframe
from penstock.storage.log.types import CorruptFile, CorruptRange

_FIXED = struct.Struct("<qI")
_RANGE = struct.Struct("<5q")
_LENGTH = struct.Struct("<H")
_REASON_BYTES_MAX = 1000
# The doubt about a log that lost its checkpoint: nothing else says where it starts.
CHECKPOINT_LOST = "its checkpoint is lost"
OLD_COPY = "it has had a later checkpoint: its files are an older copy"


class NotedLoss(NamedTuple):
    """What is known to be missing.

    The log was durable up to `lost_end`, if that is behind its end; with `doubt` it may have been longer
    still; `damage` cannot be read. If the note itself `is_unreadable`, there may be more of all this.
    """

    lost_end: Offset = Offset(0)
    doubt: str = ""
    damage: tuple[CorruptRange, ...] = ()
    is_unreadable: bool = False


NOTHING_LOST = NotedLoss()


def encode_loss(loss: NotedLoss) -> bytes:
    rows = (_RANGE.pack(*row[:3], *row[4:]) + _text(row.reason) for row in loss.damage)
    payload = b"".join((_FIXED.pack(loss.lost_end, len(loss.damage)), *rows, _text(loss.doubt)))
    return frame(FileKind.LOSS, payload)


def _text(text: str) -> bytes:
    content = text.encode()[:_REASON_BYTES_MAX]
    return _LENGTH.pack(len(content)) + content


def decode_loss(content: Buffer) -> NotedLoss:
    """What `encode_loss` wrote, or CorruptFile."""
    payload = bytes(unframe(FileKind.LOSS, content))
    try:
        lost_end, count = _FIXED.unpack_from(payload)
        position, damage = _FIXED.size, []
        for _ in range(count):
            segment, start, end, first, stop = _RANGE.unpack_from(payload, position)
            reason, position = _read_text(payload, position + _RANGE.size)
            damage.append(CorruptRange(Offset(segment), Offset(start), Offset(end), reason, first, stop))
        doubt, _ = _read_text(payload, position)
    except struct.error:
        raise CorruptFile("the loss file ends early") from None
    return NotedLoss(Offset(lost_end), doubt, tuple(damage))


def _read_text(payload: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(payload, position)
    start = position + _LENGTH.size
    return payload[start : start + length].decode(errors="replace"), start + length


def read_loss(disk: Disk, directory: str) -> NotedLoss:
    """What a former start or scrub has noted. Blocks."""
    try:
        content = read_if_good(disk, f"{directory}/{LOSS}")
        return NOTHING_LOST if content is None else decode_loss(content)
    except CorruptionError as error:
        return NotedLoss(doubt=f"the note of what was lost cannot be read: {error}", is_unreadable=True)


def write_loss(disk: Disk, directory: str, loss: NotedLoss) -> bool:
    """Note what is missing, durably; returns whether that was possible. Blocks.

    A disk that is full or fails must not keep anybody from opening or repairing the log.
    """
    try:
        if loss == NOTHING_LOST:
            _remove(disk, directory)
            disk.sync_directory(directory)
        else:
            replace_durably(disk, directory, LOSS, encode_loss(loss))
    except StorageError as error:
        events.warning("log.loss_not_noted", directory=directory, error=error)
        return False
    return True


def remove_loss(disk: Disk, directory: str) -> bool:
    """Forget what was noted; returns whether that was possible.

    If a power cut brings it back, it is told once more, which harms nobody.
    """
    try:
        _remove(disk, directory)
    except StorageError as error:
        events.warning("log.loss_not_noted", directory=directory, error=error)
        return False
    return True


def _remove(disk: Disk, directory: str) -> None:
    with suppress(NoSuchFile):
        disk.remove(f"{directory}/{LOSS}")
