"""The bytes of a journal file: a header, and frames of entries.

    file    0 header, 512 bytes │ 512 frame │ frame │ frame │ … what a former use left, or zeros

    header  0 "PSJL" 4 │ 4 version 4 │ 8 base 8 │ 16 previous 8 │ 24 size 8 │ 32 salt 4 │ 36 CRC-32C 4
    frame   0 "PSJF" 4 │ 4 length 4 │ 8 sequence 8 │ 16 header CRC 4 │ 20 payload CRC 4 │ 24 payload …
    entry   0 kind 1 │ 1 topic id 16 │ 17 partition 4 │ 21 start 8 │ 29 end 8 │ 37 leader epoch 4
            │ 41 length 4 │ 45 batches …

    state   0 "PSJS" 4 │ 4 version 4 │ 8 id 8 │ 16 run 8 │ 24 oldest 8 │ 32 first 8 │ 40 closed 8 │ 48 CRC 4

    checkpoints   0 "PSJC" 4 │ 4 version 4 │ 8 id 8 │ 16 rows … │ CRC 4
    row           0 topic id 16 │ 16 partition 4 │ 20 sequence 8

A sequence is the number of the run (how often the journal was opened) and a count within it. The
`state` is a small file of its own, replaced as a whole: it outlives the other files if they are lost.
So are the `checkpoints`: which frame the last checkpoint of each log covers.

Little endian. The header CRC of a frame covers its first 16 bytes and begins with the file's salt,
so that bytes which a client wrote into a record cannot pass for a frame; the payload CRC covers the
payload and begins with the header CRC, so that neither fits anything else.
"""

import enum
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from fastcrc import crc32

from penstock.core.model import CorruptionError, Offset, PartitionIndex, TopicId
from penstock.storage.disk import Buffer

_crc32c = crc32.iscsi
HEADER_BYTES = 512
_FILE_MAGIC = b"PSJL"
_FILE = struct.Struct("<4sIQQQI")
_FILE_VERSION = 2
# Without a size; read, and never written.
_FILE_1 = struct.Struct("<4sIQQI")
_STATE_MAGIC = b"PSJS"
_STATE = struct.Struct("<4sIQQQQQ")
_CHECKPOINTS_MAGIC = b"PSJC"
_CHECKPOINTS = struct.Struct("<4sIQ")
_CHECKPOINT = struct.Struct("<20sQ")
# The bits of a sequence that count frames: 200 years of one a second, 7 of 5,000.
COUNT_BITS = 40
COUNT_MASK = (1 << COUNT_BITS) - 1
_CRC = struct.Struct("<I")
_VERSION = 1
FRAME_MAGIC = b"PSJF"
_FRAME = struct.Struct("<4sIQ")
_CRCS = struct.Struct("<II")
FRAME_BYTES = _FRAME.size + _CRCS.size
_ENTRY = struct.Struct("<B20sqqiI")
ENTRY_BYTES = _ENTRY.size
# Kind, key, start, end, epoch and length.
unpack_entry, pack_entry = _ENTRY.unpack_from, _ENTRY.pack
# What is kept free at the end of a file, for a frame that says that another file follows.
FOLLOWED_BYTES = FRAME_BYTES + ENTRY_BYTES
NO_LOG = bytes(20)
_PARTITION = struct.Struct("<i")
# The length of a record batch behind these fields, and its leader epoch.
read_batch_prefix = struct.Struct(">8xii").unpack_from
BATCH_PREFIX_BYTES = 12

# The topic id and the partition, as they stand in an entry: every round looks logs up by it.
LogKey: TypeAlias = bytes


def log_key(topic_id: TopicId, partition: PartitionIndex) -> LogKey:
    return topic_id.bytes + _PARTITION.pack(partition)


class EntryKind(enum.IntEnum):
    """What an entry says about its log.

    BATCHES: what was appended from `start`, where the log ended before, to `end`; everything below
    `start` was durable then. DURABLE: everything below `end` is durable in the log's own files.
    FOLLOWED: about no log; the file with the number `end` follows this one, and has a durable frame.
    """

    BATCHES = 1
    DURABLE = 2
    FOLLOWED = 3


# As it stands in an entry: a look into an enumeration costs more than the packing.
BATCHES = int(EntryKind.BATCHES)
ENTRY_KINDS = {int(kind): kind for kind in EntryKind}


class FileHeader(NamedTuple):
    """Which frames a file holds: those with sequences from `base` on.

    In the first file of a run, `previous` is the last sequence that was found when it began. A file
    that has fewer than `size` bytes was cut; of version 1 it is unknown.
    """

    base: int
    previous: int
    size: int
    salt: int


class JournalState(NamedTuple):
    """What is known of a journal apart from its files.

    Files below `oldest` are not needed; the last run began with the file `first`, and `closed` says
    that it ended with everything in the logs' own files.
    """

    journal_id: int
    run: int
    oldest: int
    first: int
    closed: bool


class JournalRun(NamedTuple):
    """Which journal, and how often it was begun."""

    journal_id: int
    run: int


class FrameHeader(NamedTuple):
    """A frame whose header is intact."""

    sequence: int
    length: int
    crc: int
    payload_crc: int


def encode_file_header(header: FileHeader) -> bytes:
    content = _FILE.pack(_FILE_MAGIC, _FILE_VERSION, *header)
    return (content + _CRC.pack(_crc32c(content))).ljust(HEADER_BYTES, b"\0")


