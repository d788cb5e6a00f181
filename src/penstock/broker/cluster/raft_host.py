"""The metadata quorum of several controllers: Raft, hosted on the runtime port and the storage layer.

    Controller ── propose ──► RaftQuorum ──► RaftHost ── step ──► core.raft.Raft
         ▲                        ▲              │ effects, in order
         │                        │              ├── raft_storage    log, hard state synced before a vote
         │                        │              ├── RaftTransport   frames to the other members
         └─ facts, leadership ────┴── note, act ─┴── raft_snapshots  snapshots, off the loop

One proposal is one entry, so its facts are committed together or not at all. Every entry carries
the number of facts up to it, because offsets of the port count facts while Raft counts entries.

What is on disk at a start is recovered by `raft_recovery`.

Left out: who the initial members are, and where members listen (see `bootstrap` and
`node_addresses`); authentication of peers beyond the handshake.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from penstock.broker.cluster.peers import BasePeerWatcher, Channel, Peer, PeerManager
from penstock.broker.cluster.quorum import (
    NotQuorumLeader,
    QuorumEvents,
    QuorumFailed,
    QuorumOptions,
    QuorumStore,
)
from penstock.broker.cluster.raft_codec import (
    check_entries,
    decode_facts,
    decode_message,
    encode_facts,
    encode_message,
    facts_end,
)
from penstock.broker.cluster.raft_log_repair import RaftLogRepair
from penstock.broker.cluster.raft_recovery import RecoveredQuorum, recover, recover_state
from penstock.broker.cluster.raft_snapshots import SnapshotManager
from penstock.broker.cluster.raft_storage import (
    MetadataSnapshot,
    SnapshotSeal,
    check_hard_state,
    write_hard_state,
)
from penstock.core.metadata import Fact
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    ErrorKind,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    ProtocolError,
    StorageError,
)
from penstock.core.raft import (
    EMPTY_CONFIGURATION,
    Change,
    ChangeMembers,
    Command,
    CommandId,
    CommandResult,
    CommitUpTo,
    Configuration,
    Effect,
    EntriesPersisted,
    Event,
    FollowLeader,
    HardState,
    Index,
    InstallSnapshot,
    LeaderGone,
    Member,
    MessageReceived,
    PersistHardState,
    ProposalAccepted,
    Propose,
    Raft,
    RaftOptions,
    ReadIndex,
    RecoveredState,
    ReportBlockedElection,
    RequestRead,
    SendMessage,
    SendSnapshotChunk,
    SnapshotInstalled,
    SnapshotMeta,
    SnapshotRejected,
    StartLeading,
    StopLeading,
    StoreEntries,
    StoreSnapshotChunk,
    TimePassed,
    TransferLeadership,
    TransferStarted,
    TruncateLog,
    UseConfiguration,
)
from penstock.core.raft.messages import AppendRequest, RaftMessage
from penstock.observability import log as events
from penstock.runtime import Callback, CloseReason, ExecutorKind, Runtime, Timer
from penstock.storage.disk import DiskFull

Arrival: TypeAlias = Callable[[Member, RaftMessage], None]
FULL_DISK_RETRY_MS = 500
BLOCKED_REMINDER_NS = 5 * SECOND
CommandOutcome: TypeAlias = ProposalAccepted | ReadIndex | TransferStarted | ApiError
Done: TypeAlias = Callable[[CommandOutcome], None]
CHECKPOINT_LOOK_MS = 1_000
# Members that are not dialled are few; anybody can say that they are one.
SENDERS_MAX = 32
_NOT_LEADING = ApiError(ErrorKind.NOT_CONTROLLER, "this member does not lead")


class RaftTransport(BasePeerWatcher):
    """Sends messages to members, and receives theirs.

    A message goes out only if the node at the other end has the directory that it is meant
    for; what cannot be sent is lost, as on any network.

    Who is dialled follows from the members that our log names. They may be old: a leader or candidate
    that became one since gets its responses on the link that it dialled.
    """

    def __init__(self, hub: PeerManager, arrived: Arrival, gone: Callable[[NodeId], None]) -> None:
        self._peers = hub
        self._arrived = arrived
        self._gone = gone
        self._senders: dict[NodeId, Peer] = {}
        hub.serve(Channel.RAFT, self)
        hub.watch(self)

    def send(self, to: Member, message: RaftMessage) -> None:
        identity = self._peers.identity_of(to.node_id)
        if identity is None:
            sender = self._senders.get(to.node_id)
            if sender is not None and sender.directory_id == to.directory_id:
                sender.send(encode_message(message))
        elif identity.directory_id == to.directory_id:
            self._peers.send(Channel.RAFT, to.node_id, encode_message(message))

    def received(self, peer: Peer, frame: memoryview) -> None:
        try:
            message = decode_message(frame)
        except ProtocolError as wrong:
            events.warning("quorum.bad_message", peer=peer.node_id, reason=str(wrong))
            return
        self._note_sender(peer)
        self._arrived(Member(peer.node_id, peer.directory_id), message)

    def _note_sender(self, peer: Peer) -> None:
        if self._peers.identity_of(peer.node_id) is not None:
            self._senders.pop(peer.node_id, None)
            return
        self._senders[peer.node_id] = peer
        if len(self._senders) > SENDERS_MAX:
            del self._senders[next(iter(self._senders))]

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        # A refused connection means that the process ended, unless it still has a link to us.
        if ending is CloseReason.REFUSED and not self._peers.hears(node):
            self._gone(node)


@dataclass(frozen=True, slots=True)
class RaftSetup:
    """The member, its links to the others, and the initial members if this directory is new.

    Which links exist is decided elsewhere; a quorum of one needs none.
    """

    me: Member
    peers: PeerManager | None
    founders: Configuration = EMPTY_CONFIGURATION
    raft: RaftOptions = field(default_factory=RaftOptions)
    raft_type: type[Raft] = Raft


class RaftObserver(Protocol):
    """Is notified of what the machine does: it notes effects during a step, and acts afterwards."""

    def note(self, effect: Effect) -> None:
        """An effect that changes nothing on disk or network."""

    def note_snapshot(self, received: MetadataSnapshot) -> None:
        """A snapshot from a leader takes the place of everything that was applied."""

    def snapshot_damaged(self) -> None:
        """The newest snapshot cannot be read: another one is wanted soon."""

    def note_failure(self) -> None:
        """The machine was dropped, and with it leadership and pending commands."""

    def act(self) -> None:
        """The step is over: a new one may begin."""


class RaftHost:
    """Drives one machine on the runtime port. Effects are carried out in their order.

    When the disk is full, the machine is ahead of the disk and cannot be used: it is dropped, and
    another is built from what is on disk, once that is durable.
    """

    def __init__(
        self,
        runtime: Runtime,
        place: QuorumStore,
        setup: RaftSetup,
        found: RecoveredQuorum,
        noting: RaftObserver,
    ) -> None:
        self._runtime = runtime
        self._disk = place.disk
        self._setup = setup
        self._noting = noting
        self._links = None if setup.peers is None else RaftTransport(setup.peers, self._arrived, self._gone)
        self._timer: Timer | None = None
        self._deadline: Instant | None = None
        self._is_closed = False
        self._incarnation = 0
        self._blocked_until = Instant(0)
        self.failure: DiskFull | None = None
        self.store = found.store
        self.snapshotting = SnapshotManager(
            runtime.spawn, place.side_disk, found.store, found.facts, found.end, noting.snapshot_damaged
        )
        self.log_repair = RaftLogRepair(runtime, place.side_disk, found.store)
        self._side_disk = place.side_disk
        self.raft = self._build(found.recovered)
        self._is_doubtful = self.raft.is_doubtful

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
        # The transport has checked that the message is for this directory.
        if self._is_closed or self.failure is not None:
            return
        problem = self.raft.problem_with(sender, message)
        if problem is not None:
            raise ProtocolError(f"{type(message).__name__}: {problem}")
        if isinstance(message, AppendRequest):
            check_entries(message.entries)
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
        if life == self._incarnation:
            self.step(EntriesPersisted(write))

    def _installed(self, life: int, received: MetadataSnapshot) -> None:
        if self._is_closed or life != self._incarnation:
            return
        self.store.restart(received.meta, received.end)
        self._noting.note_snapshot(received)
        self.step(SnapshotInstalled(received.meta))

    def _rejected(self, life: int, snapshot: SnapshotMeta) -> None:
        if not self._is_closed and life == self._incarnation:
            self.step(SnapshotRejected(snapshot))

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
        life = self._incarnation
        match effect:
            case PersistHardState(ballot):
                self._persist(ballot)
            case ReportBlockedElection():
                self._report_blocked(effect)
            case TruncateLog(start):
                self.store.truncate(start)
            case StoreEntries(entries, write):
                self.store.append(entries, self._runtime.clock.wall())
                self.store.sync(lambda error: self._synced(life, write, error))
            case SendMessage(to, message):
                self._send(to, message)
            case SendSnapshotChunk() | StoreSnapshotChunk() | InstallSnapshot():
                self._handle_snapshot(effect)
            case _:
                self._noting.note(effect)

    def _persist(self, ballot: HardState) -> None:
        write_hard_state(self._disk, ballot)
        if self._is_doubtful and ballot.doubt is None:
            events.info("quorum.doubt_over", term=self.raft.term, commit=self.raft.commit)
        self._is_doubtful = ballot.doubt is not None

    def _report_blocked(self, effect: ReportBlockedElection) -> None:
        now = self._runtime.clock.now()
        if now < self._blocked_until:
            return
        self._blocked_until = Instant(now + BLOCKED_REMINDER_NS)
        events.warning(
            "quorum.election_blocked",
            doubtful=[member.node_id for member in effect.doubtful],
            missing=[member.node_id for member in effect.missing],
            reason="voters have lost entries that may be committed: a leader needs the votes of all",
        )

    def _send(self, to: Member, message: RaftMessage) -> None:
        if self._links is not None and not self._is_closed:
            self._links.send(to, message)

    def _handle_snapshot(self, effect: SendSnapshotChunk | StoreSnapshotChunk | InstallSnapshot) -> None:
        life = self._incarnation
        match effect:
            case SendSnapshotChunk():
                self.snapshotting.send(effect, self._send)
            case StoreSnapshotChunk():
                self.snapshotting.receive(effect)
            case InstallSnapshot():
                self.snapshotting.install(
                    effect,
                    lambda received: self._installed(life, received),
                    lambda: self._rejected(life, effect.snapshot),
                )

    def _give_up(self, full: DiskFull) -> None:
        events.warning("quorum.disk_full", error=full)
        self._incarnation += 1
        self.failure = full
        if self._timer is not None:
            self._timer.cancel()
        self._noting.note_failure()
        # Not now: this may be in the middle of a proposal.
        self._runtime.timers.soon(self._noting.act)
        # What is written must be synced before a new machine may rely on it.
        self.store.sync(self._try_again_later)

    def _try_again_later(self, error: StorageError | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            raise QuorumFailed(f"the raft log could not be synced: {error}") from error
        deadline = Instant(self._runtime.clock.now() + FULL_DISK_RETRY_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._begin_again)

    def _begin_again(self) -> None:
        self.raft = self._build(recover_state(self._disk, self.store))
        self.failure = self._deadline = None
        self._set_timer()

    def verify_hard_state(self) -> None:
        """Read the hard state in a thread, and write it once more if it cannot be read."""

        def failed(error: Exception) -> None:
            hard_state = self.raft.hard_state
            if self._is_closed or self.failure is not None or hard_state is None:
                return
            events.error("quorum.hard_state_damaged", term=hard_state.term, reason=str(error))
            try:
                write_hard_state(self._disk, hard_state)
            except StorageError as refused:
                # The next vote meets the same disk.
                events.warning("quorum.hard_state_not_written", error=refused)

        disk = self._side_disk
        self._runtime.spawn.spawn(lambda: check_hard_state(disk), _ignore, failed, ExecutorKind.DISK)

    def close(self) -> None:
        """Stop taking part, and close the log."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.snapshotting.close()
        self.log_repair.close()
        self.store.log.close()


