r"""One data directory: whose it is, how it was left, and what lies in it.

    <data-dir>/meta/format          the layout's version; written last when a directory is made
    <data-dir>/meta/directory-id    who this directory is: a voter is a node plus a directory
    <data-dir>/meta/node-id         the node whose directory it is, from its first start on
    <data-dir>/meta/cluster-id      the cluster it belongs to, once it has joined one
    <data-dir>/meta/clean           only while the node is stopped in order: its last broker epoch
    <data-dir>/meta/journal/        what was acknowledged and is not yet certain to be in the logs' own files
    <data-dir>/meta/scrub           how far old segments have been verified in the background
    <data-dir>/meta/boot            the broker epoch of the last start, and the boot of its machine
    <data-dir>/meta/run             the runs that registered last, or may have, and the run of the journal
    <data-dir>/meta/encryption      only if it is encrypted: an envelope, which the master keys must open
    <data-dir>/meta/reseal          how far old segments have been encrypted again under other data keys
    <data-dir>/meta/replicas/       an empty file for every partition that a log was made for
    <data-dir>/meta/first-administrator   left by `penstock user bootstrap`, until it is added
    <data-dir>/meta/lock            held while a node is using the directory
    <data-dir>/logs/<topic>/<n>/    partitions, each naming its topic id
    <data-dir>/deleted/             topics that were deleted, until their files are removed
    <data-dir>/set-aside/           stray logs, whose topic is unknown: moved here, never deleted

The identity is durable before anything uses it, and is never made anew over logs that
exist: a directory that lost its `meta` is damaged, not empty. The clean marker is removed,
durably, before the first write after a start, so it is there only if it is true.

The boot says what a crash can have cost: a process that ended in the boot that is still running left
everything it wrote in the page cache. It is written after the broker has registered, under the epoch
it got, so that a start which ended before that cannot hide what an earlier one lost.

The run tells an old copy of the directory: it is written before the broker registers, so that a run which
the cluster knows, and the directory does not, has left its records somewhere else. The same file holds the
id and the run of the journal, before anything is written to it: a journal that does not know of that run is
an older copy, also if the rest of `meta` is not.

The files are small texts with a checksum, replaced as a whole: a person can read them, and
damage shows. The content `b"directory-id 2f0c…\n"` is stored as

    directory-id 2f0c8a4e-…
    crc32c 1a2b3c4d

An encrypted directory (ADR 0020) has format 4, from before anything in it is encrypted. Its `encryption`
is an envelope under the current master key with `directory-id 2f0c… quorum sealed tables complete` inside.
A node with other keys, or without any, ends its start there, before it could take for damage what it cannot
open. It says `quorum plain` until the metadata of a directory that was in use is encrypted; then none in
clear counts. `tables complete` is not said until every log of a directory that was in use has a key table, if
only one that says that all is plain; then a log without one has lost it, and is not opened. A log that is
made gets its table before its identity.

The empty files in `replicas/` tell a lost replica from a new one. They are named

    <data-dir>/meta/replicas/<topic id>-<partition>

The file is written after the log is on disk and before anything is served or acknowledged from it, so
a log without a file is one whose creation a crash interrupted. The other way round, a file without a log
means that a log was taken away which other replicas may count on. Files are removed with their logs; one
that a power cut brings back belongs to a deleted topic, or to a replica that is not yet in any ISR.

Left out: what else is in `meta` (the Raft log, its snapshots and the hard state) belongs to
the quorum; the logs belong to `storage.log`; deleting what was set aside is up to an operator.
"""

import errno as errnos
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from fastcrc import crc32

from penstock.core.model import (
    BrokerEpoch,
    CorruptionError,
    NodeId,
    PartitionIndex,
    StorageError,
    TopicId,
    TopicName,
    TopicPartition,
)
from penstock.storage.disk import DirectoryLocked, Disk, DiskFailed, Lock, NoSuchFile
from penstock.storage.journal import JournalRun
from penstock.storage.log.file_names import CHECKPOINT, IDENTITY, KEYS, LOG, parse_numbered
from penstock.storage.log.files import decode_identity, read_file, read_if_good, replace_durably
from penstock.storage.sealing import BrokenEnvelope, KeyUnavailable, KeyVault
from penstock.storage.sealing.vault import master_key_of

