"""Another master key for a running node: asked for, or due.

    rotate ─► the key service is asked, in a thread ─► the vault takes the new keys ─► reply
                                                            │
        pass    the key table of each log, a few at a time: under the new key, with other data keys to come
                then, in a thread: the data directory, the metadata snapshots, and a look at the disk
                something is under an old key still ─► another pass, a little later
                nothing is                          ─► `encryption.keys_not_needed`
                                                            │
                                            segments are written again, if that was asked for

If the source has another current key already (nodes may share a keyring), the node takes that one, and has no
other made. A pass also runs at every start: it finishes what a crash has interrupted. And it runs when the
keys were read again for another reason, a log whose key was missing, and another one is current; or when
a log that no pass has seen is under an old one, since it was offline, or was being made.

Left out: what is under an old key and is no open log of this node (set aside, or offline) is named, and left.
"""

import enum
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from penstock.broker.cluster.raft_storage import SnapshotSeal, rewrap_snapshots
from penstock.broker.encryption.keys_in_use import KeysInUse, keys_in_use
from penstock.broker.encryption.segment_reseal import (
    ResealPosition,
    ResealProgress,
    SegmentReseal,
    read_position,
)
from penstock.broker.partitions.log_scrubber import ScrubbedLog
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    ErrorKind,
    Instant,
    StorageError,
)
from penstock.observability import Metrics
from penstock.observability import log as events
from penstock.runtime import ExecutorKind, Runtime, Timer
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk
from penstock.storage.sealing import KeyVault, MasterKeys

# Each writes a small file, and all of them share syncs.
LOGS_AT_ONCE = 8
RETRY_NS = 5 * SECOND
# Passes of which every one finds the same left over: then somebody has to look.
PASSES_MAX = 3
# How often the age of the key is looked at.
LOOK_MS_MIN, LOOK_MS_MAX = 1_000, 60_000
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class KeyRotationOptions:
    """`service`: where keys come from. An interval of 0 is never."""

    service: str
    rotation_interval_ms: int = 0
    reseal_bytes_per_second: int = 32 << 20


@dataclass(frozen=True, slots=True)
class EncryptedStore:
    """What is encrypted besides logs; `side_disk` is a view of the directory for threads."""

    vault: KeyVault
    directory: DataDirectory
    side_disk: Disk
    snapshot_seal: Callable[[], SnapshotSeal | None]


class RotationPhase(enum.Enum):
    """What a node is doing about its keys."""

    IDLE = "idle"
    ASKING = "asking"
    REWRAPPING = "rewrapping"
    RESEALING = "resealing"


class KeyUse(NamedTuple):
    """A master key and how many things on disk are under it; some of them, if it is an old one."""

    name: str
    uses: int
    examples: tuple[str, ...] = ()


class KeyStatus(NamedTuple):
    """The keys of a node, and what is being done about them.

    `keys` is what the last pass has found on disk, the current key first; times are in ms, -1 if not known.
    """

    service: str
    current: str
    created_ms: int
    phase: RotationPhase
    rotated_ms: int
    logs_total: int
    logs_left: int
    keys: tuple[KeyUse, ...]
    reseal: ResealProgress
    resealed_ms: int
    problem: str


class Rotated(NamedTuple):
    """The current key now, and whether it was another one before."""

    current: str
    is_new: bool


OnRotated: TypeAlias = Callable[[Rotated | ApiError], None]
EXAMPLES_MAX = 5


class EncryptionMetrics(Metrics):
    """Which master keys a node needs, and what it does to need only one."""

    def __init__(self) -> None:
        super().__init__()
        self.rotations = self.counter(
            "penstock_encryption_rotations_total", "How often the node went on with another master key."
        ).of()
        self.failures = self.counter(
            "penstock_encryption_rotation_failures_total",
            "How often the key service had no key to give when it was asked for another one.",
        ).of()
        self.rewrapped = self.counter(
            "penstock_encryption_rewrapped_total",
            "Key tables and other small files that were encrypted again under another master key.",
        ).of()
        self.resealed_bytes = self.counter(
            "penstock_encryption_resealed_bytes_total",
            "Bytes of segments that were encrypted again under other data keys.",
        ).of()
        self.keys_needed = self.gauge(
            "penstock_encryption_master_keys_needed",
            "Master keys that something on this node's disk is under; 1 is enough.",
        )
        self.logs_left = self.gauge(
            "penstock_encryption_logs_left",
            "Logs whose keys have still to be encrypted under the current key.",
        )
        self.key_age_seconds = self.gauge(
            "penstock_encryption_key_age_seconds", "The age of the current master key; -1 if it is not known."
        )


