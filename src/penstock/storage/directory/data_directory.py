"""Opening, identifying and leaving a data directory."""

from uuid import UUID

from penstock.core.model import BrokerEpoch, NodeId
from penstock.storage.directory.errors import DirectoryDamaged, FormatTooNew, WrongCluster, WrongNode
from penstock.storage.directory.partitions import LOGS, PartitionDirectory, list_partitions, set_aside
from penstock.storage.directory.records import BrokenRecord, read_record, write_record
from penstock.storage.disk import DirectoryLocked, Disk, Lock

FORMAT = 1
META = "meta"
_LOCK = f"{META}/lock"
_FORMAT, _DIRECTORY_ID, _CLUSTER_ID, _CLEAN = "format", "directory-id", "cluster-id", "clean"
_NODE_ID = "node-id"


class DataDirectory:
    """A data directory that this process has to itself until it is closed.

    `last_clean_epoch` is the broker epoch of the life before, if that one stopped in order.
    """

    def __init__(
        self,
        disk: Disk,
        lock: Lock,
        directory_id: UUID,
        cluster_id: UUID | None,
        last_clean_epoch: BrokerEpoch | None,
    ) -> None:
        self._disk = disk
        self._lock = lock
        self.directory_id = directory_id
        self.cluster_id = cluster_id
        self.last_clean_epoch = last_clean_epoch

    @classmethod
    def open(cls, disk: Disk, new_directory_id: UUID) -> "DataDirectory":
        """Lock the directory and read who it is; an empty one is made ours under the given id.

        Raises DirectoryLocked, FormatTooNew or DirectoryDamaged.
        """
        disk.make_directory("")
        disk.make_directory(META)
        disk.sync_directory("")
        lock = _lock(disk)
        try:
            directory_id = _identify(disk, new_directory_id)
            cluster_id = _read_id(disk, _CLUSTER_ID)
            return cls(disk, lock, directory_id, cluster_id, _take_clean_marker(disk))
        except BaseException:
            lock.close()
            raise

    def join_cluster(self, cluster_id: UUID) -> None:
        """Belong to this cluster for ever; durable when it returns. Raises WrongCluster."""
        if self.cluster_id is None:
            write_record(self._disk, META, _CLUSTER_ID, str(cluster_id))
            self.cluster_id = cluster_id
        elif self.cluster_id != cluster_id:
            raise WrongCluster(self.cluster_id, cluster_id)

    def claim(self, node_id: NodeId) -> None:
        """Belong to this node for ever; durable when it returns. Raises WrongNode.

        A directory from before node ids were written down belongs to whoever claims it first.
        """
        value = _read(self._disk, _NODE_ID)
        if value is None:
            write_record(self._disk, META, _NODE_ID, str(node_id))
        elif value != str(node_id):
            raise WrongNode(value, node_id)

    def partitions(self) -> list[PartitionDirectory]:
        """The partition directories found on disk, in order of path."""
        return list(list_partitions(self._disk))

    def set_aside(self, directory: PartitionDirectory) -> str:
        """Move a partition whose topic nobody knows to `set-aside/`, durably; answers where it is."""
        return set_aside(self._disk, directory)

    def close(self, clean_epoch: BrokerEpoch | None = None) -> None:
        """Free the directory. With an epoch: all logs are closed and synced, so say that it was clean."""
        try:
            if clean_epoch is not None:
                write_record(self._disk, META, _CLEAN, str(clean_epoch))
        finally:
            self._lock.close()


def _lock(disk: Disk) -> Lock:
    try:
        return disk.lock(_LOCK)
    except DirectoryLocked as held:
        # Whoever started a second node by mistake knows the data directory, not the lock file.
        raise DirectoryLocked(held.path.removesuffix(f"/{_LOCK}"), held.pid) from None


def _identify(disk: Disk, new_directory_id: UUID) -> UUID:
    version = _read(disk, _FORMAT)
    if version is None:
        return _make(disk, new_directory_id)
    if not version.isdigit():
        raise DirectoryDamaged(f"{META}/{_FORMAT} holds {version!r}")
    if int(version) > FORMAT:
        raise FormatTooNew(int(version), FORMAT)
    directory_id = _read_id(disk, _DIRECTORY_ID)
    if directory_id is None:
        raise DirectoryDamaged(f"{META}/{_DIRECTORY_ID} is missing")
    return directory_id


def _make(disk: Disk, directory_id: UUID) -> UUID:
    if disk.is_directory(LOGS) and disk.listdir(LOGS):
        # Taking a new identity here would present old logs as those of a new voter.
        raise DirectoryDamaged(f"{META}/{_FORMAT} is missing, but there are logs")
    disk.make_directory(LOGS)
    disk.sync_directory("")
    write_record(disk, META, _DIRECTORY_ID, str(directory_id))
    # Last: a directory without a format was never used, whatever else is in it.
    write_record(disk, META, _FORMAT, str(FORMAT))
    return directory_id


def _take_clean_marker(disk: Disk) -> BrokerEpoch | None:
    """What the marker says; it is gone for good before anybody can write."""
    path = f"{META}/{_CLEAN}"
    if not disk.exists(path):
        return None
    try:
        value = read_record(disk, META, _CLEAN) or ""
        epoch = BrokerEpoch(int(value))
    except (BrokenRecord, ValueError):
        # Nothing to go by: the life before counts as ended by a crash, which is always safe.
        epoch = None
    disk.remove(path)
    disk.sync_directory(META)
    return epoch


def _read(disk: Disk, name: str) -> str | None:
    try:
        return read_record(disk, META, name)
    except BrokenRecord as broken:
        raise DirectoryDamaged(str(broken)) from None


def _read_id(disk: Disk, name: str) -> UUID | None:
    value = _read(disk, name)
    try:
        return None if value is None else UUID(value)
    except ValueError:
        raise DirectoryDamaged(f"{META}/{name} holds {value!r}") from None