LOGS = "logs"
SET_ASIDE = "set-aside"
# Empty files by which an operator decides about a partition: see docs/operations/damaged-disks.md.
ACCEPT_IDENTITY = "accept-identity"
ACCEPT_LOSS = "accept-loss"
_crc32c = crc32.iscsi
# From format 2 on there is a journal: who does not read it would lose what was acknowledged. From 3 on
# its files say how long they are, which those who read 2 take for damage.
FORMAT = 3
# From 4 on some of it is encrypted: who does not know that would take it for damage.
ENCRYPTED_FORMAT = 4
_WITHOUT_JOURNAL = 1
META = "meta"
_LOCK = f"{META}/lock"
_FORMAT, _DIRECTORY_ID, _CLUSTER_ID, _CLEAN = "format", "directory-id", "cluster-id", "clean"
_NODE_ID = "node-id"
_BOOT = "boot"
_RUN = "run"
_ENCRYPTION = "encryption"
_QUORUM_PLAIN, _QUORUM_SEALED = "plain", "sealed"
_TABLES_COMPLETE = " tables complete"
_RAFT = f"{META}/raft"
_SEAL_PURPOSE = b"penstock data directory"
# Starts that ended before they registered leave one each; the file must not grow beyond what is read of it.
_RUNS_MAX = 64
_JOURNAL = "journal"
REPLICAS = f"{META}/replicas"
ReplicaKey: TypeAlias = tuple[TopicId, PartitionIndex]


class FormatTooNew(StorageError):
    """A newer version of Penstock has written this directory."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the data directory has format {found}, and this version of Penstock reads formats "
            f"up to {known}: upgrade Penstock, or use another data directory"
        )
        self.found = found
        self.known = known


class WrongCluster(StorageError):
    """The directory belongs to another cluster."""

    def __init__(self, ours: UUID, theirs: UUID) -> None:
        super().__init__(f"the data directory belongs to cluster {ours}, not {theirs}")
        self.ours = ours
        self.theirs = theirs


class WrongNode(StorageError):
    """The directory belongs to another node."""

    def __init__(self, owner: str, claimant: int) -> None:
        super().__init__(
            f"the data directory belongs to node {owner}, but this node's id is {claimant}: "
            "use its own data directory, or its own id"
        )
        self.owner = owner
        self.claimant = claimant


class DirectoryDamaged(CorruptionError):
    """The files that say whose directory it is are missing or broken."""


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """One partition's directory. Without a topic id and without damage its creation was not finished.

    `has_log`: there is a checkpoint or a segment in it; `has_records`: the identity is doubtful, and
    segments are not empty. A directory that cannot be read at the moment, for lack of descriptors or
    permissions, say, `is_unreadable`: nobody knows whether anything in it is damaged.
    """

    partition: TopicPartition
    path: str
    topic_id: TopicId | None
    damage: str = ""
    has_log: bool = True
    has_records: bool = False
    is_unreadable: bool = False


def partition_path(partition: TopicPartition) -> str:
    """The directory of a partition's log."""
    return f"{LOGS}/{partition.topic}/{partition.partition}"


def list_partitions(disk: Disk) -> Iterator[PartitionDirectory]:
    """Every partition directory in order of path; other files and directories are not ours."""
    if not disk.is_directory(LOGS):
        return
    for topic in disk.listdir(LOGS):
        if not disk.is_directory(f"{LOGS}/{topic}"):
            continue
        for name in disk.listdir(f"{LOGS}/{topic}"):
            if name.isascii() and name.isdigit():
                yield identify(disk, TopicPartition(TopicName(topic), PartitionIndex(int(name))))