class KeyRotation:
    """The master keys of a running node."""

    def __init__(
        self,
        runtime: Runtime,
        store: EncryptedStore,
        logs: Callable[[], list[ScrubbedLog]],
        options: KeyRotationOptions,
    ) -> None:
        """`logs` returns every open log of the node, that of the quorum among them."""
        self._runtime = runtime
        self._store = store
        self._vault = store.vault
        self._all = logs
        self._options = options
        self._timer: Timer | None = None
        self._retry: Timer | None = None
        self._is_started = self._is_closed = False
        self._asks = False
        self._asked_at = runtime.clock.now()
        self._rotated_ms = self._resealed_ms = UNKNOWN
        self._problem = ""
        # The pass: logs that wait, how many are under way, and how many passes have changed nothing.
        self._pass = 0
        self._is_passing = self._is_pass_due = False
        self._waiting: deque[ScrubbedLog] = deque()
        self._under_way = 0
        self._total = 0
        # Whether the pass is done with the logs.
        self._has_logs = False
        # Whether a thread is at the files that are no logs, of whichever pass.
        self._has_thread = False
        self._idle_passes = 0
        # Until the disk was looked at, nobody knows which keys are needed.
        self._in_use: KeysInUse = {}
        self._has_looked = False
        # What is to be resealed when the pass is done, and nothing is being noted.
        self._reseal_next: ResealPosition | None = None
        self._is_noting = False
        # What an earlier run has promised is part of what this one has.
        self._has_noted = False
        # Hears of rotations that nobody has asked for.
        self.on_due_rotation: OnRotated = _ignore
        self.metrics = EncryptionMetrics()
        self._reseal = SegmentReseal(
            runtime,
            store.side_disk,
            logs,
            options.reseal_bytes_per_second,
            self._count_resealed,
            self._resealed,
        )
        self._vault.on_other_key = self._on_other_key
        self._vault.on_old_table = self._on_old_table
        self.metrics.keys_needed.read(lambda: len(self._in_use))
        self.metrics.logs_left.read(lambda: len(self._waiting) + self._under_way)
        self.metrics.key_age_seconds.read(self._age_seconds)

    def start(self) -> None:
        """Finish what an earlier run has begun, and look after the age of the key from now on."""
        self._is_started = True

        def found(position: ResealPosition | None) -> None:
            if position is not None and not position.is_done and not self._has_noted:
                self._reseal_next = position
            if not self._is_passing:
                self._begin_pass()

        def failed(error: Exception) -> None:
            events.warning("encryption.reseal_position_not_read", error=error)
            found(None)

        self._runtime.spawn.spawn(
            partial(read_position, self._store.side_disk), found, failed, ExecutorKind.DISK
        )
        if self._options.rotation_interval_ms:
            self._look_later()

    def stop(self) -> None:
        """Do nothing any more; the next start goes on."""
        self._is_closed = True
        self._pass += 1
        self._reseal.stop()
        for timer in (self._timer, self._retry):
            if timer is not None:
                timer.cancel()

    @property
    def status(self) -> KeyStatus:
        keys = self._vault.keys
        return KeyStatus(
            self._options.service,
            keys.current,
            keys.created_ms,
            self._phase,
            self._rotated_ms,
            self._total,
            len(self._waiting) + self._under_way,
            tuple(
                KeyUse(name, len(paths), () if name == keys.current else tuple(paths[:EXAMPLES_MAX]))
                for name, paths in sorted(self._in_use.items(), key=lambda item: item[0] != keys.current)
            ),
            self._reseal.progress,
            self._resealed_ms,
            self._problem,
        )

    @property
    def _phase(self) -> RotationPhase:
        if self._asks:
            return RotationPhase.ASKING
        if self._is_passing or not self._has_looked:
            return RotationPhase.REWRAPPING
        if self._reseal.is_running or self._reseal_next is not None:
            return RotationPhase.RESEALING
        return RotationPhase.IDLE

    def rotate(self, done: OnRotated, *, reseal: bool = False) -> None:
        """Have another master key, and whatever is under an old one encrypted under it.

        `done` is called when the new key counts, and a reseal is certain to happen; the rest goes on.
        """
        if self._asks or self._is_closed:
            done(ApiError(ErrorKind.INVALID_REQUEST, "the key service is being asked already"))
            return
        service, former, now = self._vault.service, self._vault.keys.current, self._runtime.clock.wall()
        self._asks, self._asked_at = True, self._runtime.clock.now()

        def work() -> MasterKeys:
            present = service.load()
            # Before it is asked to make one.
            self._vault.check(present)
            # Another node has had one made, or an operator.
            return present if present.current != former else service.rotate(now)

        def came(keys: MasterKeys) -> None:
            try:
                self._vault.adopt(keys)
            except StorageError as error:
                failed(error)
                return
            # Also if somebody else has read it in the meantime.
            is_new = keys.current != former
            self._adopted(is_new=is_new)
            if reseal:
                self._note_reseal(is_new=is_new, done=done)
            else:
                self._asks = False
                done(Rotated(keys.current, is_new))
                self._begin_pass()

        def failed(error: Exception) -> None:
            self._asks = False
            if self._vault.keys.current != former:
                # Somebody else has read it in the meantime.
                self._on_other_key()
            self._failed(error)
            done(ApiError(ErrorKind.STORAGE_FAILED, str(error)))

        self._runtime.spawn.spawn(work, came, failed, ExecutorKind.DISK)

    def _on_other_key(self) -> None:
        """The vault has another current key: if nobody has asked for it, what follows is the same."""
        if self._asks or self._is_closed:
            return
        self._adopted(is_new=True)
        if self._is_started:
            self._begin_pass()

    def _on_old_table(self) -> None:
        """Another log is there; not from inside of the call that has opened it, and once for many of them."""
        if self._is_started and not self._is_pass_due:
            self._is_pass_due = True
            self._runtime.timers.soon(self._begin_pass)

    def _adopted(self, *, is_new: bool) -> None:
        self._problem = ""
        if is_new:
            self._rotated_ms = self._runtime.clock.wall()
            self.metrics.rotations.count += 1
            events.info("encryption.key_rotated", key=self._vault.keys.current)

    def _failed(self, error: Exception) -> None:
        self._problem = str(error)
        self.metrics.failures.count += 1
        events.error("encryption.rotation_failed", error=error)

    def _note_reseal(self, *, is_new: bool, done: OnRotated) -> None:
        """From here on it happens, whatever happens; if it cannot be noted, the earlier one goes on."""
        position = ResealPosition(self._runtime.clock.wall())

        def noted(error: Exception | None) -> None:
            self._asks = self._is_noting = False
            if error is None:
                self._reseal_next, self._has_noted = position, True
                done(Rotated(self._vault.keys.current, is_new))
            else:
                self._problem = str(error)
                done(ApiError(ErrorKind.STORAGE_FAILED, f"the reseal could not be noted: {error}"))
            self._begin_pass()

        self._is_noting = True
        self._reseal_next = self._reseal.stop() or self._reseal_next
        self._reseal.note(position, noted)

    def _look_later(self) -> None:
        wait_ms = min(max(self._options.rotation_interval_ms // 10, LOOK_MS_MIN), LOOK_MS_MAX)
        deadline = Instant(self._runtime.clock.now() + wait_ms * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._look)

    def _look(self) -> None:
        """Rotate if the current key is too old, and the service was not asked for long enough."""
        if self._is_due() and self._phase is RotationPhase.IDLE:
            self.rotate(self.on_due_rotation)
        self._look_later()

    def _is_due(self) -> bool:
        interval_ms = self._options.rotation_interval_ms
        # A service that has no other key is not asked again at every look.
        since_ms = (self._runtime.clock.now() - self._asked_at) // MILLISECOND
        if since_ms < interval_ms // 10:
            return False
        created_ms = self._vault.keys.created_ms
        age_ms = since_ms if created_ms < 0 else self._runtime.clock.wall() - created_ms
        return age_ms >= interval_ms

    def _begin_pass(self) -> None:
        """Have every log under the current master key that is not."""
        if self._is_closed:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._pass += 1
        self._is_passing, self._is_pass_due = True, False
        current = self._vault.keys.current
        self._waiting = deque(one for one in self._all() if _key_of(one) not in (None, current))
        self._total = len(self._waiting)
        self._under_way = 0
        self._has_logs = False
        self._pump()

    def _pump(self) -> None:
        while self._waiting and self._under_way < LOGS_AT_ONCE:
            one = self._waiting.popleft()
            if not one.log.is_open:
                # It was removed: another log may be in its place, with files of the same names.
                continue
            self._under_way += 1
            one.log.renew_keys(partial(self._log_done, one, self._pass))
        if not self._waiting and not self._under_way and not self._has_logs:
            self._has_logs = True
            self._rewrap_files()

    def _log_done(self, one: ScrubbedLog, number: int, error: StorageError | None) -> None:
        if error is None:
            self.metrics.rewrapped.count += 1
        elif one.log.is_open:
            # What is on disk is read at the end of the pass.
            events.warning("encryption.log_not_rewrapped", partition=str(one.name), error=error)
        if number == self._pass and not self._is_closed:
            self._under_way -= 1
            # Not from inside of the call that has begun it.
            self._runtime.timers.soon(lambda: self._pump() if number == self._pass else None)

    def _rewrap_files(self) -> None:
        """What is no log, and then a look at what is on disk, in a thread.

        One at a time: a slow one of an earlier pass could bring back what is under a former key.
        """
        if self._has_thread:
            return
        self._has_thread, number = True, self._pass

        def found(result: tuple[int, KeysInUse]) -> None:
            count, in_use = result
            self.metrics.rewrapped.count += count
            if self._thread_ended(number):
                self._passed(in_use)

        def failed(error: Exception) -> None:
            events.warning("encryption.rewrap_failed", error=error)
            if self._thread_ended(number):
                self._problem = str(error)
                self._again()

        work = partial(_rewrap, self._store, self._store.snapshot_seal())
        self._runtime.spawn.spawn(work, found, failed, ExecutorKind.DISK)

    def _thread_ended(self, number: int) -> bool:
        """Returns whether it was that of the latest pass; otherwise that one has its turn, if it waits."""
        self._has_thread = False
        if number != self._pass and self._has_logs and not self._is_closed:
            self._rewrap_files()
        return number == self._pass

    def _again(self) -> None:
        deadline = Instant(self._runtime.clock.now() + RETRY_NS)
        self._retry = self._runtime.timers.at(deadline, self._begin_pass)

    def _passed(self, in_use: KeysInUse) -> None:
        """Everything was written again once: say which keys are needed still, or not any more."""
        current = self._vault.keys.current
        before, self._in_use = self._in_use, in_use
        self._has_looked = True
        old = {name: paths for name, paths in in_use.items() if name != current}
        self._idle_passes = self._idle_passes + 1 if old and old == _old(before, current) else 0
        if old and self._idle_passes < PASSES_MAX:
            self._again()
            return
        self._is_passing = False
        self._idle_passes = 0
        for name, paths in old.items():
            events.warning("encryption.key_needed", key=name, uses=len(paths), paths=paths[:EXAMPLES_MAX])
        unused = [name for name in self._vault.keys.secrets if name not in in_use and name != current]
        if unused:
            events.info("encryption.keys_not_needed", keys=unused)
        if self._reseal_next is not None and not self._is_noting:
            position, self._reseal_next = self._reseal_next, None
            self._reseal.start(position)

    def _count_resealed(self, count: int) -> None:
        self.metrics.resealed_bytes.count += count

    def _resealed(self) -> None:
        self._resealed_ms = self._runtime.clock.wall()

    def _age_seconds(self) -> float:
        created_ms = self._vault.keys.created_ms
        return -1.0 if created_ms < 0 else (self._runtime.clock.wall() - created_ms) / 1000


def _rewrap(store: EncryptedStore, seal: SnapshotSeal | None) -> tuple[int, KeysInUse]:
    """Have what is no log under the current key; returns how much that was, and what is on disk. Blocks."""
    disk, vault = store.side_disk, store.vault
    count = int(store.directory.rewrap(vault, disk))
    if store.directory.note_tables(vault, disk):
        events.info("encryption.tables_complete")
    if seal is not None:
        count += rewrap_snapshots(disk, seal)
    return count, keys_in_use(disk, store.directory)


def _old(in_use: KeysInUse, current: str) -> KeysInUse:
    return {name: paths for name, paths in in_use.items() if name != current}


def _key_of(one: ScrubbedLog) -> str | None:
    """The master key that the key table of a log is under on disk; None if it has none, or is gone."""
    keys = one.log.keys if one.log.is_open else None
    return None if keys is None else keys.master_key


def _ignore(_: object) -> None:
    """Do nothing: what went wrong was said."""
