"""Faults, clients and operators of one run, all drawn from its seed."""

from collections import Counter

from penstock.core.raft import AddLearner, LeaderGone, PromoteLearner, ProposalAccepted, Raft, RemoveMember
from tests.property.raft.raft_arena import Arena, Host, Weather, member_of

RUN_MS = 8_000
HEAL_MS = 12_000
NODES_MAX = 5


class Run:
    """One cluster under one plan. Faults come in random subsets: some bugs need quiet between them."""

    def __init__(self, seed: int, raft_type: type[Raft] = Raft) -> None:
        self.arena = Arena(f"raft/{seed}", raft_type)
        self.luck = self.arena.luck
        self.counts: Counter[str] = Counter()
        self._values = 0
        self._directories = 0
        self._active = True
        luck = self.luck
        self.arena.network_faults = Weather(
            delay_ms=luck.choice((2, 10, 40, 150)),
            loss=luck.choice((0.0, 0.02, 0.2)),
            duplicate=luck.choice((0.0, 0.05, 0.3)),
            sync_ms=luck.choice((1, 10, 100)),
            crash_in_step=luck.choice((0.0, 0.0, 0.001, 0.01)),
        )
        faults = (self.crash, self.isolate, self.split, self.cut_one_way, self.transfer, self.mend)
        changes = (self.tend_members, self.let_one_go, self.wipe)
        self._faults = [fault for fault in faults if luck.random() < 0.6]
        if luck.random() < 0.5:
            self._faults += [change for change in changes if luck.random() < 0.8]
        self._pace_ms = luck.choice((60, 200, 600))

    def play(self) -> list[str]:
        """Run it; returns the anomalies."""
        arena, luck = self.arena, self.luck
        arena.found(luck.choice((1, 2, 3, 3, 3, 5)))
        arena.after(0, self._work)
        arena.after(500, self._strike)
        arena.run(RUN_MS)
        self._active = False
        if not arena.checker.anomalies:
            self._heal()
        return arena.checker.anomalies

    def _work(self) -> None:
        """Clients ask whoever believes to lead, and sometimes whoever does not."""
        leaders = self.arena.leaders() or list(self.arena.hosts.values())
        host = self.luck.choice(leaders)
        if self.luck.random() < 0.6:
            self.propose(host)
        else:
            host.read()
        if self._active:
            self.arena.after(self.luck.random() * 40, self._work)

    def propose(self, host: Host) -> object:
        self._values += 1
        values = [b"%d.%d" % (self._values, part) for part in range(self.luck.choice((1, 1, 1, 3)))]
        return host.propose(*values)

    def _strike(self) -> None:
        if self._active and self._faults:
            fault = self.luck.choice(self._faults)
            self.counts[fault.__name__] += 1
            fault()
            self.arena.after(self.luck.expovariate(1 / self._pace_ms), self._strike)

    def _later(self, host: Host) -> None:
        def revive() -> None:
            if host.raft is None:
                host.start()

        self.arena.after(self.luck.choice((1, 50, 500, 2_000)), revive)

    def crash(self) -> None:
        hosts = list(self.arena.hosts.values())
        for host in self.luck.sample(hosts, min(len(hosts), self.luck.choice((1, 1, 1, 2)))):
            host.crash()
            self._later(host)

    def isolate(self) -> None:
        victim = self.luck.choice(self.arena.leaders() or list(self.arena.hosts.values()))
        number = victim.member.node_id
        for other in self.arena.hosts:
            self.arena.cuts |= {(number, other): None, (other, number): None}
        self._mend_later()

    def split(self) -> None:
        numbers = list(self.arena.hosts)
        side = self.luck.sample(numbers, len(numbers) // 2)
        self.arena.cuts = {(a, b): None for a in numbers for b in numbers if (a in side) != (b in side)}
        self._mend_later()

    def cut_one_way(self) -> None:
        numbers = list(self.arena.hosts)
        self.arena.cuts[(self.luck.choice(numbers), self.luck.choice(numbers))] = None
        self._mend_later()

    def mend(self) -> None:
        self.arena.cuts.clear()

    def _mend_later(self) -> None:
        self.arena.after(self.luck.choice((100, 500, 2_000)), self.mend)

    def transfer(self) -> None:
        for host in self.arena.leaders():
            assert host.raft is not None
            host.transfer(self.luck.choice(host.raft.configuration.voters))

    def wipe(self) -> None:
        """A node loses its directory and comes back empty, under a new one."""
        if self._directories >= 2 or len(self.arena.hosts) < 3:
            return
        self._directories += 1
        old = self.luck.choice(list(self.arena.hosts.values()))
        old.crash()
        self.arena.add(member_of(old.member.node_id, self._directories))

    def let_one_go(self) -> None:
        for host in self.arena.leaders():
            assert host.raft is not None
            host.change(RemoveMember(self.luck.choice(host.raft.configuration.members)))

    def tend_members(self) -> None:
        """As an operator would: new nodes get in, directories that are gone get out."""
        if len(self.arena.hosts) < NODES_MAX and self.luck.random() < 0.3:
            self.arena.add(member_of(len(self.arena.hosts) + 1))
        alive = {host.member: None for host in self.arena.hosts.values()}
        for host in self.arena.leaders():
            assert host.raft is not None
            configuration = host.raft.configuration
            gone = [member for member in configuration.members if member not in alive]
            missing = [member for member in alive if member not in configuration.members]
            if gone:
                host.change(RemoveMember(gone[0]))
            elif configuration.learners:
                host.change(PromoteLearner(configuration.learners[0]))
            elif missing:
                host.change(AddLearner(self.luck.choice(missing)))

    def _heal(self) -> None:
        """With all faults over, the quorum must come back: a new value is committed everywhere."""
        arena = self.arena
        arena.network_faults = Weather()
        arena.cuts.clear()
        arena.run(0)
        for host in arena.hosts.values():
            if host.raft is None:
                host.start()
        for _ in range(HEAL_MS // 200):
            arena.run(200)
            if self._has_recovered() or arena.checker.anomalies:
                return
        if not self._lost_its_majority():
            arena.checker.anomalies.append("no recovery")

    def _has_recovered(self) -> bool:
        leaders = self.arena.leaders()
        if len(leaders) != 1:
            return False
        accepted = self.propose(leaders[0])
        self.arena.run(500)
        return (
            isinstance(accepted, ProposalAccepted)
            and leaders[0].has_committed(accepted)
            and all(host.applied >= accepted.start for host in self._voters(leaders[0]))
        )

    def _voters(self, leader: Host) -> list[Host]:
        if leader.raft is None:
            return []
        voters = leader.raft.configuration.voters
        return [host for host in self.arena.hosts.values() if host.member in voters]

    def _lost_its_majority(self) -> bool:
        """Wiped directories can take a majority with them: then nothing may be committed any more."""
        alive = {host.member: None for host in self.arena.hosts.values()}
        for host in self.arena.hosts.values():
            assert host.raft is not None
            configuration = host.raft.configuration
            present = sum(voter in alive for voter in configuration.voters)
            if self._directories and present < configuration.majority:
                return True
        return False


class DamageRun(Run):
    """A run in which disks lose what was synced: ends of logs, and hard states."""

    def __init__(self, seed: int, raft_type: type[Raft] = Raft) -> None:
        super().__init__(seed, raft_type)
        faults = (self.crash, self.isolate, self.split, self.cut_one_way, self.transfer, self.mend)
        self._faults = [fault for fault in faults if self.luck.random() < 0.6]
        self._faults += [self.lose_tail, self.lose_tail, self.lose_ballot]
        self.arena.network_faults.rotten_snapshot = 0.3

    def lose_tail(self) -> None:
        victim = self.luck.choice(list(self.arena.hosts.values()))
        self.arena.lose_tail(victim)
        self._later(victim)

    def lose_ballot(self) -> None:
        victim = self.luck.choice(list(self.arena.hosts.values()))
        self.arena.lose_ballot(victim)
        self._later(victim)


class RumourRun(Run):
    """A run in which whoever is notified that a leader has ended believes it, true or not."""

    def __init__(self, seed: int, raft_type: type[Raft] = Raft) -> None:
        super().__init__(seed, raft_type)
        self._faults += [self.spread_rumour, self.spread_rumour]

    def spread_rumour(self) -> None:
        hosts = list(self.arena.hosts.values())
        for host in self.luck.sample(hosts, self.luck.randint(1, len(hosts))):
            leader = None if host.raft is None else host.raft.leader
            if leader is not None:
                host.step(LeaderGone(leader))
