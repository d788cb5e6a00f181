"""The metadata quorum on Raft: hosts the machine, and carries out what it says."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.metadata import Fact
from penstock.core.model import MILLISECOND, Instant, LeaderEpoch, NodeId, Offset, StorageError
from penstock.core.raft import (
    BLANK_BALLOT,
    NOBODY,
    Accepted,
    Answer,
    CommitUpTo,
    Configuration,
    Effect,
    Event,
    Index,
    InstallSnapshot,
    Member,
    PersistBallot,
    Persisted,
    Propose,
    Raft,
    RaftOptions,
    Received,
    Recovered,
    Refused,
    Send,
    SendSnapshotChunk,
    SnapshotInstalled,
    StartLeading,
    StopLeading,
    StoreChunk,
    StoreEntries,
    Ticket,
    TimePassed,
    TruncateLog,
    UseConfiguration,
)
from penstock.core.raft.messages import Message
from penstock.observability import log as events
from penstock.runtime import Address, Callback, Runtime, Timer
from penstock.services.cluster.quorum import NotLeading, QuorumBusy, QuorumEvents, QuorumFailed
from penstock.services.cluster.raft.codec import decode_facts, encode_facts, facts_end
from penstock.services.cluster.raft.images import Snapshot
from penstock.services.cluster.raft.links import MemberLinks
from penstock.services.cluster.raft.promises import read_ballot, write_ballot
from penstock.services.cluster.raft.recovery import recover
from penstock.services.cluster.raft.snapshotting import Snapshotting
from penstock.services.cluster.raft.store import RaftStore
from penstock.services.cluster.solo import CHECKPOINT_LOOK_MS, QuorumOptions, QuorumStore
from penstock.storage.disk import DiskFull

FULL_DISK_RETRY_MS = 500


@dataclass(frozen=True, slots=True)
class RaftSetup:
    """Who we are, where everybody listens, and who founds the quorum if this directory is new."""

    me: Member
    addresses: Mapping[NodeId, Address]
    founders: Configuration = NOBODY
    raft: RaftOptions = field(default_factory=RaftOptions)


class RaftQuorum:
    """One member of the metadata quorum, behind the same port as a quorum of one.

    Effects are carried out in order; what the controller hears of them comes after, when a
    new step may begin: it may propose from within what it hears.
    """

    raft_type = Raft

    def __init__(
        self,
        runtime: Runtime,
        place: QuorumStore,
        setup: RaftSetup,
        *,
        joined: bool,
        options: QuorumOptions | None = None,
    ) -> None:
        self._runtime = runtime
        self._place = place
        self._setup = setup
        self._joined = joined
        self._options = options or QuorumOptions()
        self._links = MemberLinks(runtime, setup.me, setup.addresses, self._arrived)
        self._events: QuorumEvents
        self._raft: Raft
        self._store: RaftStore
        self._snapshotting: Snapshotting
        self._timer: Timer | None = None
        self._deadline: Instant | None = None
        self._checkpoint_timer: Timer | None = None
        self._tickets = 0
        self._answers: dict[Ticket, Answer] = {}
        # What we proposed need not be read back from its bytes.
        self._proposed: dict[Index, Sequence[Fact]] = {}
        self._news: deque[Callback] = deque()
        self._is_telling = False
        self._is_closed = False
        # Machines are built again when the disk was full; `_failure` is why there is none now.
        self._life = 0
        self._failure: DiskFull | None = None
        # What is committed and noted; the controller hears of it a little later.
        self._applied, self._applied_end = Index(0), Offset(0)
        self.leader_epoch: LeaderEpoch | None = None
        self.committed = Offset(0)

    @property
    def end(self) -> Offset:
        return self._store.end

    @property
    def raft(self) -> Raft:
        """For those who ask who leads and who takes part."""
        return self._raft

    def start(self, host: QuorumEvents) -> None:
        """Recover, listen, and take part."""
        self._events = host
        now = self._runtime.clock.now
        found = recover(self._place, self._setup.founders, self._options, now, joined=self._joined)
        self._store = found.store
        self._snapshotting = Snapshotting(
            self._runtime.spawn,
            self._place.side_disk,
            found.store,
            self._options.snapshot_facts,
            found.facts,
        )
        self._snapshotting.begin_from(found.end)
        self._applied, self._applied_end = found.store.snapshot.index, found.end
        self.committed = found.end
        self._raft = self._build(found.recovered)
        self._links.listen()
        self._links.keep(self._raft.configuration.members)
        self._look_for_checkpoints()
        host.restored(found.image)
        self._set_timer()

    def _build(self, recovered: Recovered) -> Raft:
        now = self._runtime.clock.now()
        return self.raft_type(self._setup.me, self._store, recovered, self._draw, now, self._setup.raft)

    def _draw(self, below: int) -> int:
        return int.from_bytes(self._runtime.entropy.bytes(8), "little") % below

    def _look_for_checkpoints(self) -> None:
        now = self._runtime.clock.now()
        self._store.log.maybe_checkpoint(now)
        deadline = Instant(now + CHECKPOINT_LOOK_MS * MILLISECOND)
        self._checkpoint_timer = self._runtime.timers.at(deadline, self._look_for_checkpoints)

    def _set_timer(self) -> None:
        deadline = self._raft.next_deadline()
        if deadline == self._deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._deadline = deadline
        self._timer = None if deadline is None else self._runtime.timers.at(deadline, self._time_passed)

    def _time_passed(self) -> None:
        self._deadline = None
        self._step(TimePassed())

    def _arrived(self, sender: Member, message: Message) -> None:
        # Whoever sends to this directory means the member that we are.
        self._step(Received(sender, self._setup.me, message))

    def _synced(self, life: int, write: int, error: StorageError | None) -> None:
        if error is not None and not self._is_closed:
            raise QuorumFailed(f"the raft log could not be synced: {error}") from error
        if life == self._life:
            self._step(Persisted(write))

    def _step(self, event: Event) -> None:
        if self._is_closed or self._failure is not None:
            return
        try:
            for effect in self._raft.step(event, self._runtime.clock.now()):
                self._carry_out(effect)
        except DiskFull as full:
            self._give_up(full)
            return
        self._set_timer()
        self._tell()

    def _give_up(self, full: DiskFull) -> None:
        """An effect could not be carried out: the machine is ahead of the disk, and of no use any more."""
        events.warning("quorum.disk_full", error=full)
        self._life += 1
        self._failure = full
        self._answers.clear()
        self._proposed.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._news.append(self._lost)
        self._runtime.timers.soon(self._tell)
        # What is written but not synced must be durable before a new machine may count on it.
        self._store.sync(self._try_again_later)

    def _try_again_later(self, error: StorageError | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            raise QuorumFailed(f"the raft log could not be synced: {error}") from error
        deadline = Instant(self._runtime.clock.now() + FULL_DISK_RETRY_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._begin_again)

    def _begin_again(self) -> None:
        ballot = read_ballot(self._place.disk) or BLANK_BALLOT
        self._raft = self._build(Recovered(ballot, self._store.configurations()))
        self._failure = self._deadline = None
        self._set_timer()

    def _tell(self) -> None:
        """Let the controller hear what happened; it may ask for more while it does."""
        if self._is_telling:
            return
        self._is_telling = True
        while self._news and not self._is_closed:
            self._news.popleft()()
        self._is_telling = False

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case PersistBallot(ballot):
                write_ballot(self._place.disk, ballot)
            case TruncateLog(start):
                self._store.truncate(start)
            case StoreEntries(entries, write):
                self._store.append(entries, self._runtime.clock.wall())
                life = self._life
                self._store.sync(lambda error: self._synced(life, write, error))
            case Send(to, message):
                self._links.send(to, message)
            case SendSnapshotChunk():
                self._snapshotting.send(effect, self._links)
            case StoreChunk():
                self._snapshotting.receive(effect)
            case InstallSnapshot():
                life = self._life
                self._snapshotting.install(effect, lambda received: self._installed(life, received))
            case _:
                self._note(effect)

    def _note(self, effect: Effect) -> None:
        match effect:
            case CommitUpTo(index):
                self._note_commit(index)
            case UseConfiguration(configuration):
                self._links.keep(configuration.members)
            case StartLeading(term):
                self._news.append(lambda: self._gained(LeaderEpoch(term)))
            case StopLeading():
                self._proposed.clear()
                self._news.append(self._lost)
            case Answer(ticket):
                self._answers[ticket] = effect
            case _:
                pass

    def _note_commit(self, index: Index) -> None:
        if index <= self._applied:
            return  # a machine that was built again finds out what we know already
        facts: list[Fact] = []
        for number in range(self._applied + 1, index + 1):
            content = self._store.at(Index(number)).content
            if isinstance(content, bytes):
                facts += self._proposed.pop(Index(number), ()) or decode_facts(content)
                self._applied_end = facts_end(content)
        self._applied, end = index, self._applied_end
        self._news.append(lambda: self._committed(index, end, facts))

    def _committed(self, index: Index, end: Offset, facts: Sequence[Fact]) -> None:
        self.committed = end
        self._store.log.set_high_watermark(Offset(index))
        if facts:
            self._events.facts_committed(facts)
        # The image is that of `index` only as long as nothing newer waits to be told.
        if index == self._applied <= self._raft.persisted and self._snapshotting.is_due(self.committed):
            meta = self._raft.describe_snapshot(index)
            self._snapshotting.take(meta, self.committed, self._events.image)

    def _gained(self, epoch: LeaderEpoch) -> None:
        self.leader_epoch = epoch
        self._events.leadership_gained(epoch)

    def _lost(self) -> None:
        if self.leader_epoch is not None:
            self.leader_epoch = None
            self._events.leadership_lost()

    def _installed(self, life: int, received: Snapshot) -> None:
        if self._is_closed or life != self._life:
            return
        self._store.restart(received.meta, received.end)
        self._news.append(lambda: self._restored(received))
        self._applied, self._applied_end = received.meta.index, received.end
        self._step(SnapshotInstalled(received.meta))

    def _restored(self, received: Snapshot) -> None:
        self.committed = received.end
        self._events.restored(received.image)

    def propose(self, facts: Sequence[Fact], expected_epoch: LeaderEpoch) -> Offset:
        if self.leader_epoch is None or expected_epoch != self.leader_epoch:
            raise NotLeading(f"this node leads in epoch {self.leader_epoch}, not in {expected_epoch}")
        self._tickets += 1
        ticket = Ticket(self._tickets)
        end = Offset(self._store.end + len(facts))
        self._step(Propose(ticket, (encode_facts(end, facts),)))
        if self._failure is not None:
            raise self._failure
        outcome = self._answers.pop(ticket).outcome
        if isinstance(outcome, Refused):
            raise QuorumBusy(f"nothing was appended: {outcome.why.value}")
        assert isinstance(outcome, Accepted)
        self._proposed[outcome.start] = facts
        return end

    def close(self) -> None:
        """Take part no more, and close the log."""
        self._is_closed = True
        self.leader_epoch = None
        for timer in (self._timer, self._checkpoint_timer):
            if timer is not None:
                timer.cancel()
        self._links.close()
        self._snapshotting.close()
        self._store.log.close()
