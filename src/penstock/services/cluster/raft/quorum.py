"""The metadata quorum on Raft, behind the port of the controller."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from penstock.core.metadata import Fact
from penstock.core.model import MILLISECOND, Instant, LeaderEpoch, Offset, Refused, Why
from penstock.core.raft import (
    Change,
    ChangeMembers,
    Command,
    CommandId,
    CommandResult,
    CommitUpTo,
    Configuration,
    Effect,
    FollowLeader,
    Index,
    LeaderGone,
    Member,
    ProposalAccepted,
    Propose,
    Raft,
    ReadIndex,
    RequestRead,
    StartLeading,
    StopLeading,
    TransferLeadership,
    TransferStarted,
    UseConfiguration,
)
from penstock.runtime import Callback, Runtime, Timer
from penstock.services.cluster.quorum import NotLeading, QuorumEvents, QuorumOptions, QuorumStore
from penstock.services.cluster.raft.codec import decode_facts, encode_facts, facts_end
from penstock.services.cluster.raft.hosting import RaftHost, RaftSetup
from penstock.services.cluster.raft.images import Snapshot
from penstock.services.cluster.raft.recovery import recover

Outcome: TypeAlias = ProposalAccepted | ReadIndex | TransferStarted | Refused
Done: TypeAlias = Callable[[Outcome], None]
CHECKPOINT_LOOK_MS = 1_000
_NOT_LEADING = Refused(Why.NOT_CONTROLLER, "this member does not lead")


class QuorumWatcher(Protocol):
    """Who wants to know who takes part and who leads; told after the step, in order."""

    def members_changed(self, configuration: Configuration) -> None:
        """These take part from now on; also told at the start."""

    def leader_changed(self, leader: Member | None) -> None:
        """Now `leader` leads, or nobody that we know of."""


class RaftQuorum:
    """One member of the metadata quorum.

    What the controller hears of a step comes after the step, for it may propose from within
    what it hears.
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
        self._refusal: Refused | None = None
        # What we proposed need not be read back from its bytes.
        self._proposed: dict[Index, Sequence[Fact]] = {}
        self._news: deque[Callback] = deque()
        self._watchers: list[QuorumWatcher] = []
        self._is_acting = False
        self._is_started = False
        # What is committed and noted; the controller hears of it a little later.
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
        """For those who ask who leads and who takes part."""
        return self._host.raft

    def watch(self, watcher: QuorumWatcher) -> None:
        self._watchers.append(watcher)

    def begin_with(self, founders: Configuration) -> None:
        """Before the start: who founds the quorum, if this directory is new."""
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
            return  # a machine that was built again finds out what we know already
        facts: list[Fact] = []
        for number in range(self._applied + 1, index + 1):
            content = self._host.store.at(Index(number)).content
            if isinstance(content, bytes):
                facts += self._proposed.pop(Index(number), ()) or decode_facts(content)
                self._applied_end = facts_end(content)
        self._applied, end = index, self._applied_end
        self._news.append(lambda: self._committed(index, end, facts))

    def _note_answer(self, ticket: CommandId, outcome: Outcome) -> None:
        done = self._asked.pop(ticket, None)
        if done is not None:
            self._runtime.timers.soon(lambda: done(outcome))
        elif isinstance(outcome, Refused):
            self._refusal = outcome

    def note_snapshot(self, received: Snapshot) -> None:
        self._applied, self._applied_end = received.meta.index, received.end
        self._news.append(lambda: self._restored(received))

    def note_failure(self) -> None:
        self._proposed.clear()
        self._news.append(lambda: self._leader_changed(None))
        for ticket in list(self._asked):
            self._note_answer(ticket, _NOT_LEADING)
        self._news.append(self._lost)

    def act(self) -> None:
        """Let the controller hear what happened; it may ask for more while it does."""
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
        # The image is that of `index` only as long as nothing newer waits to be told.
        is_newest = index == self._applied and index <= min(host.raft.commit, host.raft.persisted)
        if is_newest and host.snapshotting.is_due(end, self._options.snapshot_facts):
            host.snapshotting.take(host.raft.describe_snapshot(index), end, self._events.image)

    def _gained(self, epoch: LeaderEpoch) -> None:
        self.leader_epoch = epoch
        self._events.leadership_gained(epoch)

    def _lost(self) -> None:
        if self.leader_epoch is not None:
            self.leader_epoch = None
            self._events.leadership_lost()

    def _restored(self, received: Snapshot) -> None:
        self.committed = received.end
        self._events.restored(received.image)

    def propose(self, facts: Sequence[Fact], expected_epoch: LeaderEpoch) -> Offset | Refused:
        if self.leader_epoch is None or expected_epoch != self.leader_epoch:
            raise NotLeading(f"this node leads in epoch {self.leader_epoch}, not in {expected_epoch}")
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

    def _take_refusal(self) -> Refused | None:
        """What became of the proposal during the step, if it was not taken."""
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
        """Add, promote or remove one member; `done` hears whether it is in the leader's log, or why not."""
        self._ask(ChangeMembers(self._next_ticket(), change), done)

    def wait_for_nobody(self) -> None:
        """Campaign soon, if nobody has ever led here: the quorum was just founded."""
        raft = self._host.raft
        if raft.term == 0 and raft.leader is None:
            self._host.step(LeaderGone(None))

    def transfer(self, target: Member, done: Done) -> None:
        """Hand leadership over."""
        self._ask(TransferLeadership(self._next_ticket(), target), done)

    def read(self, done: Done) -> None:
        """Make sure that the committed image is fresh: `done` hears when a majority has confirmed it.

        The commit it is confirmed for has been told by then: a leader applies what it commits.
        """
        self._ask(RequestRead(self._next_ticket()), done)

    def close(self) -> None:
        """Take part no more, and close the log."""
        self.leader_epoch = None
        self._news.clear()
        if not self._is_started:
            return
        if self._checkpoint_timer is not None:
            self._checkpoint_timer.cancel()
        self._host.close()
