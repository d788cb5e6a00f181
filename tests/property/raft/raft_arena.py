"""Raft members on a small deterministic network: the host of bare machines."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from penstock.core.model import MILLISECOND, Instant, NodeId
from penstock.core.raft import (
    ChangeMembers,
    CommandId,
    CommandResult,
    CommitUpTo,
    Configuration,
    Effect,
    EntriesPersisted,
    Event,
    FollowLeader,
    Index,
    InstallSnapshot,
    Member,
    MessageReceived,
    PersistHardState,
    ProposalAccepted,
    Propose,
    Raft,
    RaftOptions,
    ReadIndex,
    RequestRead,
    SendMessage,
    SendSnapshotChunk,
    SnapshotInstalled,
    SnapshotMeta,
    SnapshotRejected,
    StoreEntries,
    StoreSnapshotChunk,
    TimePassed,
    TransferLeadership,
    TruncateLog,
)
from penstock.core.raft.messages import RaftMessage, SnapshotChunk
from penstock.core.raft.types import Change
from penstock.sim.checkers.quorum import QuorumChecker
from tests.property.raft.raft_store import MemoryStore, State

# Small enough that every limit is met within a few seconds of virtual time.
OPTIONS = RaftOptions(
    election_ms=300,
    heartbeat_ms=60,
    append_bytes_max=150,
    appends_in_flight_max=3,
    uncommitted_bytes_max=4_000,
    chunk_bytes=40,
    promotion_lag_max=5,
)
SNAPSHOT_EVERY = 25


class Crashed(Exception):
    """The process ended in the middle of a step's effects."""


@dataclass
class Weather:
    """How messages and disks fare."""

    delay_ms: int = 5
    loss: float = 0.0
    duplicate: float = 0.0
    sync_ms: int = 4
    crash_in_step: float = 0.0
    rotten_snapshot: float = 0.0


class Arena:
    """Virtual time, the network, and the members on it. A run is a function of its seed."""

    def __init__(self, seed: int | str, raft_type: type[Raft] = Raft, options: RaftOptions = OPTIONS) -> None:
        self.luck = random.Random(seed)
        self.raft_type = raft_type
        self.options = options
        self.now = 0
        self.steps = 0
        self.checker = QuorumChecker()
        self.network_faults = Weather()
        self.hosts: dict[int, Host] = {}
        self.cuts: dict[tuple[int, int], None] = {}
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0

    def found(self, voters: int) -> None:
        """Start a quorum of nodes 1 to `voters`."""
        members = tuple(member_of(number) for number in range(1, voters + 1))
        for member in members:
            self.add(member, Configuration(members))

    def add(self, member: Member, configuration: Configuration | None = None) -> "Host":
        host = Host(self, member, MemoryStore(configuration))
        self.hosts[member.node_id] = host
        host.start()
        return host

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + int(delay_ms * MILLISECOND), action, *arguments)

    def at(self, moment: int, action: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (moment, self._sequence, action, arguments))

    def run(self, duration_ms: int, until: Callable[[], bool] | None = None) -> None:
        end = self.now + duration_ms * MILLISECOND
        while self._heap and self._heap[0][0] <= end:
            if self.checker.anomalies or (until is not None and until()):
                return
            self.now, _, action, arguments = heapq.heappop(self._heap)
            action(*arguments)
        self.now = end

    def carry(self, sender: Member, to: Member, message: RaftMessage) -> None:
        weather, luck = self.network_faults, self.luck
        copies = 1 + (luck.random() < weather.duplicate) - (luck.random() < weather.loss)
        for _ in range(copies):
            self.after(luck.random() * weather.delay_ms, self._arrive, sender, to, message)

    def _arrive(self, sender: Member, to: Member, message: RaftMessage) -> None:
        if (sender.node_id, to.node_id) not in self.cuts and to.node_id in self.hosts:
            # Mis-addressed on purpose if the directory is another one by now.
            self.hosts[to.node_id].step(MessageReceived(sender, to, message))

    def lose_tail(self, host: "Host") -> None:
        """A node's disk loses entries; one whole copy of what is committed stays somewhere else."""
        host.crash()
        committed = self.checker.content()
        others = [other.store for other in self.hosts.values() if other is not host]
        if committed and any(store.holds(committed[-1]) for store in others):
            host.store.lose_tail(self.luck.choice((1, 2, 5, 50)))

    def lose_ballot(self, host: "Host") -> None:
        """A node's disk loses its hard state; somebody else has come as far."""
        host.crash()
        ballots = [other.store.ballot for other in self.hosts.values() if other is not host]
        own = host.store.ballot
        if own and host.store.last > 0 and any(ballot and ballot.term >= own.term for ballot in ballots):
            host.store.ballot = None

    def leaders(self) -> list["Host"]:
        return [host for host in self.hosts.values() if host.raft is not None and host.leads]