def identify(disk: Disk, partition: TopicPartition) -> PartitionDirectory:
    """What a partition's directory says of itself."""
    path = partition_path(partition)
    try:
        if not disk.is_directory(path):
            obstacle = "a file is in the place of its directory"
            return PartitionDirectory(partition, path, None, obstacle, has_log=False)
        topic_id, damage = _read_identity(disk, path)
        has_checkpoint = disk.exists(f"{path}/{CHECKPOINT}")
        if topic_id is not None and has_checkpoint:
            # Nearly always.
            return PartitionDirectory(partition, path, topic_id)
        segments = _segments(disk, path)
        has_log = has_checkpoint or bool(segments)
        has_records = any(disk.size(segment) for segment in segments)
    except DiskFailed as error:
        return PartitionDirectory(partition, path, None, str(error), is_unreadable=True)
    if topic_id is not None and not has_log:
        # Every log has both from its creation on. Opening it now would take it for empty.
        damage = "the checkpoint and all segments are missing"
    elif topic_id is None and not damage and has_records:
        # The identity is written before the first record.
        damage = f"{IDENTITY} is missing"
    return PartitionDirectory(partition, path, topic_id, damage, has_log, has_records)


def _read_identity(disk: Disk, path: str) -> tuple[TopicId | None, str]:
    """The topic id in a directory, or what is wrong with it; neither if there is none."""
    try:
        content = read_if_good(disk, f"{path}/{IDENTITY}")
        return (None if content is None else decode_identity(content)), ""
    except CorruptionError as error:
        return None, str(error)
    except DiskFailed as error:
        if error.errno != errnos.EISDIR:
            raise
        return None, f"a directory is in the place of {IDENTITY}"


def _segments(disk: Disk, path: str) -> list[str]:
    numbered = ((name, parse_numbered(name)) for name in disk.listdir(path))
    return [f"{path}/{name}" for name, number in numbered if number is not None and number[1] == LOG]


def _has_all_tables(disk: Disk) -> bool:
    """Whether every partition's log has a key table; a creation that was interrupted is no log."""
    for found in list_partitions(disk):
        is_log = found.topic_id is not None or found.has_records or bool(found.damage)
        if found.is_unreadable or (is_log and not disk.exists(f"{found.path}/{KEYS}")):
            return False
    return True