def _ignore(_: None) -> None:
    """Do nothing: the file is as it should be."""


class QuorumWatcher(Protocol):
    """Is notified of members and leaders; after the step, in order."""

    def members_changed(self, configuration: Configuration) -> None:
        """These are the members from now on; also called at the start."""

    def leader_changed(self, leader: Member | None) -> None:
        """`leader` leads now; None if no leader is known."""


class RaftQuorum:
    """One member of the metadata quorum.

    The controller is notified after a step, not during it, because it may propose inside the
    callback.
    """

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
        self._events: QuorumEvents
        self._host: RaftHost
        self._checkpoint_timer: Timer | None = None
        self._tickets = 0
        self._asked: dict[CommandId, Done] = {}
        self._refusal: ApiError | None = None
        # Facts proposed here need not be decoded from the log.
        self._proposed: dict[Index, Sequence[Fact]] = {}
        self._news: deque[Callback] = deque()
        self._watchers: list[QuorumWatcher] = []
        self._is_acting = False
        self._is_started = False
        # What is committed and noted; the controller is notified a little later.
        self._applied, self._applied_end = Index(0), Offset(0)
        self.leader_epoch: LeaderEpoch | None = None
        self.committed = Offset(0)

    @property
    def end(self) -> Offset:
        return self._host.store.end

    @property
    def me(self) -> Member:
        return self._setup.me

    @property
    def raft(self) -> Raft:
        """The machine, to read leader and members from."""
        return self._host.raft

    def watch(self, watcher: QuorumWatcher) -> None:
        self._watchers.append(watcher)

    def set_bootstrap_configuration(self, founders: Configuration) -> None:
        """Set the initial members, used if this directory is new; before `start`."""
        self._setup = replace(self._setup, founders=founders)

    def start(self, events: QuorumEvents) -> None:
        """Recover, and take part."""
        self._events = events
        ticks = self._runtime.clock.now
        found = recover(self._place, self._setup.founders, self._options, ticks, joined=self._joined)
        self._applied, self._applied_end = found.store.snapshot.index, found.end
        self.committed = found.end
        self._host = RaftHost(self._runtime, self._place, self._setup, found, self)
        self._is_started = True
        self._look_for_checkpoints()
        events.restored(found.image)
        self._members_changed(self._host.raft.configuration)
        self._host.begin()

    def _look_for_checkpoints(self) -> None:
        now = self._runtime.clock.now()
        self._host.store.log.maybe_checkpoint(now)
        deadline = Instant(now + CHECKPOINT_LOOK_MS * MILLISECOND)
        self._checkpoint_timer = self._runtime.timers.at(deadline, self._look_for_checkpoints)

    def note(self, effect: Effect) -> None:
        match effect:
            case CommitUpTo(index):
                self._note_commit(index)
            case StartLeading(term):
                self._news.append(lambda: self._gained(LeaderEpoch(term)))
            case StopLeading():
                self._proposed.clear()
                self._news.append(self._lost)
            case CommandResult(ticket, outcome):
                self._note_answer(ticket, outcome)
            case UseConfiguration(configuration):
                self._news.append(lambda: self._members_changed(configuration))
            case FollowLeader(_, leader):
                self._news.append(lambda: self._leader_changed(leader))
            case _:
                pass

    def _members_changed(self, configuration: Configuration) -> None:
        for watcher in self._watchers:
            watcher.members_changed(configuration)

    def _leader_changed(self, leader: Member | None) -> None:
        for watcher in self._watchers:
            watcher.leader_changed(leader)

    def _note_commit(self, index: Index) -> None:
        if index <= self._applied:
            return  # a rebuilt machine repeats commits that are known already
        facts: list[Fact] = []
        for number in range(self._applied + 1, index + 1):
            content = self._host.store.at(Index(number)).content
            if isinstance(content, bytes):
                facts += self._proposed.pop(Index(number), ()) or decode_facts(content)
                self._applied_end = facts_end(content)
        self._applied, end = index, self._applied_end
        self._news.append(lambda: self._committed(index, end, facts))

    def _note_answer(self, ticket: CommandId, outcome: CommandOutcome) -> None:
        done = self._asked.pop(ticket, None)
        if done is not None:
            self._runtime.timers.soon(lambda: done(outcome))
        elif isinstance(outcome, ApiError):
            self._refusal = outcome

    def note_snapshot(self, received: MetadataSnapshot) -> None:
        self._applied, self._applied_end = received.meta.index, received.end
        self._news.append(lambda: self._restored(received))

    def note_failure(self) -> None:
        self._proposed.clear()
        self._news.append(lambda: self._leader_changed(None))
        for ticket in list(self._asked):
            self._note_answer(ticket, _NOT_LEADING)
        self._news.append(self._lost)

    def act(self) -> None:
        """Notify the controller of what happened; it may propose meanwhile."""
        if self._is_acting:
            return
        self._is_acting = True
        while self._news:
            self._news.popleft()()
        self._is_acting = False

    def _committed(self, index: Index, end: Offset, facts: Sequence[Fact]) -> None:
        host = self._host
        self.committed = end
        host.store.log.set_high_watermark(Offset(index))
        if facts:
            self._events.facts_committed(facts)
        # The image is that of `index` only while nothing newer waits to be delivered.
        is_newest = index == self._applied and index <= min(host.raft.commit, host.raft.persisted)
        if is_newest and host.snapshotting.is_due(end, self._options.snapshot_facts):
            host.snapshotting.take(host.raft.describe_snapshot(index), end, self._events.image)

    def snapshot_damaged(self) -> None:
        host, index = self._host, self._applied
        # Otherwise the next commit takes it: the image is not that of `index`, or the log not durable.
        if not self._news and index <= min(host.raft.commit, host.raft.persisted):
            meta = host.raft.describe_snapshot(index)
            host.snapshotting.take(meta, self._applied_end, self._events.image)

    def _gained(self, epoch: LeaderEpoch) -> None:
        self.leader_epoch = epoch
        self._events.leadership_gained(epoch)

    def _lost(self) -> None:
        if self.leader_epoch is not None:
            self.leader_epoch = None
            self._events.leadership_lost()

    def _restored(self, received: MetadataSnapshot) -> None:
        self.committed = received.end
        self._events.restored(received.image)

    def propose(self, facts: Sequence[Fact], expected_epoch: LeaderEpoch) -> Offset | ApiError:
        if self.leader_epoch is None or expected_epoch != self.leader_epoch:
            raise NotQuorumLeader(f"this node leads in epoch {self.leader_epoch}, not in {expected_epoch}")
        store = self._host.store
        index, end = Index(store.last + 1), Offset(store.end + len(facts))
        self._refusal = None
        self._host.step(Propose(self._next_ticket(), (encode_facts(end, facts),)))
        if self._host.failure is not None:
            raise self._host.failure
        refused = self._take_refusal()
        if refused is None:
            self._proposed[index] = facts
        return refused or end

    def _take_refusal(self) -> ApiError | None:
        """The error of the proposal during the step, if it was not taken."""
        refused, self._refusal = self._refusal, None
        return refused

    def _next_ticket(self) -> CommandId:
        self._tickets += 1
        return CommandId(self._tickets)

    def _ask(self, command: Command, done: Done) -> None:
        self._asked[command.ticket] = done
        if self._host.failure is None:
            self._host.step(command)
        else:
            self._note_answer(command.ticket, _NOT_LEADING)

    def change_members(self, change: Change, done: Done) -> None:
        """Add, promote or remove one member; `done` gets whether it is in the leader's log, or the error."""
        self._ask(ChangeMembers(self._next_ticket(), change), done)

    def campaign_soon(self) -> None:
        """Campaign soon, if there was never a leader: the quorum was just bootstrapped."""
        raft = self._host.raft
        if raft.term == 0 and raft.leader is None:
            self._host.step(LeaderGone(None))

    def verify_files(self) -> None:
        """Check the snapshots and the hard state on disk, and replace what is damaged."""
        if self._host.failure is None:
            self._host.snapshotting.verify()
            self._host.verify_hard_state()

    @property
    def scrubbed_log(self) -> RaftLogRepair:
        """The log, to be verified while this member takes part."""
        return self._host.log_repair

    @property
    def snapshot_seal(self) -> SnapshotSeal | None:
        """How its snapshots are encrypted, if they are."""
        return self._host.store.seal

    def transfer(self, target: Member, done: Done) -> None:
        """Hand leadership over."""
        self._ask(TransferLeadership(self._next_ticket(), target), done)

    def read(self, done: Done) -> None:
        """Make sure that the committed image is fresh: `done` is called when a majority has confirmed it.

        The confirmed commit has been delivered by then: a leader applies what it commits.
        """
        self._ask(RequestRead(self._next_ticket()), done)

    def confirm(self, done: Callable[[bool], None]) -> None:
        self.read(lambda outcome: done(isinstance(outcome, ReadIndex)))

    def close(self) -> None:
        """Stop taking part, and close the log."""
        self.leader_epoch = None
        self._news.clear()
        if not self._is_started:
            return
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        self._host.close()
