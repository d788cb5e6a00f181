"""What lies in a partition directory."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from penstock.core.model import CorruptionError, PenstockError, TopicId
from penstock.core.replica import LeaderEpochHistory
from penstock.storage.disk import Buffer, Disk, PosixDisk
from penstock.storage.log.file_names import CHECKPOINT, EPOCHS, IDENTITY, LOG, parse_numbered
from penstock.storage.log.files import (
    Checkpoint,
    decode_checkpoint,
    decode_epochs,
    decode_identity,
    read_file,
)

T = TypeVar("T")


class NoLogHere(PenstockError):
    """The directory holds no partition."""


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """A partition directory: its segments by base offset, and the small files that could be read."""

    path: str
    disk: Disk
    segments: dict[int, int]  # base offset -> size in bytes when we looked
    others: tuple[str, ...]
    topic_id: TopicId | None
    checkpoint: Checkpoint | None
    epochs: LeaderEpochHistory | None
    unreadable: dict[str, str]  # small file -> why

    @property
    def size_bytes(self) -> int:
        return sum(self.segments.values())


def partitions_below(path: str) -> list[str]:
    """Every partition directory at or below `path`: a partition, a topic, or a whole data directory."""
    if not os.path.isdir(path):
        raise NoLogHere(f"{path} is not a directory")
    found = sorted(where for where, _, names in os.walk(path) if any(_is_segment(name) for name in names))
    if not found:
        raise NoLogHere(f"{path} holds no log: expected files like 00000000000000000000.log in it or below")
    return found


def read_partition(path: str) -> PartitionFiles:
    """Look into one partition directory."""
    disk = PosixDisk(path)
    names = disk.listdir("")
    parsed = {name: parse_numbered(name) for name in names}
    segments = {row[0]: disk.size(name) for name, row in parsed.items() if row and row[1] == LOG}
    unreadable: dict[str, str] = {}

    def decoded(name: str, decode: Callable[[Buffer], T]) -> T | None:
        content = read_file(disk, name)
        if content is None:
            unreadable[name] = "missing"
            return None
        try:
            return decode(content)
        except CorruptionError as error:
            unreadable[name] = str(error)
            return None

    return PartitionFiles(
        path=path,
        disk=disk,
        segments=dict(sorted(segments.items())),
        others=tuple(name for name, row in parsed.items() if not row),
        topic_id=decoded(IDENTITY, decode_identity),
        checkpoint=decoded(CHECKPOINT, decode_checkpoint),
        epochs=decoded(EPOCHS, decode_epochs),
        unreadable=unreadable,
    )


def _is_segment(name: str) -> bool:
    row = parse_numbered(name)
    return row is not None and row[1] == LOG
