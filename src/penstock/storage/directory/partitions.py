"""The partition directories of a data directory, as found on disk."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.model import CorruptionError, PartitionIndex, TopicId, TopicName, TopicPartition
from penstock.storage.disk import Disk
from penstock.storage.log.files.frame import read_file
from penstock.storage.log.files.identity import decode_identity
from penstock.storage.log.names import CHECKPOINT, IDENTITY, LOG, parse_numbered

LOGS = "logs"
SET_ASIDE = "set-aside"


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """One partition's directory. Without a topic id it was never finished, or is damaged."""

    partition: TopicPartition
    path: str
    topic_id: TopicId | None
    damage: str = ""


def partition_path(partition: TopicPartition) -> str:
    """Where a partition's log lives."""
    return f"{LOGS}/{partition.topic}/{partition.partition}"


def list_partitions(disk: Disk) -> Iterator[PartitionDirectory]:
    """Every partition directory in order of path; other files and directories are not ours."""
    if not disk.is_directory(LOGS):
        return
    for topic in disk.listdir(LOGS):
        if not disk.is_directory(f"{LOGS}/{topic}"):
            continue
        for name in disk.listdir(f"{LOGS}/{topic}"):
            if name.isascii() and name.isdigit() and disk.is_directory(f"{LOGS}/{topic}/{name}"):
                yield _read(disk, TopicPartition(TopicName(topic), PartitionIndex(int(name))))


def _read(disk: Disk, partition: TopicPartition) -> PartitionDirectory:
    path = partition_path(partition)
    content = read_file(disk, f"{path}/{IDENTITY}")
    if content is None:
        return PartitionDirectory(partition, path, None)
    try:
        topic_id = decode_identity(content)
    except CorruptionError as damage:
        return PartitionDirectory(partition, path, None, str(damage))
    if not disk.exists(f"{path}/{CHECKPOINT}") and not _has_segments(disk, path):
        # Every log has both from its creation on. To open it would be to take it for empty.
        return PartitionDirectory(partition, path, topic_id, "the checkpoint and all segments are missing")
    return PartitionDirectory(partition, path, topic_id)


def _has_segments(disk: Disk, path: str) -> bool:
    numbered = map(parse_numbered, disk.listdir(path))
    return any(number is not None and number[1] == LOG for number in numbered)


def set_aside(disk: Disk, directory: PartitionDirectory) -> str:
    """Move a partition out of the way, durably; answers where it is now.

    Whether the power is cut before or after, the directory is in one of the two places.
    """
    disk.make_directory(SET_ASIDE)
    disk.sync_directory("")
    partition = directory.partition
    name = f"{SET_ASIDE}/{partition.topic}-{partition.partition}-{directory.topic_id or 'unknown'}"
    target, attempt = name, 1
    while disk.exists(target):
        attempt += 1
        target = f"{name}.{attempt}"
    disk.rename(directory.path, target)
    disk.sync_directory(SET_ASIDE)
    disk.sync_directory(f"{LOGS}/{partition.topic}")
    return target
