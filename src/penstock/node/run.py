"""Runs one node in this process until it is stopped."""

import errno as errnos
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from penstock.core.model import PenstockError
from penstock.node.node import Node, NodeAddresses, NodeProgram, build, reserve
from penstock.node.options import NodeOptions
from penstock.node.services import NodeStorage
from penstock.observability import log as events
from penstock.runtime import NodeIdentity
from penstock.runtime.descriptors import present_limits
from penstock.runtime.loop import RuntimeOptions, run
from penstock.security.audit.file import AuditFile
from penstock.security.private_files import check_private
from penstock.storage.data_directory import META, DataDirectory
from penstock.storage.disk import DiskFailed, PosixDisk
from penstock.storage.disk.posix import PRIVATE_MODE
from penstock.storage.sealing import KeyUnavailable, KeyVault

NO_CLUSTER = UUID(int=0)


class DataDirectoryUnusable(PenstockError):
    """The data directory cannot be created, read or written; the text names it and the reason."""

    def __init__(self, path: str, errno: int) -> None:
        super().__init__(f"cannot use the data directory {path}: {_obstacle(path, errno)}")
        self.path = path


def _obstacle(path: str, errno: int) -> str:
    above = path
    while not os.path.lexists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        return "it is a file" if above == path else f"{above} is a file"
    if errno in (errnos.ENOSPC, errnos.EDQUOT):
        return "there is no space left on its disk"
    if errno in (errnos.EACCES, errnos.EPERM):
        return f"no permission to write to {above}"
    return os.strerror(errno).lower()


class UnsupportedOptions(PenstockError):
    """The options ask for something that this version cannot do."""


def run_node(
    options: NodeOptions,
    ready: Callable[[NodeAddresses], None] | None = None,
    run: Callable[[NodeProgram, NodeIdentity, RuntimeOptions], BaseException | None] = run,
    disk_at: Callable[[str], PosixDisk] = PosixDisk,
) -> int:
    """Start a node, call `ready` with its addresses, and return 0 when it was stopped.

    `run` has the loop, and gets the options that it needs at least; by default the node has the whole
    process, and a signal stops it. `disk_at` opens the data directory. Whatever prevents the
    start, or ends the node against its will, is raised: a PenstockError is for the operator and fits on
    one line; anything else is a bug.
    """
    runtime_options = _check(options)
    vault = open_vault(options)
    made = _first_missing(os.path.abspath(options.data_dir))
    storage = open_storage(options, disk_at, vault)
    program: NodeProgram | None = None
    try:
        _check_audit(options)
        reserved = reserve(options)
        try:
            program = build(storage, options, reserved, lambda node: ready(node.addresses) if ready else None)
            failure = run(program, _identity(options, storage.directory), runtime_options)
        finally:
            reserved.close()
    finally:
        _leave(storage, None if program is None else program.node)
        if program is None:
            _remove(made)
    if failure is not None:
        raise failure
    events.info("node.stopped")
    return 0


def _identity(options: NodeOptions, directory: DataDirectory) -> NodeIdentity:
    return NodeIdentity(directory.cluster_id or NO_CLUSTER, options.node_id, directory.directory_id)


def open_vault(options: NodeOptions) -> KeyVault | None:
    """Get the master keys of a node that encrypts; raises KeyUnavailable. Blocks."""
    if options.security.encryption is None:
        return None
    # Imported where they are used: a node without encryption starts without them.
    from penstock.security.key_services import key_service_of

    service = key_service_of(options.security.encryption)
    try:
        return KeyVault(service, service.load(), os.urandom)
    except KeyUnavailable as error:
        raise KeyUnavailable(f"no master key, which security.encryption needs: {error}") from None


def open_storage(
    options: NodeOptions,
    disk_at: Callable[[str], PosixDisk] = PosixDisk,
    vault: KeyVault | None = None,
) -> NodeStorage:
    """Lock the data directory, creating it if needed; raises DataDirectoryUnusable, and KeyUnavailable."""
    disk, side_disk, limits = disk_at(options.data_dir), disk_at(options.data_dir), present_limits()
    for view in (disk, side_disk):
        view.limit_descriptors(limits.readers_max, limits.short_from, limits.kept_from)
    made = _first_missing(disk.root)
    try:
        directory = DataDirectory.open(disk, UUID(bytes=os.urandom(16), version=4))
        try:
            directory.unlock(vault)
        except BaseException:
            directory.close(directory.last_clean_epoch)
            raise
    except DiskFailed as error:
        _remove(made)
        raise DataDirectoryUnusable(disk.root, error.errno) from error
    _close_to_others(disk.root)
    return NodeStorage(disk, side_disk, directory, vault)


def _close_to_others(root: str) -> None:
    """The metadata has hashes of secrets, and the directory may be older than this node's care for it."""
    with suppress(OSError):
        os.chmod(os.path.join(root, META), PRIVATE_MODE)


def _first_missing(path: str) -> str | None:
    """The topmost directory of `path` that does not exist; None if all of them do."""
    missing = None
    while not os.path.lexists(path):
        missing, path = path, os.path.dirname(path)
    return missing


def _remove(made: str | None) -> None:
    """Remove the directories that a failed start has created."""
    if made is not None:
        shutil.rmtree(made, ignore_errors=True)


def _leave(storage: NodeStorage, node: Node | None) -> None:
    """Unlock the directory, if the node has not closed it in order.

    If no broker was registered, nothing was written to any log: it is as clean as it was.
    """
    if node is not None and node.is_closed:
        return
    untouched = node is None or node.backstage.membership.epoch is None
    storage.directory.close(storage.directory.last_clean_epoch if untouched else None)


def _check_audit(options: NodeOptions) -> None:
    """A node that is to record what happens does not start where it cannot."""
    audit = options.security.audit
    if audit is not None:
        file = AuditFile(audit.directory, audit.file_bytes_max, audit.files_max)
        file.prepare()
        file.close()


def _check(options: NodeOptions) -> RuntimeOptions:
    """Refuse what cannot work before anything is touched; returns what the runtime needs."""
    problem = options.security.problem_with(listener.security for listener in options.listeners)
    if problem is not None:
        raise UnsupportedOptions(problem)
    if options.security.admin_password_file:
        check_private(options.security.admin_password_file)
    if options.security.tls is not None:
        # Before anything is touched: files that are missing or cannot be used end the start.
        from penstock.security.tls_contexts import TlsContexts

        TlsContexts(options.security.tls)
    names = [listener.name for listener in options.listeners]
    if len(frozenset(names)) != len(names) or not names:
        raise UnsupportedOptions("a node needs Kafka listeners with different names")
    security = options.security
    if security.peer_mode == "plain" or security.tls is None or options.peer is None:
        return RuntimeOptions()
    from penstock.security.peer_certificates import PeerCertificates

    accepts_plain = security.peer_mode == "mixed"
    return RuntimeOptions(tls=PeerCertificates(security.tls, options.node_id, accepts_plain=accepts_plain))
