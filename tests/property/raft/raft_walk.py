"""A random walk through everything that could happen next, without regard to time.

Messages, syncs and installations wait in a pool until chance picks them, in any order; every
node has a clock of its own, which jumps to its next deadline when chance says so. The rare
interleavings that a network with delays meets once in a thousand runs come up here at once.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.core.raft import (
    AddLearner,
    Change,
    LeaderGone,
    PromoteLearner,
    Raft,
    RaftOptions,
    RemoveMember,
    TimePassed,
)
from penstock.core.raft.messages import RaftMessage
from penstock.core.raft.types import Member
from tests.property.raft.raft_arena import OPTIONS, Arena, Host, member_of

EPISODES = 50
POOL_MAX = 40
Happening = tuple[Callable[..., None], tuple[Any, ...]]


class Walk(Arena):
    """One walk; `play` returns the anomalies it met."""

    def __init__(self, seed: int, raft_type: type[Raft] = Raft, options: RaftOptions = OPTIONS) -> None:
        super().__init__(f"walk/{seed}", raft_type, options)
        # One entry per request in half of the walks: majorities are reached entry by entry.
        self.options = replace(options, append_bytes_max=self.luck.choice((1, 200)))
        self._pool: list[Happening] = []
        self._local: list[Happening] = []
        self._values = 0
        self._directories = 0
        luck = self.luck
        # How often each thing happens differs from walk to walk.
        self._weights = {
            self._happen: 60,
            self._sync: luck.choice((4, 30)),
            self._lose: luck.choice((0, 0, 10)),
            self._ring: luck.choice((0, 3)),
            self._propose: luck.choice((0, 3)),
            self._read: luck.choice((0, 3)),
            self._crash: luck.choice((0, 0, 2)),
            self._change: luck.choice((0, 0, 20)),
            self._wipe: luck.choice((0, 0, 0, 0.5)),
            self._transfer: luck.choice((0, 0, 0, 1)),
        }
        self._episode_moves = luck.choice((4, 8, 20, 50))
        self.network_faults.crash_in_step = luck.choice((0.0, 0.0, 0.06))

    def play(self, episodes: int = EPISODES) -> list[str]:
        luck = self.luck
        # Wrong steps from four voters lead to two majorities without a common member.
        self.found(4 if self._weights[self._change] else luck.choice((2, 3, 3, 3, 5)))
        moves, weights = list(self._weights), list(self._weights.values())
        for _ in range(episodes):
            if self.checker.anomalies:
                break
            self._elect()
            for move in luck.choices(moves, weights, k=1 + int(luck.expovariate(1 / self._episode_moves))):
                move()
                if self.checker.anomalies:
                    break
        return self.checker.anomalies

    def carry(self, sender: Member, to: Member, message: RaftMessage) -> None:
        self._pool.append((self._arrive, (sender, to, message)))

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        self._local.append((action, arguments))

    def at(self, moment: int, action: Callable[..., None], *arguments: Any) -> None:
        """Clocks are moved by hand here."""

    def _any_host(self) -> Host:
        return self.luck.choice(list(self.hosts.values()))

    def _any_leader(self) -> Host | None:
        leaders = self.leaders()
        return self.luck.choice(leaders) if leaders else None

    def _happen(self) -> None:
        pool, luck = self._pool, self.luck
        while len(pool) > POOL_MAX:
            self._lose()
        if pool:
            number = luck.randrange(len(pool))
            action, arguments = pool[number]
            if luck.random() < 0.95:  # or it will come again
                pool[number] = pool[-1]
                pool.pop()
            action(*arguments)
        else:
            self._sync()

    def _sync(self) -> None:
        """Something that a node does for itself is done: a sync, an installation, a restart."""
        if self._local:
            action, arguments = self._local.pop(self.luck.randrange(len(self._local)))
            action(*arguments)

    def _lose(self) -> None:
        if self._pool:
            del self._pool[self.luck.randrange(len(self._pool))]

    def _ring(self) -> None:
        self._wake(self._any_host())

    def _wake(self, host: Host) -> None:
        deadline = None if host.raft is None else host.raft.next_deadline()
        if deadline is not None:
            host.skew_ns = max(host.skew_ns, deadline - self.now)
            host.step(TimePassed())

    def _elect(self) -> None:
        """A barely sufficient group hears each other and nobody else, and one of it wants to lead."""
        luck = self.luck
        self.now += self.options.election_ns
        if luck.random() < 0.7:
            self._pool.clear()
        for host in self.hosts.values():
            if host.raft is None and luck.random() < 0.7:
                host.start()
        candidate = self._any_host()
        voters = () if candidate.raft is None else candidate.raft.configuration.voters
        numbers = [voter.node_id for voter in voters if voter != candidate.member]
        size = min(len(numbers), len(voters) // 2 + luck.choice((0, 0, 1)))
        group = dict.fromkeys((candidate.member.node_id, *luck.sample(numbers, size)))
        self.cuts = {(a, b): None for a in self.hosts for b in self.hosts if (a in group) != (b in group)}
        # The candidate's patience ends; a leader has heard nobody for long, and notices.
        for number in group:
            host = self.hosts[number]
            if host.leads != (host is candidate):
                self._wake(host)
        for _ in range(luck.choice((0, 30, 30))):
            if candidate.leads:
                break
            self._happen()

    def _propose(self) -> None:
        if (leader := self._any_leader()) is not None:
            self._values += 1
            leader.propose(b"%d" % self._values)

    def _read(self) -> None:
        if (leader := self._any_leader()) is not None:
            leader.read()

    def _crash(self) -> None:
        host = self._any_host()
        host.crash()
        self.after(0, self._restart, host, host.incarnation)

    def _restart(self, host: Host, life: int) -> None:
        if host.raft is None and host.incarnation == life and self.hosts[host.member.node_id] is host:
            host.start()

    def _wipe(self) -> None:
        if self._directories < 3 and len(self.hosts) > 2:
            self._directories += 1
            old = self._any_host()
            old.crash()
            self.add(member_of(old.member.node_id, self._directories))

    def _transfer(self) -> None:
        if (leader := self._any_leader()) is not None and leader.raft is not None:
            leader.transfer(self.luck.choice(leader.raft.configuration.voters))

    def _change(self) -> None:
        leader = self._any_leader()
        if leader is None or leader.raft is None:
            return
        configuration = leader.raft.configuration
        others = [host.member for host in self.hosts.values() if host.member not in configuration.members]
        changes: list[Change] = [RemoveMember(self.luck.choice(configuration.members))]
        if len(configuration.voters) <= 2:
            changes.clear()
        changes += [PromoteLearner(learner) for learner in configuration.learners]
        changes += [AddLearner(member) for member in others]
        if changes:
            leader.change(self.luck.choice(changes))


class DamageWalk(Walk):
    """A walk in which disks lose what was synced: ends of logs, and hard states."""

    def __init__(self, seed: int, raft_type: type[Raft] = Raft, options: RaftOptions = OPTIONS) -> None:
        super().__init__(seed, raft_type, options)
        self._weights |= {self._change: 0, self._wipe: 0}
        self._weights |= {
            self._lose_tail: self.luck.choice((1, 4)),
            self._lose_ballot: self.luck.choice((0, 2)),
        }

    def _lose_tail(self) -> None:
        host = self._any_host()
        self.lose_tail(host)
        self.after(0, self._restart, host, host.incarnation)

    def _lose_ballot(self) -> None:
        host = self._any_host()
        self.lose_ballot(host)
        self.after(0, self._restart, host, host.incarnation)


class RumourWalk(Walk):
    """A walk in which members are notified, rightly or not, that whoever leads has ended."""

    def __init__(self, seed: int, raft_type: type[Raft] = Raft, options: RaftOptions = OPTIONS) -> None:
        super().__init__(seed, raft_type, options)
        self._weights[self._hear_rumour] = 6

    def _hear_rumour(self) -> None:
        host = self._any_host()
        leader = None if host.raft is None else host.raft.leader
        if leader is not None:
            host.step(LeaderGone(leader))
            self._wake(host)
