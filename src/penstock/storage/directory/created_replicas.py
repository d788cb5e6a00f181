"""Which replicas this data directory has had a log for: one that is missing is lost, and not just new.

    <data-dir>/meta/replicas/<topic id>-<partition>    an empty file

The file is written after the log is on disk and before anything is served or acknowledged from it, so
a log without a file is one whose creation a crash interrupted. The other way round, a file without a log,
means that something was taken away which others may count on. Files are removed with their logs; one that
a power cut brings back belongs to a topic that is gone, or to a replica that nobody counts on yet.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias
from uuid import UUID

from penstock.core.model import PartitionIndex, StorageError, TopicId
from penstock.storage.directory.data_directory import META
from penstock.storage.disk import Disk

REPLICAS = f"{META}/replicas"
ReplicaKey: TypeAlias = tuple[TopicId, PartitionIndex]


class CreatedReplicas:
    """The list of them, one file each: a thread that makes logs need not wait for another."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def all(self) -> list[ReplicaKey]:
        """Every replica that a log was made for, in order of name."""
        if not self._disk.is_directory(REPLICAS):
            return []
        return [key for key in map(_parse, self._disk.listdir(REPLICAS)) if key is not None]

    def add(self, keys: Iterable[ReplicaKey]) -> None:
        """Note that these have a log; durable when it returns."""
        if not self._disk.is_directory(REPLICAS):
            self._disk.make_directory(REPLICAS)
            self._disk.sync_directory(META)
        for key in keys:
            self._disk.open(_path(key), create=True).close()
        self._disk.sync_directory(REPLICAS)

    def discard(self, key: ReplicaKey) -> None:
        """The replica is not this node's any more. Not durable, and need not be."""
        with suppress(StorageError):
            self._disk.remove(_path(key))


def _path(key: ReplicaKey) -> str:
    return f"{REPLICAS}/{key[0]}-{key[1]}"


def _parse(name: str) -> ReplicaKey | None:
    topic_id, _, index = name.rpartition("-")
    try:
        return TopicId(UUID(topic_id)), PartitionIndex(int(index))
    except ValueError:
        # Somebody else's file.
        return None
