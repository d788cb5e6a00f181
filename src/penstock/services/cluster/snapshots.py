"""Snapshots of the image on disk, so that the log need not be kept from its beginning.

    meta/00000000000000012000.snapshot      the image of all facts below offset 12,000

    0 end offset 8 │ 8 term 4 │ 12 facts 4 │ { length 4 │ fact … } …       little endian

inside the frame that every small file has (magic, kind, length, CRC-32C). Two are kept: if
the newer one is damaged, the older one and the log behind it give the same image.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.metadata import EMPTY_IMAGE, Fact, MetadataImage, replayed
from penstock.core.model import CorruptionError, LeaderEpoch, Offset
from penstock.observability import log as events
from penstock.services.cluster.facts import read_facts, write_facts
from penstock.storage.disk import Disk
from penstock.storage.log.files.frame import Kind, frame, read_file, replace_durably, unframe
from penstock.storage.log.names import TEMPORARY

META = "meta"
SUFFIX = ".snapshot"
KEPT = 2
_HEAD = struct.Struct("<qiI")


class Snapshot(NamedTuple):
    """An image, and the offset of the first fact that is not in it."""

    end: Offset
    term: LeaderEpoch
    facts: int
    image: MetadataImage


def encode_snapshot(end: Offset, term: LeaderEpoch, facts: Iterable[Fact]) -> bytes:
    parts = write_facts(facts)
    head = _HEAD.pack(end, term, len(parts) // 2)
    return frame(Kind.METADATA, b"".join((head, *parts)))


def decode_snapshot(content: bytes) -> Snapshot:
    """The snapshot, or CorruptionError."""
    payload = unframe(Kind.METADATA, content)
    if len(payload) < _HEAD.size:
        raise CorruptionError("the snapshot has no head")
    end, term, count = _HEAD.unpack_from(payload)
    facts = read_facts(payload, _HEAD.size, "the snapshot ends")
    if len(facts) != count:
        raise CorruptionError(f"the snapshot says {count} facts and has {len(facts)}")
    return Snapshot(Offset(end), LeaderEpoch(term), count, replayed(EMPTY_IMAGE, facts))


def write_snapshot(disk: Disk, end: Offset, content: bytes) -> None:
    """Make a snapshot durable. Blocks."""
    replace_durably(disk, META, _name(end), content)


def keep_newest(disk: Disk, good: Iterable[Offset]) -> None:
    """Remove every snapshot that is not among the newest of the good ones. Blocks."""
    kept = sorted(good)[-KEPT:]
    for end in list_snapshots(disk):
        if end not in kept:
            disk.remove(f"{META}/{_name(end)}")


def list_snapshots(disk: Disk) -> list[Offset]:
    """The offsets that snapshots are named after, lowest first."""
    names = [name.removesuffix(SUFFIX) for name in disk.listdir(META) if name.endswith(SUFFIX)]
    return [Offset(int(name)) for name in names if name.isascii() and name.isdigit()]


def load_snapshots(disk: Disk) -> tuple[Snapshot | None, list[Offset]]:
    """The newest snapshot that can be read, and the offsets of all that may be good. Blocks."""
    for name in disk.listdir(META):
        if name.endswith(SUFFIX + TEMPORARY):
            disk.remove(f"{META}/{name}")
    offsets = list_snapshots(disk)
    while offsets:
        end = offsets[-1]
        try:
            snapshot = decode_snapshot(read_file(disk, f"{META}/{_name(end)}") or b"")
            if snapshot.end != end:
                raise CorruptionError(f"it says that it ends at {snapshot.end}")
        except CorruptionError as damage:
            events.warning("metadata.snapshot_damaged", name=_name(end), reason=str(damage))
            offsets.pop()
            continue
        return snapshot, offsets
    return None, []


def _name(end: Offset) -> str:
    return f"{end:020d}{SUFFIX}"