def member_of(number: int, directory: int = 0) -> Member:
    return Member(NodeId(number), UUID(int=1_000 * number + directory))


class Host:
    """One node: carries out effects, applies what is committed, loses its memory in crashes."""

    def __init__(self, arena: Arena, member: Member, store: MemoryStore) -> None:
        self.arena = arena
        self.member = member
        self.store = store
        self.raft: Raft | None = None
        self.incarnation = 0
        self.applied = Index(0)
        self.state: State = ()
        self.leads = False
        self.answers: dict[CommandId, object] = {}
        self._tickets = 0
        self._floors: dict[CommandId, Index] = {}
        self._chunks = b""
        self._alarm = -1
        self.skew_ns = 0

    @property
    def now(self) -> Instant:
        """The time by this node's own clock."""
        return Instant(self.arena.now + self.skew_ns)

    def start(self) -> None:
        self.incarnation += 1
        arena, store = self.arena, self.store
        self.applied, self.state = store.snapshot.index, store.state
        self.leads = False
        self.raft = arena.raft_type(
            self.member, store, store.recovered(), arena.luck.randrange, self.now, arena.options
        )
        self._set_alarm()

    def crash(self) -> None:
        """Lose power."""
        if self.raft is not None:
            self.raft = None
            self.leads = False
            self.store.crash(self.arena.luck)

    def step(self, event: Event) -> None:
        raft = self.raft
        if raft is None:
            return
        self.arena.steps += 1
        try:
            for effect in raft.step(event, self.now):
                if self.arena.luck.random() < self.arena.network_faults.crash_in_step:
                    raise Crashed
                self._carry_out(raft, effect)
        except Crashed:
            self.crash()
            self.arena.after(self.arena.luck.randint(1, 500), self._revive, self.incarnation)
            return
        self._consider_snapshot(raft)
        self._set_alarm()

    def _revive(self, life: int) -> None:
        if self.raft is None and life == self.incarnation:
            self.start()

    def _set_alarm(self) -> None:
        assert self.raft is not None
        deadline = self.raft.next_deadline()
        if deadline is not None and deadline != self._alarm:
            self._alarm = deadline
            self.arena.at(max(deadline, self.arena.now), self._ring, self.incarnation, deadline)

    def _ring(self, life: int, deadline: Instant) -> None:
        if life == self.incarnation and self._alarm == deadline and self.raft is not None:
            self._alarm = -1
            self.step(TimePassed())

    def _carry_out(self, raft: Raft, effect: Effect) -> None:
        store, arena = self.store, self.arena
        match effect:
            case PersistHardState(ballot):
                store.ballot = ballot
            case TruncateLog(start):
                store.truncate(start)
            case StoreEntries(entries, write):
                arena.checker.stored(self.member, entries, store.term_at(Index(entries[0].index - 1)))
                store.append(entries, write)
                arena.after(
                    arena.luck.random() * arena.network_faults.sync_ms, self._synced, self.incarnation, write
                )
            case SendMessage(to, message):
                arena.carry(self.member, to, message)
            case SendSnapshotChunk():
                self._send_chunk(effect)
            case CommitUpTo(index):
                self._apply(raft, index)
            case _:
                self._take_note(effect)

    def _take_note(self, effect: Effect) -> None:
        store, arena = self.store, self.arena
        match effect:
            case StoreSnapshotChunk(_, position, content):
                assert position <= len(self._chunks)
                self._chunks = self._chunks[:position] + content
            case InstallSnapshot(snapshot):
                arena.after(arena.luck.random() * 20, self._install, self.incarnation, snapshot, self._chunks)
            case FollowLeader(term, leader):
                self.leads = leader == self.member
                if self.leads:
                    arena.checker.became_leader(self.member, term, store.term_at, store.snapshot.index)
            case CommandResult(ticket, outcome):
                self.answers[ticket] = outcome
                if isinstance(outcome, ReadIndex):
                    arena.checker.was_read(self.member, self._floors[ticket], outcome.index)
            case _:
                pass

    def _synced(self, life: int, write: int) -> None:
        if life == self.incarnation and self.raft is not None:
            self.store.sync(write)
            self.step(EntriesPersisted(write))

    def _apply(self, raft: Raft, end: Index) -> None:
        while self.applied < end:
            entry = self.store.at(Index(self.applied + 1))
            self.arena.checker.was_committed(self.member, entry, raft.term)
            if isinstance(entry.content, bytes):
                self.state += (entry.content,)
            self.applied = entry.index

    def _consider_snapshot(self, raft: Raft) -> None:
        index = min(self.applied, raft.persisted)
        if index == self.applied and index - self.store.snapshot.index >= SNAPSHOT_EVERY:
            # Some entries stay, so that not every lagging member needs the snapshot.
            keep_from = Index(index + 1 - self.arena.luck.randint(0, SNAPSHOT_EVERY // 2))
            self.store.take_snapshot(raft.describe_snapshot(index), self.state, keep_from)

    def _send_chunk(self, effect: SendSnapshotChunk) -> None:
        if effect.snapshot != self.store.snapshot:
            return  # a newer one took its place
        content, position = b"\n".join(self.store.state), effect.position
        chunk = content[position : position + effect.bytes_max]
        is_last = position + len(chunk) == len(content)
        message = SnapshotChunk(effect.term, effect.snapshot, position, chunk, is_last)
        self.arena.carry(self.member, effect.to, message)

    def _install(self, life: int, snapshot: SnapshotMeta, content: bytes) -> None:
        if life != self.incarnation or self.raft is None:
            return
        if self.arena.luck.random() < self.arena.network_faults.rotten_snapshot:
            self.step(SnapshotRejected(snapshot))
            return
        state = tuple(content.split(b"\n")) if content else ()
        self.store.install(snapshot, state)
        self.applied, self.state = snapshot.index, state
        self.step(SnapshotInstalled(snapshot))

    def _ticket(self) -> CommandId:
        self._tickets += 1
        return CommandId(self._tickets)

    def propose(self, *payloads: bytes) -> object:
        ticket = self._ticket()
        self.step(Propose(ticket, payloads))
        return self.answers.get(ticket)

    def read(self) -> CommandId:
        ticket = self._ticket()
        self._floors[ticket] = self.arena.checker.committed
        self.step(RequestRead(ticket))
        return ticket

    def change(self, change: Change) -> object:
        ticket = self._ticket()
        self.step(ChangeMembers(ticket, change))
        return self.answers.get(ticket)

    def transfer(self, target: Member) -> object:
        ticket = self._ticket()
        self.step(TransferLeadership(ticket, target))
        return self.answers.get(ticket)

    def has_committed(self, accepted: ProposalAccepted) -> bool:
        """Whether what was accepted is final."""
        return any(
            entry.index == accepted.start and entry.term == accepted.term
            for entry in self.arena.checker.content()
        )