def decode_file_header(content: Buffer) -> FileHeader:
    """The header, or CorruptionError."""
    if len(content) < HEADER_BYTES:
        raise CorruptionError(f"a journal file of {len(content)} bytes has no header")
    for layout, known in ((_FILE, _FILE_VERSION), (_FILE_1, 1)):
        magic, version, base, previous, *rest = layout.unpack_from(content)
        (crc,) = _CRC.unpack_from(content, layout.size)
        if magic == _FILE_MAGIC and version == known and crc == _crc32c(content[: layout.size]):
            size, salt = rest if known == _FILE_VERSION else (0, *rest)
            return FileHeader(base, previous, size, salt)
    raise CorruptionError("the header of a journal file is damaged")


def encode_state(state: JournalState) -> bytes:
    content = _STATE.pack(_STATE_MAGIC, _VERSION, *state)
    return content + _CRC.pack(_crc32c(content))


def decode_state(content: Buffer) -> JournalState:
    """The state, or CorruptionError."""
    if len(content) != _STATE.size + _CRC.size:
        raise CorruptionError(f"the state of the journal has {len(content)} bytes")
    magic, version, journal_id, run, oldest, first, closed = _STATE.unpack_from(content)
    (crc,) = _CRC.unpack_from(content, _STATE.size)
    if magic != _STATE_MAGIC or crc != _crc32c(content[: _STATE.size]) or version != _VERSION:
        raise CorruptionError("the state of the journal is damaged")
    return JournalState(journal_id, run, oldest, first, bool(closed))


def encode_checkpoints(journal_id: int, checkpoints: Mapping[LogKey, int]) -> bytes:
    rows = (_CHECKPOINT.pack(key, sequence) for key, sequence in checkpoints.items())
    content = b"".join((_CHECKPOINTS.pack(_CHECKPOINTS_MAGIC, _VERSION, journal_id), *rows))
    return content + _CRC.pack(_crc32c(content))


def decode_checkpoints(content: bytes) -> tuple[int, dict[LogKey, int]]:
    """The journal's id, and by log the frame that its checkpoint covers; or CorruptionError."""
    rows = content[_CHECKPOINTS.size : -_CRC.size]
    if len(content) < _CHECKPOINTS.size + _CRC.size or len(rows) % _CHECKPOINT.size:
        raise CorruptionError(f"the checkpoints of the journal have {len(content)} bytes")
    magic, version, journal_id = _CHECKPOINTS.unpack_from(content)
    (crc,) = _CRC.unpack_from(content, len(content) - _CRC.size)
    if magic != _CHECKPOINTS_MAGIC or crc != _crc32c(content[: -_CRC.size]) or version != _VERSION:
        raise CorruptionError("the checkpoints of the journal are damaged")
    return journal_id, dict(_CHECKPOINT.iter_unpack(rows))


def common_epoch(batches: Sequence[bytes]) -> int:
    """The leader epoch of all these batches, of which each item holds some; -1 if they have several."""
    length, epoch = read_batch_prefix(batches[0])
    last, position = batches[-1], 0
    # Epochs do not decrease: if the last batch has that of the first, all have.
    length, latest = read_batch_prefix(last)
    while (position := position + BATCH_PREFIX_BYTES + length) < len(last):
        length, latest = read_batch_prefix(last, position)
    return epoch if latest == epoch else -1


def pack_durable(key: LogKey, end: Offset, epoch: int = -1) -> bytes:
    """An entry that says how far a log is durable, and that no batch before that has a later epoch."""
    return _ENTRY.pack(EntryKind.DURABLE, key, end, end, epoch, 0)


def pack_followed(number: int) -> bytes:
    """An entry that says that another file follows."""
    return _ENTRY.pack(EntryKind.FOLLOWED, NO_LOG, number, number, -1, 0)


def encode_frame(sequence: int, parts: Sequence[bytes], salt: int) -> bytes:
    """A whole frame; `parts` are its entries."""
    payload = b"".join(parts)
    head = _FRAME.pack(FRAME_MAGIC, len(payload), sequence)
    crc = _crc32c(head, salt)
    return b"".join((head, _CRCS.pack(crc, _crc32c(payload, crc)), payload))


def read_frame_header(content: Buffer, position: int, salt: int) -> FrameHeader | None:
    """The header of the frame at `position`; None if there is none, or it is damaged."""
    if position + FRAME_BYTES > len(content) or content[position : position + 4] != FRAME_MAGIC:
        return None
    _, length, sequence = _FRAME.unpack_from(content, position)
    crc, payload_crc = _CRCS.unpack_from(content, position + _FRAME.size)
    if crc != _crc32c(content[position : position + _FRAME.size], salt):
        return None
    return FrameHeader(sequence, length, crc, payload_crc)


def is_whole(content: Buffer, position: int, header: FrameHeader) -> bool:
    """Whether the payload of the frame at `position` is what was written."""
    start = position + FRAME_BYTES
    end = start + header.length
    return end <= len(content) and _crc32c(content[start:end], header.crc) == header.payload_crc


def find_frame(content: bytes, position: int, salt: int, sequence_min: int) -> int | None:
    """Where the next frame header of at least this sequence begins, from `position` on."""
    while (position := content.find(FRAME_MAGIC, position)) >= 0:
        header = read_frame_header(content, position, salt)
        if header is not None and header.sequence >= sequence_min:
            return position
        position += 1
    return None
