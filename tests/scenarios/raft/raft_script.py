"""Runs a script: commands start with `>`, what happens is written below each.

> quorum 1 2 3            found a quorum               > add 4        an empty node
> wake 1                  its deadline is reached      > wait 300     milliseconds pass for everybody
> deliver 1 2             what 1 sent to 2 arrives     > lose 1 2     or does not
> hear 2                  everything sent to 2 arrives > cut 2        nobody hears 2, nor 2 anybody
> sync 1                  its disk has everything      > crash 1 / start 1 / wipe 1
> rot 1 2                 the disk of 1, which is down, loses its last 2 entries
> forget 1                the disk of 1, which is down, loses its hard state
> gone 2 1                2 is told that 1's process has ended
> settle                  everything arrives and is synced until nothing is underway
> quietly settle          the same without a word      > show         who is where
> propose 1 a b           > read 1    > change 1 add|promote|remove 4    > transfer 1 2
> snapshot 1              > options chunk_bytes=8
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from penstock.core.model import MILLISECOND
from penstock.core.raft import (
    AddLearner,
    Change,
    Configuration,
    Effect,
    Index,
    LeaderGone,
    Member,
    PromoteLearner,
    Raft,
    RaftOptions,
    RemoveMember,
    TimePassed,
)
from penstock.core.raft.messages import RaftMessage
from tests.property.raft.raft_arena import Arena, Host, member_of
from tests.property.raft.raft_store import MemoryStore
from tests.scenarios.raft.raft_words import show_configuration, show_effect, show_entry, show_member

CHANGES: dict[str, Callable[[Member], Change]] = {
    "add": AddLearner,
    "promote": PromoteLearner,
    "remove": RemoveMember,
}


class Stage(Arena):
    """An arena where nothing happens unless the script says so."""

    def __init__(self) -> None:
        super().__init__("script", options=RaftOptions())
        self.lines: list[str] = []
        self.is_quiet = False
        self._sent: dict[tuple[int, int], deque[tuple[Member, Member, RaftMessage]]] = {}
        self._works: dict[Member, deque[tuple[Callable[..., None], tuple[Any, ...]]]] = {}
        self._directories = 0

    def say(self, line: str) -> None:
        if not self.is_quiet:
            self.lines.append(line)

    def perform(self, command: str) -> list[str]:
        """Carry out one command; returns what happened."""
        self.lines = []
        words = command.split()
        self.is_quiet = words[0] == "quietly"
        if self.is_quiet:
            del words[0]
        getattr(self, f"on_{words[0]}")(*words[1:])
        assert not self.checker.anomalies, self.checker.anomalies
        return self.lines

    def carry(self, sender: Member, to: Member, message: RaftMessage) -> None:
        self._sent.setdefault((sender.node_id, to.node_id), deque()).append((sender, to, message))

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        host = getattr(action, "__self__", None)
        assert isinstance(host, Host)
        self._works.setdefault(host.member, deque()).append((action, arguments))

    def at(self, moment: int, action: Callable[..., None], *arguments: Any) -> None:
        """Deadlines are for the script to reach."""

    def _host(self, number: str) -> Host:
        return self.hosts[int(number)]

    def _raft(self, number: str) -> Raft:
        raft = self._host(number).raft
        assert raft is not None
        return raft

    def on_options(self, *settings: str) -> None:
        values = {name: int(value) for name, value in (setting.split("=") for setting in settings)}
        self.options = replace(self.options, **values)

    def on_quorum(self, *numbers: str) -> None:
        members = tuple(member_of(int(number)) for number in numbers)
        for member in members:
            self._enter(member, Configuration(members))

    def on_add(self, number: str) -> None:
        self._enter(member_of(int(number)), None)

    def _enter(self, member: Member, configuration: Configuration | None) -> None:
        host = TalkingHost(self, member, MemoryStore(configuration))
        self.hosts[member.node_id] = host
        host.start()

    def on_wipe(self, number: str) -> None:
        self._host(number).crash()
        self._directories += 1
        self._enter(member_of(int(number), self._directories), None)

    def on_crash(self, number: str) -> None:
        self._host(number).crash()
        self._works.pop(self._host(number).member, None)
        for pair in [pair for pair in self._sent if pair[0] == int(number)]:
            del self._sent[pair]

    def on_rot(self, number: str, count: str) -> None:
        self._host(number).store.lose_tail(int(count))

    def on_forget(self, number: str) -> None:
        self._host(number).store.ballot = None

    def on_start(self, number: str) -> None:
        self._host(number).start()

    def on_gone(self, number: str, leader: str) -> None:
        self._host(number).step(LeaderGone(self._host(leader).member))

    def on_wait(self, duration_ms: str) -> None:
        self.now += int(duration_ms) * MILLISECOND

    def on_wake(self, number: str) -> None:
        deadline = self._raft(number).next_deadline()
        if deadline is None:
            self.say(f"{number} waits for nothing")
        else:
            host = self._host(number)
            host.skew_ns = max(host.skew_ns, deadline - self.now)
            host.step(TimePassed())

    def on_deliver(self, source: str, target: str) -> None:
        sent = self._sent.pop((int(source), int(target)), deque())
        for sender, to, message in sent:
            self._arrive(sender, to, message)

    def on_lose(self, source: str, target: str) -> None:
        self._sent.pop((int(source), int(target)), None)

    def on_hear(self, target: str) -> None:
        for source in list(self.hosts):
            self.on_deliver(str(source), target)

    def on_cut(self, number: str) -> None:
        for other in self.hosts:
            self.cuts |= {(int(number), other): None, (other, int(number)): None}

    def on_mend(self) -> None:
        self.cuts.clear()

    def on_sync(self, number: str) -> None:
        works = self._works.pop(self._host(number).member, deque())
        for position, (action, arguments) in enumerate(works):
            # One sync covers all writes before it.
            if action not in [later for later, _ in list(works)[position + 1 :]]:
                action(*arguments)

    def on_settle(self) -> None:
        for _ in range(100):
            if not self._sent and not self._works:
                return
            for source, target in list(self._sent):
                self.on_deliver(str(source), str(target))
            for member in list(self._works):
                self.on_sync(str(member.node_id))
        raise AssertionError("it does not settle")

    def on_propose(self, number: str, *values: str) -> None:
        self._host(number).propose(*(value.encode() for value in values))

    def on_read(self, number: str) -> None:
        self._host(number).read()

    def on_change(self, number: str, what: str, member: str) -> None:
        self._host(number).change(CHANGES[what](self._member(member)))

    def on_transfer(self, number: str, target: str) -> None:
        self._host(number).transfer(self._member(target))

    def _member(self, name: str) -> Member:
        return member_of(int(name.rstrip("'")), name.count("'"))

    def on_snapshot(self, number: str) -> None:
        host, raft = self._host(number), self._raft(number)
        meta = raft.describe_snapshot(host.applied)
        host.store.take_snapshot(meta, host.state, Index(meta.index + 1))
        self.say(
            f"{number} has a snapshot {meta.index}/{meta.term}, {show_configuration(meta.configuration)}"
        )

    def on_show(self) -> None:
        for host in self.hosts.values():
            name, raft, store = show_member(host.member), host.raft, host.store
            if raft is None:
                self.say(f"{name} is down")
                continue
            entries = [show_entry(store.at(Index(index))) for index in range(store.first, store.last + 1)]
            if store.snapshot.index:
                entries.insert(0, f"[..{store.snapshot.index}]")
            doubt = ", in doubt" if raft.is_doubtful else ""
            self.say(f"{name} term {raft.term} commit {raft.commit}{doubt}: {' '.join(entries) or 'empty'}")


class TalkingHost(Host):
    """Says what it does before it does it."""

    def _carry_out(self, raft: Raft, effect: Effect) -> None:
        assert isinstance(self.arena, Stage)
        self.arena.say(f"{show_member(self.member)}  {show_effect(effect)}")
        super()._carry_out(raft, effect)

    def _consider_snapshot(self, raft: Raft) -> None:
        """Only when the script says so."""


def replay(lines: Iterable[str]) -> list[str]:
    """The script with what happens now below every command."""
    stage = Stage()
    result: list[str] = []
    for line in lines:
        if line.startswith(">"):
            result.append(line)
            result += stage.perform(line[1:])
        elif line.startswith("#") or not line:
            result.append(line)
    return result
