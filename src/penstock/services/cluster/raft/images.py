"""Snapshots of the quorum on disk.

meta/raft/00000000000000012000.snapshot      everything up to and including entry 12,000

0 index 8 │ 8 term 8 │ 16 members' length 4 │ members … │ facts (see `codec`)     little endian

inside the frame that every small file has. Entry 0 stands for the founding of the quorum. Two
snapshots are kept: if the newer one is damaged, the older one and the log behind it do.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.metadata import EMPTY_IMAGE, Fact, MetadataImage, replay
from penstock.core.model import CorruptionError, Offset
from penstock.core.raft import Index, SnapshotMeta, Term
from penstock.observability import log as events
from penstock.services.cluster.raft.codec import (
    decode_configuration,
    decode_facts,
    encode_configuration,
    encode_facts,
    facts_end,
)
from penstock.storage.disk import Disk, NoSuchFile
from penstock.storage.log.file_names import TEMPORARY
from penstock.storage.log.files import FileKind, frame, read_file, replace_durably, unframe

DIRECTORY = "meta/raft"
SUFFIX = ".snapshot"
KEPT = 2
_HEAD = struct.Struct("<qqI")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An image, and how many facts led to it (`end`) and describe it (`facts`)."""

    meta: SnapshotMeta
    end: Offset
    facts: int
    image: MetadataImage


def encode_snapshot(meta: SnapshotMeta, end: Offset, facts: Iterable[Fact]) -> bytes:
    members = encode_configuration(meta.configuration)
    head = _HEAD.pack(meta.index, meta.term, len(members))
    return frame(FileKind.METADATA, b"".join((head, members, encode_facts(end, facts))))


def decode_snapshot(content: bytes) -> Snapshot:
    """The snapshot, or CorruptionError."""
    payload = unframe(FileKind.METADATA, content)
    if len(payload) < _HEAD.size:
        raise CorruptionError("the snapshot has no head")
    index, term, length = _HEAD.unpack_from(payload)
    start = _HEAD.size + length
    members = decode_configuration(payload[_HEAD.size : start])
    content = bytes(payload[start:])
    facts = decode_facts(content)
    meta = SnapshotMeta(Index(index), Term(term), members)
    return Snapshot(meta, facts_end(content), len(facts), replay(EMPTY_IMAGE, facts))


def write_snapshot(disk: Disk, index: Index, content: bytes) -> None:
    """Make a snapshot durable, and let go of those that two newer ones replace. Blocks."""
    replace_durably(disk, DIRECTORY, _name(index), content)
    for old in _list(disk)[:-KEPT]:
        disk.remove(f"{DIRECTORY}/{_name(old)}")


def read_chunk(disk: Disk, index: Index, position: int, bytes_max: int) -> tuple[bytes, bool] | None:
    """Bytes of a snapshot and whether they are the last; None if it is gone. Blocks."""
    try:
        file = disk.open(f"{DIRECTORY}/{_name(index)}", readonly=True)
    except NoSuchFile:
        return None
    try:
        content = file.pread(position, bytes_max)
        return content, position + len(content) >= file.size()
    finally:
        file.close()


def load_newest(disk: Disk) -> Snapshot | None:
    """The newest snapshot that can be read; what cannot be is removed. Blocks."""
    for name in disk.listdir(DIRECTORY):
        if name.endswith(SUFFIX + TEMPORARY):
            disk.remove(f"{DIRECTORY}/{name}")
    for index in reversed(_list(disk)):
        path = f"{DIRECTORY}/{_name(index)}"
        try:
            return decode_snapshot(read_file(disk, path) or b"")
        except CorruptionError as damage:
            events.warning("metadata.snapshot_damaged", name=path, reason=str(damage))
            disk.remove(path)
    return None


def _list(disk: Disk) -> list[Index]:
    names = [name.removesuffix(SUFFIX) for name in disk.listdir(DIRECTORY) if name.endswith(SUFFIX)]
    return [Index(int(name)) for name in names if name.isascii() and name.isdigit()]


def _name(index: Index) -> str:
    return f"{index:020d}{SUFFIX}"