def set_aside(disk: Disk, directory: PartitionDirectory) -> str:
    """Move a partition out of the way, durably; returns where it is now.

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


class RecordFileDamaged(Exception):
    """The file is not what was written. Its reader decides what that means."""


def write_record(disk: Disk, directory: str, name: str, value: str) -> None:
    """Write `directory/name`; when this returns, it survives a power cut."""
    line = f"{name} {value}\n".encode()
    path = f"{directory}/{name}"
    file = disk.open(path + ".new", create=True)
    try:
        file.truncate(0)
        file.append(line, b"crc32c %08x\n" % _crc32c(line))
        file.sync()
    finally:
        file.close()
    disk.rename(path + ".new", path)
    disk.sync_directory(directory)


def read_record(disk: Disk, directory: str, name: str) -> str | None:
    """The value, or None if the file does not exist; raises RecordFileDamaged."""
    path = f"{directory}/{name}"
    try:
        file = disk.open(path, readonly=True)
    except NoSuchFile:
        return None
    try:
        content = file.pread(0, 4096)
    finally:
        file.close()
    line, _, rest = content.partition(b"\n")
    if rest != b"crc32c %08x\n" % _crc32c(line + b"\n"):
        raise RecordFileDamaged(f"{path} is damaged")
    key, _, value = line.decode(errors="replace").partition(" ")
    if key != name:
        raise RecordFileDamaged(f"{path} holds {key!r}")
    return value


class DataDirectory:
    """A data directory that this process has to itself until it is closed.

    `last_clean_epoch` is the broker epoch of the previous run, if that one stopped cleanly.
    """

    def __init__(
        self,
        disk: Disk,
        lock: Lock,
        directory_id: UUID,
        cluster_id: UUID | None,
        last_clean_epoch: BrokerEpoch | None,
        *,
        found: int = _WITHOUT_JOURNAL,
    ) -> None:
        self._disk = disk
        self._format = found
        self._lock = lock
        self.directory_id = directory_id
        self.cluster_id = cluster_id
        self.last_clean_epoch = last_clean_epoch
        self._runs, self.journal_run = _read_runs(disk)
        self._is_encrypted = False
        # Whether metadata in clear counts.
        self.may_quorum_be_plain = True

    @classmethod
    def open(cls, disk: Disk, new_directory_id: UUID) -> "DataDirectory":
        """Lock the directory and read its identity; an empty one is initialised with the given id.

        Raises DirectoryLocked, FormatTooNew or DirectoryDamaged.
        """
        disk.make_directory("")
        disk.make_directory(META)
        disk.sync_directory("")
        lock = _lock(disk)
        try:
            directory_id = _identify(disk, new_directory_id)
            cluster_id = _read_id(disk, _CLUSTER_ID)
            found = int(_read(disk, _FORMAT) or _WITHOUT_JOURNAL)
            marker = _take_clean_marker(disk)
            return cls(disk, lock, directory_id, cluster_id, marker, found=found)
        except BaseException:
            lock.close()
            raise

    def unlock(self, vault: KeyVault | None) -> None:
        """Check that these are the keys of this directory; one that is new or in clear is theirs from now on.

        Raises KeyUnavailable. Nothing is encrypted before it returns, and before `note_journal`.
        """
        content = read_if_good(self._disk, f"{META}/{_ENCRYPTION}")
        if vault is None:
            if content is not None or self._format >= ENCRYPTED_FORMAT:
                raise KeyUnavailable(
                    "the data directory is encrypted, and no keys are configured: "
                    "security.encryption must be as it was"
                )
            return
        if content is not None:
            self._open_seal(vault, content)
            return
        if self._format >= ENCRYPTED_FORMAT:
            # Written before the format was. If it were made anew, what is in clear would count.
            raise DirectoryDamaged(f"{META}/{_ENCRYPTION} is missing, and the data directory is encrypted")
        self._is_encrypted = True
        # A new directory, in which no log was ever.
        vault.has_all_tables = not self._disk.is_directory(_RAFT) and not self._disk.listdir(LOGS)
        self._write_seal(vault)

    def _open_seal(self, vault: KeyVault, content: bytes) -> None:
        try:
            text = vault.open_envelope(content, _SEAL_PURPOSE).decode(errors="replace")
        except BrokenEnvelope as broken:
            raise KeyUnavailable(
                f"the master key does not fit the data directory: {META}/{_ENCRYPTION}: {broken}"
            ) from None
        owner, state = f"directory-id {self.directory_id} quorum ", ""
        if text.startswith(owner):
            state = text.removeprefix(owner)
        vault.has_all_tables = state.endswith(_TABLES_COMPLETE)
        state = state.removesuffix(_TABLES_COMPLETE)
        if state not in (_QUORUM_PLAIN, _QUORUM_SEALED):
            raise DirectoryDamaged(f"{META}/{_ENCRYPTION} is that of another directory")
        self._is_encrypted = True
        self.may_quorum_be_plain = state == _QUORUM_PLAIN

    def quorum_sealed(self, vault: KeyVault) -> None:
        """From now on no metadata in clear counts; durable when it returns."""
        if self.may_quorum_be_plain:
            self.may_quorum_be_plain = False
            self._write_seal(vault)

    def note_tables(self, vault: KeyVault, disk: Disk) -> bool:
        """From now on a log without a key table has lost it, if every log has one; durable then. Blocks.

        Returns whether that was not so before.
        """
        is_new = not vault.has_all_tables and _has_all_tables(disk)
        if is_new:
            self._write_seal(vault, disk, has_all_tables=True)
            vault.has_all_tables = True
        return is_new

    def master_key(self, disk: Disk | None = None) -> str | None:
        """The name of the master key that this directory needs to start; None without encryption. Blocks.

        A thread gives a view of the disk of its own.
        """
        content = read_file(disk or self._disk, f"{META}/{_ENCRYPTION}")
        return None if content is None else master_key_of(content)

    def rewrap(self, vault: KeyVault, disk: Disk | None = None) -> bool:
        """Need the current master key to start, and no other; durable when it returns.

        Returns whether it was another one before.
        """
        is_other = self.master_key(disk) != vault.keys.current
        if is_other:
            self._write_seal(vault, disk)
        return is_other

    def _write_seal(self, vault: KeyVault, disk: Disk | None = None, *, has_all_tables: bool = False) -> None:
        state = _QUORUM_PLAIN if self.may_quorum_be_plain else _QUORUM_SEALED
        if has_all_tables or vault.has_all_tables:
            state += _TABLES_COMPLETE
        text = f"directory-id {self.directory_id} quorum {state}"
        envelope = vault.close_envelope(text.encode(), _SEAL_PURPOSE)
        replace_durably(disk or self._disk, META, _ENCRYPTION, envelope)

    def note_journal(self, run: JournalRun) -> None:
        """There is a journal now, as this version writes it, and this is its run; durable when it returns."""
        present = ENCRYPTED_FORMAT if self._is_encrypted else FORMAT
        if self._format < present:
            write_record(self._disk, META, _FORMAT, str(present))
            self._format = present
        self.journal_run = run
        self.set_runs(self._runs)

    @property
    def has_journal(self) -> bool:
        """Whether a journal was ever made here: from then on, one that is missing is a loss."""
        return self._format > _WITHOUT_JOURNAL

    def join_cluster(self, cluster_id: UUID) -> None:
        """Belong to this cluster for ever; durable when it returns. Raises WrongCluster."""
        if self.cluster_id is None:
            write_record(self._disk, META, _CLUSTER_ID, str(cluster_id))
            self.cluster_id = cluster_id
        elif self.cluster_id != cluster_id:
            raise WrongCluster(self.cluster_id, cluster_id)

    def claim(self, node_id: NodeId) -> None:
        """Belong to this node for ever; durable when it returns. Raises WrongNode.

        A directory without a node id belongs to the first node that claims it.
        """
        value = _read(self._disk, _NODE_ID)
        if value is None:
            write_record(self._disk, META, _NODE_ID, str(node_id))
        elif value != str(node_id):
            raise WrongNode(value, node_id)

    def surviving_epoch(self, boot_id: str) -> BrokerEpoch | None:
        """The broker epoch of the last run, if that was in this very boot of the machine."""
        try:
            epoch, _, boot = (read_record(self._disk, META, _BOOT) or "").partition(" ")
            return BrokerEpoch(int(epoch)) if boot == boot_id != "" else None
        except (RecordFileDamaged, ValueError):
            return None

    def set_boot(self, epoch: BrokerEpoch, boot_id: str) -> None:
        """Note that the broker runs under this epoch in this boot; durable when it returns."""
        write_record(self._disk, META, _BOOT, f"{epoch} {boot_id}")

    def forget_boot(self) -> None:
        """Note that what was written may be lost although the machine goes on: a sync has failed."""
        with suppress(NoSuchFile):
            self._disk.remove(f"{META}/{_BOOT}")
        self._disk.sync_directory(META)

    def known_runs(self) -> tuple[UUID, ...]:
        """The runs that this directory may have registered with last; none if that was never written."""
        return self._runs

    def set_runs(self, runs: Iterable[UUID]) -> None:
        """Note the run that is about to register, and the one that is registered; durable when it returns."""
        known = tuple(runs)
        # The newest is first; the last one may be the one that is registered.
        self._runs = known if len(known) <= _RUNS_MAX else (*known[: _RUNS_MAX - 1], known[-1])
        words = [str(run) for run in self._runs]
        if self.journal_run is not None:
            words += [_JOURNAL, f"{self.journal_run.journal_id:016x}", str(self.journal_run.run)]
        write_record(self._disk, META, _RUN, " ".join(words))

    def forget_runs(self) -> None:
        """The run could not be noted: what an older one left would look like an old copy."""
        with suppress(NoSuchFile):
            self._disk.remove(f"{META}/{_RUN}")
        self._disk.sync_directory(META)

    def partitions(self) -> list[PartitionDirectory]:
        """The partition directories found on disk, in order of path."""
        return list(self.each_partition())

    def each_partition(self) -> Iterator[PartitionDirectory]:
        """The same, one by one: each is read when it is asked for."""
        return list_partitions(self._disk)

    def set_aside(self, directory: PartitionDirectory) -> str:
        """Move a stray log, whose topic is unknown, to `set-aside/`, durably; returns where it is."""
        return set_aside(self._disk, directory)

    def close(self, clean_epoch: BrokerEpoch | None = None) -> None:
        """Free the directory. With an epoch (all logs are closed and synced), write the clean marker."""
        try:
            if clean_epoch is not None:
                write_record(self._disk, META, _CLEAN, str(clean_epoch))
        finally:
            self._lock.close()


def _lock(disk: Disk) -> Lock:
    try:
        return disk.lock(_LOCK)
    except DirectoryLocked as held:
        # Name the data directory: an operator who started a second node does not know the lock file.
        raise DirectoryLocked(held.path.removesuffix(f"/{_LOCK}"), held.pid) from None


def _identify(disk: Disk, new_directory_id: UUID) -> UUID:
    version = _read(disk, _FORMAT)
    if version is None:
        return _make(disk, new_directory_id)
    if not version.isdigit():
        raise DirectoryDamaged(f"{META}/{_FORMAT} holds {version!r}")
    if int(version) > ENCRYPTED_FORMAT:
        raise FormatTooNew(int(version), ENCRYPTED_FORMAT)
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
    write_record(disk, META, _FORMAT, str(_WITHOUT_JOURNAL))
    return directory_id


def _read_runs(disk: Disk) -> tuple[tuple[UUID, ...], JournalRun | None]:
    """The runs of the broker, and that of the journal; nothing if it was never written or is damaged."""
    try:
        runs, _, journal = (read_record(disk, META, _RUN) or "").partition(_JOURNAL)
        known = tuple(map(UUID, runs.split()))
        if not journal:
            return known, None
        journal_id, run = journal.split()
        return known, JournalRun(int(journal_id, 16), int(run))
    except (RecordFileDamaged, ValueError):
        return (), None


def _take_clean_marker(disk: Disk) -> BrokerEpoch | None:
    """Read the clean marker and remove it, durably, before anything is written."""
    path = f"{META}/{_CLEAN}"
    if not disk.exists(path):
        return None
    try:
        value = read_record(disk, META, _CLEAN) or ""
        epoch = BrokerEpoch(int(value))
    except (RecordFileDamaged, ValueError):
        # The marker cannot be read: treat the previous run as crashed, which is always safe.
        epoch = None
    disk.remove(path)
    disk.sync_directory(META)
    return epoch


def _read(disk: Disk, name: str) -> str | None:
    try:
        return read_record(disk, META, name)
    except RecordFileDamaged as broken:
        raise DirectoryDamaged(str(broken)) from None


def _read_id(disk: Disk, name: str) -> UUID | None:
    value = _read(disk, name)
    try:
        return None if value is None else UUID(value)
    except ValueError:
        raise DirectoryDamaged(f"{META}/{name} holds {value!r}") from None


class CreatedReplicas:
    """The replicas this directory has had a log for, one file each, so threads that make logs never wait."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def all(self) -> list[ReplicaKey]:
        """Every replica that a log was made for, in order of name."""
        if not self._disk.is_directory(REPLICAS):
            return []
        return [key for key in map(_parse, self._disk.listdir(REPLICAS)) if key is not None]

    def __contains__(self, key: ReplicaKey) -> bool:
        return self._disk.exists(_path(key))

    def add(self, keys: Iterable[ReplicaKey]) -> None:
        """Note that these have a log; durable when it returns."""
        if not self._disk.is_directory(REPLICAS):
            self._disk.make_directory(REPLICAS)
            self._disk.sync_directory(META)
        for key in keys:
            self._disk.open(_path(key), create=True).close()
        self._disk.sync_directory(REPLICAS)

    def discard(self, key: ReplicaKey) -> None:
        """Note that the replica is no longer this node's. Not durable, and need not be."""
        with suppress(StorageError):
            self._disk.remove(_path(key))


def _path(key: ReplicaKey) -> str:
    return f"{REPLICAS}/{key[0]}-{key[1]}"


def _parse(name: str) -> ReplicaKey | None:
    topic_id, _, index = name.rpartition("-")
    try:
        return TopicId(UUID(topic_id)), PartitionIndex(int(index))
    except ValueError:
        # Not one of ours.
        return None
