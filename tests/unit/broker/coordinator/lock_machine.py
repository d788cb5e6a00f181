"""A second machine for the coordinator runtime: named locks that end with their leases.

It has all that the runtime cares for, and nothing of groups: facts with keys, errors and
reads, commands that are parked until somebody else acts, and deadlines.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from penstock.broker.coordinator import Coordinator, CoordinatorOptions, Coordinators, CoordinatorSpec
from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import Fact as MetadataFact
from penstock.core.metadata import replay
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    Now,
    ProtocolError,
    TopicId,
    TopicPartition,
)
from penstock.storage.disk import CrashableDisk
from tests.unit.broker.coordinator.leader_bench import NODE, LeaderBench, topic_facts

LOCK_TOPIC = "__locks"
LOCK_TOPIC_ID = TopicId(UUID(int=60))


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the lock, if anybody has."""

    owner: str | None


LockReply: TypeAlias = Holder | ApiError
OnLockReply: TypeAlias = Callable[[LockReply], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireLock:
    """Take the lock; while another has it, be refused or (`wait`) parked until it is free."""

    on_reply: OnLockReply
    name: str
    owner: str
    lease_ms: int = 10_000
    wait: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLock:
    """Give the lock back."""

    on_reply: OnLockReply
    name: str
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLock:
    """Ask who has the lock."""

    on_reply: OnLockReply
    name: str


LockCommand: TypeAlias = AcquireLock | ReleaseLock | ShowLock


@dataclass(frozen=True, slots=True)
class LockHeld:
    """The lock is somebody's."""

    name: str
    owner: str
    lease_ms: int


@dataclass(frozen=True, slots=True)
class LockFreed:
    """The lock is nobody's."""

    name: str


LockFact: TypeAlias = LockHeld | LockFreed


@dataclass(slots=True)
class LockOutcome:
    """The result of one step."""

    facts: list[LockFact] = field(default_factory=list)
    responses: list[tuple[OnLockReply, LockReply]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


class LockMachine:
    """Who holds which lock, and until when."""

    def __init__(self) -> None:
        self.held: dict[str, LockHeld] = {}
        self._until: dict[str, Instant] = {}
        self._parked: dict[str, list[AcquireLock]] = {}

    def apply(self, fact: LockFact) -> None:
        if isinstance(fact, LockHeld):
            self.held[fact.name] = fact
        else:
            self.held.pop(fact.name, None)

    def resume(self, now: Now) -> LockOutcome:
        """Leases start in full: how much of them was left, nobody wrote down."""
        for fact in self.held.values():
            self._until[fact.name] = Instant(now.instant + fact.lease_ms * MILLISECOND)
        return LockOutcome()

    def decide(self, command: LockCommand, now: Now) -> LockOutcome:
        outcome = LockOutcome()
        holder = self.held.get(command.name)
        match command:
            case ShowLock():
                outcome.responses.append((command.on_reply, Holder(holder.owner if holder else None)))
            case ReleaseLock():
                if holder is None or holder.owner != command.owner:
                    outcome.responses.append((command.on_reply, ApiError(ErrorKind.INVALID_REQUEST)))
                else:
                    outcome.responses.append((command.on_reply, Holder(None)))
                    self._free(command.name, now, outcome)
            case AcquireLock():
                if holder is None or holder.owner == command.owner:
                    self._grant(command, now, outcome)
                elif command.wait:
                    self._parked.setdefault(command.name, []).append(command)
                else:
                    outcome.responses.append((command.on_reply, ApiError(ErrorKind.INVALID_REQUEST)))
        return outcome

    def expire(self, now: Now) -> LockOutcome:
        outcome = LockOutcome()
        for name in [name for name, until in self._until.items() if until <= now.instant]:
            outcome.events.append(f"the lease of {name} is over")
            self._free(name, now, outcome)
        return outcome

    def next_deadline(self) -> Instant | None:
        return min(self._until.values(), default=None)

    def size(self) -> int:
        return len(self.held)

    def snapshot(self) -> Iterator[LockFact]:
        names = list(self.held)
        return (self.held[name] for name in names if name in self.held)

    def _grant(self, command: AcquireLock, now: Now, outcome: LockOutcome) -> None:
        outcome.facts.append(LockHeld(command.name, command.owner, command.lease_ms))
        outcome.responses.append((command.on_reply, Holder(command.owner)))
        self._until[command.name] = Instant(now.instant + command.lease_ms * MILLISECOND)

    def _free(self, name: str, now: Now, outcome: LockOutcome) -> None:
        self._until.pop(name, None)
        waiting = self._parked.get(name)
        if waiting:
            self._grant(waiting.pop(0), now, outcome)
        else:
            outcome.facts.append(LockFreed(name))


class LockRecords:
    """Facts as JSON under the lock's name."""

    def encode(self, fact: LockFact) -> tuple[bytes, bytes | None]:
        if isinstance(fact, LockFreed):
            return fact.name.encode(), None
        return fact.name.encode(), json.dumps([fact.owner, fact.lease_ms]).encode()

    def decode(self, key: bytes | None, value: bytes | None) -> LockFact | None:
        if key is None:
            return None
        if value is None:
            return LockFreed(key.decode())
        try:
            owner, lease_ms = json.loads(value)
        except ValueError as error:
            raise ProtocolError(f"the value of {key!r} is no lock") from error
        return LockHeld(key.decode(), owner, lease_ms)


class LockObserver:
    """Remembers its calls."""

    def __init__(self) -> None:
        self.new: list[LockFact] = []
        self.replayed: list[LockFact] = []
        self.events: list[str] = []
        self.closed = 0
        self.load_failures: list[TopicPartition] = []

    def on_fact(self, machine: LockMachine, fact: LockFact, *, is_new: bool) -> None:
        (self.new if is_new else self.replayed).append(fact)

    def on_event(self, event: str) -> None:
        self.events.append(event)

    def on_closed(self, machine: LockMachine) -> None:
        self.closed += 1

    def on_load_failed(self, partition: TopicPartition) -> None:
        self.load_failures.append(partition)


class LockBench(LeaderBench):
    """A node whose coordinators keep locks."""

    def __init__(
        self,
        partitions: int = 1,
        disk: CrashableDisk | None = None,
        rewrite_records_min: int = 20_000,
        own_commands: tuple[type, ...] = (),
        unlogged_commands: tuple[type, ...] = (),
    ) -> None:
        super().__init__(disk)
        self.partitions = partitions
        self.observer = LockObserver()
        self.corrections: list[LockFact] = []
        spec: CoordinatorSpec[LockMachine, LockCommand, LockFact] = CoordinatorSpec(
            LOCK_TOPIC,
            LockMachine,
            LockRecords(),
            self.observer,
            served_below_min_isr=(ShowLock,),
            own_commands=own_commands,
            unlogged_commands=unlogged_commands,
            corrections=lambda _: self.corrections,
        )
        self._options = CoordinatorOptions(rewrite_records_min)
        self.coordinators = Coordinators(NODE, self.runtime, self, self, spec, self._options)

    def start(self, epoch: int = 0) -> "LockBench":
        """Lead all partitions, and let the coordinators read their logs."""
        self.lead(LOCK_TOPIC, LOCK_TOPIC_ID, self.partitions, epoch)
        self.follow(*topic_facts(LOCK_TOPIC, LOCK_TOPIC_ID, self.partitions))
        self.settle()
        return self

    def follow(self, *facts: MetadataFact) -> None:
        self.image = replay(self.image, facts)
        self.coordinators.on_metadata(self.image)

    def restarted(self) -> "LockBench":
        """A node that starts from what this one left on its disk."""
        disk, rewrite_min = self.crashable.copy(), self._options.rewrite_records_min
        return LockBench(self.partitions, disk, rewrite_min).start(epoch=1)

    @property
    def partition(self) -> LeaderPartition:
        return self.led[LOCK_TOPIC, 0]

    @property
    def coordinator(self) -> Coordinator[LockMachine, LockCommand, LockFact]:
        return next(iter(self.coordinators))

    def submit(self, command: type, name: str = "door", **fields: Any) -> list[LockReply]:
        """Submit without waiting; the list gets the reply when it is known."""
        replies: list[LockReply] = []
        found = self.coordinators.find(name)
        if isinstance(found, ApiError):
            return [found]
        found.submit(command(on_reply=replies.append, name=name, **fields))
        return replies

    def ask(self, command: type, name: str = "door", **fields: Any) -> LockReply:
        replies = self.submit(command, name, **fields)
        self.settle()
        (reply,) = replies
        return reply

    def acquire(self, owner: str, name: str = "door", **fields: Any) -> LockReply:
        return self.ask(AcquireLock, name, owner=owner, **fields)

    def holder(self, name: str = "door") -> str | None:
        reply = self.ask(ShowLock, name)
        assert isinstance(reply, Holder), reply
        return reply.owner
