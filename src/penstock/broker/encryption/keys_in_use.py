"""Which master keys the files of a data directory are under."""

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeAlias

from penstock.broker.cluster.raft_storage import snapshot_keys
from penstock.core.model import CorruptionError
from penstock.storage.data_directory import LOGS, SET_ASIDE, DataDirectory
from penstock.storage.disk import Disk
from penstock.storage.log.file_names import KEYS
from penstock.storage.log.files import read_file
from penstock.storage.sealing.vault import master_key_of

QUORUM_LOG = "meta/raft/log"
# What is under a key, by the name of the key: directories, and `meta` for what is not in a log.
KeysInUse: TypeAlias = dict[str, list[str]]


def keys_in_use(disk: Disk, directory: DataDirectory) -> KeysInUse:
    """Every master key that something on disk is under. Blocks: it reads one small file of every log."""
    found: KeysInUse = {}
    name = directory.master_key(disk)
    if name is not None:
        found.setdefault(name, []).append("meta/encryption")
    for name in snapshot_keys(disk):
        found.setdefault(name, []).append("meta/raft")
    for path in _logs(disk):
        # A table that is damaged has no name to be trusted; it does not open under any key.
        with suppress(CorruptionError):
            content = read_file(disk, f"{path}/{KEYS}")
            if content is not None:
                found.setdefault(master_key_of(content), []).append(path)
    return found


def _logs(disk: Disk) -> Iterator[str]:
    """The directories of logs, those of the quorum and of strangers among them."""
    yield QUORUM_LOG
    for topic in _directories(disk, LOGS):
        yield from _directories(disk, topic)
    yield from _directories(disk, SET_ASIDE)


def _directories(disk: Disk, path: str) -> list[str]:
    if not disk.is_directory(path):
        return []
    return [f"{path}/{name}" for name in disk.listdir(path) if disk.is_directory(f"{path}/{name}")]
