"""The result of one step of the coordinator, and the tray in which it is gathered."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from penstock.core.groups.commands import Ticket
from penstock.core.groups.deadlines import Deadlines
from penstock.core.groups.facts import Fact
from penstock.core.groups.options import GroupOptions
from penstock.core.groups.replies import Reply
from penstock.core.model import MILLISECOND, Instant, Refused, Timestamp, Why


class Moment(NamedTuple):
    """Now, on both clocks: deadlines are monotonic, what is stored is wall-clock time."""

    instant: Instant
    wall: Timestamp


class Answer(NamedTuple):
    """A reply for the slot that one command came with."""

    ticket: Ticket
    reply: Reply


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    """The group's members are asked to join again."""

    group_id: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class RebalanceCompleted:
    """Every member's assignment is known, this long after the rebalance started."""

    group_id: str
    generation: int
    members: int
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """A member left or was given up."""

    group_id: str
    member_id: str
    reason: str


Event: TypeAlias = RebalanceStarted | RebalanceCompleted | MemberRemoved


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes true, whom to answer once it is durable, and what to log.

    The counterpart of `Decision` where one command may answer none or many: the host appends
    `facts`, applies them, and releases `answers` when the log end it saw is committed.
    `events` are for logs and metrics alone.
    """

    facts: tuple[Fact, ...] = ()
    answers: tuple[Answer, ...] = ()
    events: tuple[Event, ...] = ()


class Turn:
    """One step under way: the moment it happens, and what came out of it so far."""

    __slots__ = ("_answers", "_deadlines", "_events", "_facts", "now", "options")

    def __init__(self, now: Moment, options: GroupOptions, deadlines: Deadlines) -> None:
        self.now = now
        self.options = options
        self._deadlines = deadlines
        self._facts: list[Fact] = []
        self._answers: list[Answer] = []
        self._events: list[Event] = []

    def record(self, fact: Fact) -> None:
        self._facts.append(fact)

    def answer(self, ticket: Ticket, reply: Reply) -> None:
        self._answers.append(Answer(ticket, reply))

    def refuse(self, ticket: Ticket, why: Why, detail: str = "") -> None:
        self._answers.append(Answer(ticket, Refused(why, detail)))

    def report(self, event: Event) -> None:
        self._events.append(event)

    def wake(self, group_id: str, delay_ms: int) -> Instant:
        """The moment `delay_ms` from now, at which the group will be looked at."""
        at = Instant(self.now.instant + delay_ms * MILLISECOND)
        self._deadlines.arm(group_id, at)
        return at

    def outcome(self) -> Outcome:
        return Outcome(tuple(self._facts), tuple(self._answers), tuple(self._events))
