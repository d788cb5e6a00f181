"""The machine of one group-coordinator partition."""

from typing import assert_never

from penstock.core.groups.administration import handle_administration
from penstock.core.groups.classic import ClassicGroups
from penstock.core.groups.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    ForgetTopic,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Sync,
)
from penstock.core.groups.deadlines import Deadlines
from penstock.core.groups.facts import Fact
from penstock.core.groups.image import GroupImage
from penstock.core.groups.offsets import OffsetSweep, handle_offsets
from penstock.core.groups.options import GroupOptions
from penstock.core.groups.outcome import Moment, Outcome, Turn
from penstock.core.model import Instant


class GroupCoordinator:
    """Who is in which group, and where each group stands.

    Recovery: `apply` every fact of the log, then `resume` once. Service: `handle` commands
    and `expire` deadlines; append the facts of each outcome and `apply` them before the next
    call; release its answers when the log end is committed. When an append fails, drop the machine.
    """

    def __init__(self, options: GroupOptions | None = None) -> None:
        self._options = GroupOptions() if options is None else options
        self._image = GroupImage()
        self._classic = ClassicGroups(self._image)
        self._sweep = OffsetSweep(self._image, self._classic)
        self._deadlines = Deadlines()
        self._facts_owed = 0

    @property
    def image(self) -> GroupImage:
        """The durable state, to be looked at only."""
        return self._image

    def apply(self, fact: Fact) -> None:
        """Take over what the log says."""
        self._facts_owed = max(self._facts_owed - 1, 0)
        self._image.apply(fact)

    def resume(self, now: Moment) -> Outcome:
        """The log is replayed and we lead: every session starts now, in full."""
        turn = self._turn(now)
        self._classic.resume(turn)
        self._sweep.plan(turn)
        return self._ended(turn)

    def handle(self, command: Command, now: Moment) -> Outcome:
        """Answer the command, park it, or let it settle others; changes nothing durable."""
        turn = self._turn(now)
        match command:
            case Join() | Sync() | Heartbeat() | Leave():
                self._classic.handle(command, turn)
            case CommitOffsets() | FetchOffsets() | DeleteOffsets() | ForgetTopic():
                handle_offsets(command, self._image, self._classic, turn)
            case DeleteGroup() | DescribeGroup() | ListGroups():
                handle_administration(command, self._image, self._classic, turn)
            case _:
                assert_never(command)
        return self._ended(turn)

    def expire(self, now: Moment) -> Outcome:
        """Do what is due, a bounded part of it at a time: call again while `next_deadline` is past."""
        turn = self._turn(now)
        for _ in range(self._options.groups_expired_per_turn_max):
            group_id = self._deadlines.pop(now.instant)
            if group_id is None:
                break
            again = self._classic.expire(group_id, turn)
            if again is not None:
                self._deadlines.arm(group_id, again)
        else:
            return self._ended(turn)
        self._sweep.run_if_due(turn)
        return self._ended(turn)

    def next_deadline(self) -> Instant | None:
        """When to call `expire`; at times it will then find that nothing is due yet."""
        deadlines = [d for d in (self._deadlines.next(), self._sweep.deadline) if d is not None]
        return min(deadlines, default=None)

    def _turn(self, now: Moment) -> Turn:
        assert self._facts_owed == 0, "facts of the last outcome were not applied"
        return Turn(now, self._options, self._deadlines)

    def _ended(self, turn: Turn) -> Outcome:
        outcome = turn.outcome()
        self._facts_owed = len(outcome.facts)
        return outcome
