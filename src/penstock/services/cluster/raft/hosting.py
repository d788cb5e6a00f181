"""The host of the machine: hands events in, carries effects out, and keeps its time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.core.model import MILLISECOND, Instant, NodeId, StorageError
from penstock.core.raft import (
    BLANK_BALLOT,
    EMPTY_CONFIGURATION,
    Configuration,
    Effect,
    EntriesPersisted,
    Event,
    InstallSnapshot,
    LeaderGone,
    Member,
    MessageReceived,
    PersistHardState,
    Raft,
    RaftOptions,
    RecoveredState,
    SendMessage,
    SendSnapshotChunk,
    SnapshotInstalled,
    StoreEntries,
    StoreSnapshotChunk,
    TimePassed,
    TruncateLog,
)
from penstock.core.raft.messages import RaftMessage
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer
from penstock.services.cluster.quorum import QuorumFailed, QuorumStore
from penstock.services.cluster.raft.images import Snapshot
from penstock.services.cluster.raft.links import MemberLinks
from penstock.services.cluster.raft.promises import read_ballot, write_ballot
from penstock.services.cluster.raft.recovery import Found
from penstock.services.cluster.raft.snapshotting import Snapshotting
from penstock.services.peering import PeerHub
from penstock.storage.disk import DiskFull

FULL_DISK_RETRY_MS = 500


@dataclass(frozen=True, slots=True)
class RaftSetup:
    """Who we are, our links to the others, and who founds the quorum if this directory is new.

    Whom the links go to is not the quorum's business; a quorum of one needs none.
    """

    me: Member
    hub: PeerHub | None
    founders: Configuration = EMPTY_CONFIGURATION
    raft: RaftOptions = field(default_factory=RaftOptions)
    raft_type: type[Raft] = Raft


class Noting(Protocol):
    """Who wants to know what the machine does. Takes note during a step, and acts on it afterwards."""

    def note(self, effect: Effect) -> None:
        """An effect that changes nothing on disk or network."""

    def note_snapshot(self, received: Snapshot) -> None:
        """A snapshot from a leader takes the place of everything that was applied."""

    def note_failure(self) -> None:
        """The machine is gone; leadership and everything asked of it with it."""

    def act(self) -> None:
        """The step is over: a new one may begin."""


class RaftHost:
    """Drives one machine on the runtime port. Effects are carried out in their order.

    When the disk is full, the machine is ahead of the disk and of no use any more: it is
    dropped, and another is built from what is there once that is durable.
    """

    def __init__(
        self, runtime: Runtime, place: QuorumStore, setup: RaftSetup, found: Found, noting: Noting
    ) -> None:
        self._runtime = runtime
        self._disk = place.disk
        self._setup = setup
        self._noting = noting
        self._links = None if setup.hub is None else MemberLinks(setup.hub, self._arrived, self._gone)
        self._timer: Timer | None = None
        self._deadline: Instant | None = None
        self._is_closed = False
        self._life = 0
        self.failure: DiskFull | None = None
        self.store = found.store
        self.snapshotting = Snapshotting(runtime.spawn, place.side_disk, found.store, found.facts, found.end)
        self.raft = self._build(found.recovered)

    def _build(self, recovered: RecoveredState) -> Raft:
        setup, now = self._setup, self._runtime.clock.now()
        return setup.raft_type(setup.me, self.store, recovered, self._draw, now, setup.raft)

    def _draw(self, below: int) -> int:
        return int.from_bytes(self._runtime.entropy.bytes(8), "little") % below

    def begin(self) -> None:
        """Take part."""
        self._set_timer()

    def _set_timer(self) -> None:
        deadline = self.raft.next_deadline()
        if deadline == self._deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        self._timer = None if deadline is None else self._runtime.timers.at(deadline, self._time_passed)

    def _time_passed(self) -> None:
        self._deadline = None
        self.step(TimePassed())

    def _arrived(self, sender: Member, message: RaftMessage) -> None:
        # Whoever sends to this directory means the member that we are.
        self.step(MessageReceived(sender, self._setup.me, message))

    def _gone(self, node: NodeId) -> None:
        leader = self.raft.leader
        if leader is not None and leader.node_id == node:
            self.step(LeaderGone(leader))

    def _synced(self, life: int, write: int, error: StorageError | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            raise QuorumFailed(f"the raft log could not be synced: {error}") from error
        if life == self._life:
            self.step(EntriesPersisted(write))

    def _installed(self, life: int, received: Snapshot) -> None:
        if self._is_closed or life != self._life:
            return
        self.store.restart(received.meta, received.end)
        self._noting.note_snapshot(received)
        self.step(SnapshotInstalled(received.meta))

    def step(self, event: Event) -> None:
        if self._is_closed or self.failure is not None:
            return
        try:
            for effect in self.raft.step(event, self._runtime.clock.now()):
                self._carry_out(effect)
        except DiskFull as full:
            self._give_up(full)
            return
        self._set_timer()
        self._noting.act()

    def _carry_out(self, effect: Effect) -> None:
        life = self._life
        match effect:
            case PersistHardState(ballot):
                write_ballot(self._disk, ballot)
            case TruncateLog(start):
                self.store.truncate(start)
            case StoreEntries(entries, write):
                self.store.append(entries, self._runtime.clock.wall())
                self.store.sync(lambda error: self._synced(life, write, error))
            case SendMessage(to, message):
                self._send(to, message)
            case SendSnapshotChunk() | StoreSnapshotChunk() | InstallSnapshot():
                self._handle_snapshot(effect, lambda received: self._installed(life, received))
            case _:
                self._noting.note(effect)

    def _send(self, to: Member, message: RaftMessage) -> None:
        if self._links is not None and not self._is_closed:
            self._links.send(to, message)

    def _handle_snapshot(
        self,
        effect: SendSnapshotChunk | StoreSnapshotChunk | InstallSnapshot,
        installed: Callable[[Snapshot], None],
    ) -> None:
        match effect:
            case SendSnapshotChunk():
                self.snapshotting.send(effect, self._send)
            case StoreSnapshotChunk():
                self.snapshotting.receive(effect)
            case InstallSnapshot():
                self.snapshotting.install(effect, installed)

    def _give_up(self, full: DiskFull) -> None:
        events.warning("quorum.disk_full", error=full)
        self._life += 1
        self.failure = full
        if self._timer is not None:
            self._timer.cancel()
        self._noting.note_failure()
        # Not now: perhaps we are in the middle of a proposal.
        self._runtime.timers.soon(self._noting.act)
        # What is written but not synced must be durable before a new machine may count on it.
        self.store.sync(self._try_again_later)

    def _try_again_later(self, error: StorageError | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            raise QuorumFailed(f"the raft log could not be synced: {error}") from error
        deadline = Instant(self._runtime.clock.now() + FULL_DISK_RETRY_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._begin_again)

    def _begin_again(self) -> None:
        ballot = read_ballot(self._disk) or BLANK_BALLOT
        self.raft = self._build(RecoveredState(ballot, self.store.configurations()))
        self.failure = self._deadline = None
        self._set_timer()

    def close(self) -> None:
        """Take part no more, and close the log."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.snapshotting.close()
        self.store.log.close()
