"""The host of one group coordinator: between its machine and its partition's log.

    submit ── handle ── facts ── append ── apply ── answers wait for the log end of this moment
                 ▲                                       │ acknowledged
          expire (timer)                                 ▼
                                                     ticket.done(reply)

Every answer waits, refusals and reads too: they may rest on facts that are not durable yet.
When nothing is on its way to the disk, that is no wait at all, which is the case for nearly
every heartbeat.

A new leader's log may end with facts of which nobody knows yet whether all replicas have
them. It is read once that is known, so that no position is told that might go back.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.core.groups import (
    Answer,
    Command,
    DescribeGroup,
    Fact,
    FetchOffsets,
    ForgetTopic,
    GroupCoordinator,
    GroupImage,
    GroupOptions,
    Heartbeat,
    ListGroups,
    Moment,
    Outcome,
    Reply,
)
from penstock.core.model import MILLISECOND, Instant, PenstockError, ProtocolError, Refused, StorageError, Why
from penstock.observability import log as events
from penstock.runtime import Clock, Timer, Timers
from penstock.services.groups.loading import Load, Loading
from penstock.services.groups.records import write_batches
from penstock.services.groups.renewal import Renewal
from penstock.services.groups.ticket import Ticket
from penstock.services.groups.witness import Witness
from penstock.services.partitions import InDoubt, Partition, PartitionStopped
from penstock.storage.log import BatchTooLarge

START_OVER_MS = 500
# Doubled with every failure: a log that is damaged is read to no avail, at everybody's expense.
LOAD_RETRY_MS, LOAD_RETRY_MS_MAX = 500, 60_000


class Phase(enum.Enum):
    """What a host is doing; the values say what it refuses commands with."""

    LOADING = Why.COORDINATOR_LOADING
    SERVING = None
    FAILED = Why.COORDINATOR_NOT_AVAILABLE
    DROPPED = Why.NOT_COORDINATOR


@dataclass(frozen=True, slots=True)
class HostParts:
    """What all hosts of a node share."""

    clock: Clock
    timers: Timers
    loading: Loading
    witness: Witness
    options: GroupOptions
    # What to write down before the first command: positions in topics that are gone.
    stale: Callable[[GroupImage], list[Fact]]
    renewal_records_min: int
    commit_timeout_ms: int


# What can be served without writing, and so without enough replicas to write to; and what only
# this node itself asks for.
SERVED_REGARDLESS = (Heartbeat, FetchOffsets, DescribeGroup, ListGroups, ForgetTopic)


class CoordinatorHost:
    """Serves the groups of one partition of the offsets topic, while this node leads it."""

    def __init__(self, partition: Partition, parts: HostParts) -> None:
        self.partition = partition
        self.phase = Phase.LOADING
        self._parts = parts
        self._epoch = partition.leader_epoch
        self._machine = GroupCoordinator(parts.options)
        self._tickets: dict[Ticket, None] = {}
        self._retry_ms = LOAD_RETRY_MS
        self._has_begun = False
        self._timer: Timer | None = None
        self._timer_at: Instant | None = None
        self._renewal: Renewal | None = None
        self._look = self._look_at_partition  # one bound method: partitions know watchers by identity

    @property
    def image(self) -> GroupImage:
        return self._machine.image

    @property
    def waiting(self) -> int:
        """How many requests have no answer yet."""
        return len(self._tickets)

    def start(self) -> None:
        """Read the log as soon as what is in it is known to be committed, then serve."""
        self.partition.watch(self._look)
        self._begin()

    def _begin(self) -> None:
        if self._has_begun or not self.partition.is_established:
            return
        self._has_begun = True
        if self.partition.log.start == self.partition.log.end:
            self._loaded(None)
        else:
            self._load()

    def submit(self, command: Command) -> None:
        """Give the command to the machine; its ticket hears when the answer may be known."""
        ticket = command.ticket
        assert isinstance(ticket, Ticket)
        why = self._problem(command)
        if why is not None:
            if self.phase is Phase.LOADING:
                self._parts.loading.hurry(self.partition)
            ticket.done(Refused(why))
            return
        self._tickets[ticket] = None
        self._settle(self._machine.handle(command, self._now()))

    def _problem(self, command: Command) -> Why | None:
        why: Why | None = self.phase.value
        if self.partition.has_minimum or why not in (None, Why.COORDINATOR_LOADING):
            return why
        if why is None and isinstance(command, SERVED_REGARDLESS):
            return None
        # What was written now would be acknowledged at some time or other, if at all.
        return Why.COORDINATOR_NOT_AVAILABLE

    def append(self, facts: Sequence[Fact]) -> bool:
        """Append facts and apply them; False: they are not in the log, and the machine is gone."""
        try:
            self._check_epoch()
            batches, headers = write_batches(facts, self._parts.clock.wall())
            self.partition.append(batches, headers, self._parts.clock.wall())
        except BatchTooLarge as error:
            self._start_over(error, Refused(Why.BATCH_TOO_LARGE, str(error)))
            return False
        except ProtocolError as error:
            # Something a client sent has no place in the schemas; gateways should have seen to it.
            self._start_over(error, Refused(Why.INVALID_REQUEST, str(error)))
            return False
        except StorageError as error:
            self._start_over(error, Refused(Why.NOT_COORDINATOR, str(error)))
            return False
        except PartitionStopped as error:
            self.drop(str(error))
            return False
        for fact in facts:
            self._parts.witness.decided(self._machine.image, fact)
            self._apply(fact)
        return True

    def _apply(self, fact: Fact) -> None:
        self._machine.apply(fact)
        self._parts.witness.applied(self._machine.image, fact)

    def drop(self, reason: str) -> None:
        """Lead no more: whoever waits must look for the coordinator again."""
        if self.phase is Phase.DROPPED:
            return
        events.info("groups.coordinator_dropped", partition=str(self.partition.name), reason=reason)
        self.phase = Phase.DROPPED
        self.partition.unwatch(self._look)
        self._forget(Refused(Why.NOT_COORDINATOR, reason))

    def _check_epoch(self) -> None:
        if self.partition.leader_epoch != self._epoch:
            raise PartitionStopped(f"{self.partition.name}: leader epoch {self._epoch} is over")

    def _now(self) -> Moment:
        clock = self._parts.clock
        return Moment(clock.now(), clock.wall())

    def _load(self) -> None:
        self._timer = None
        self._machine = GroupCoordinator(self._parts.options)

        def apply(fact: Fact) -> None:
            if self.phase is Phase.LOADING:
                self._apply(fact)

        def loaded(error: PenstockError | None) -> None:
            if self.phase is Phase.LOADING:
                self._loaded(error)

        # One load at a time: it ends before this host can serve, and only a host that serves starts over.
        self._parts.loading.start(Load(self.partition, apply, loaded))

    def _loaded(self, error: PenstockError | None) -> None:
        if error is not None:
            self._load_failed(error)
            return
        self.phase = Phase.SERVING
        self._retry_ms = LOAD_RETRY_MS
        stale = self._parts.stale(self._machine.image)
        if not stale or self.append(stale):
            self._settle(self._machine.resume(self._now()))

    def _load_failed(self, error: PenstockError) -> None:
        """Try again later: a device may answer again, and an operator may put a segment right."""
        self.phase = Phase.FAILED
        retry_ms, self._retry_ms = self._retry_ms, min(2 * self._retry_ms, LOAD_RETRY_MS_MAX)
        self._parts.witness.load_failed(self.partition.name, error, retry_ms)
        self._parts.witness.forgotten(self._machine.image)
        self._timer = self._after_ms(retry_ms, self._load_again)

    def _load_again(self) -> None:
        self.phase = Phase.LOADING
        self._load()

    def _after_ms(self, delay_ms: int, fire: Callable[[], None]) -> Timer:
        return self._parts.timers.at(Instant(self._parts.clock.now() + delay_ms * MILLISECOND), fire)

    def _settle(self, outcome: Outcome) -> None:
        if outcome.facts and not self.append(outcome.facts):
            return
        for event in outcome.events:
            self._parts.witness.happened(event)
        if outcome.answers:
            self._release_when_acknowledged(outcome.answers)
        self._arm()
        if outcome.facts:
            self._renew_if_due()

    def _release_when_acknowledged(self, answers: Sequence[Answer]) -> None:
        partition = self.partition

        def acknowledged(error: PenstockError | None) -> None:
            # When the partition stops, the tickets are answered by `drop`, which its watchers call.
            if error is None:
                self._release(answers)
            elif isinstance(error, InDoubt):
                refused = Refused(Why.COORDINATOR_NOT_AVAILABLE, str(error))
                self._release([Answer(ticket, refused) for ticket, _ in answers])

        if partition.when_acknowledged(partition.log.end, acknowledged, self._parts.commit_timeout_ms):
            self._release(answers)

    def _release(self, answers: Sequence[Answer]) -> None:
        for ticket, reply in answers:
            # A ticket that is not here any more was answered when an earlier machine was dropped.
            if isinstance(ticket, Ticket) and self._tickets.pop(ticket, self) is None:
                ticket.done(reply)

    def _arm(self) -> None:
        """Have a timer no later than the machine's deadline; one that is early does no harm."""
        deadline = self._machine.next_deadline()
        if deadline is None or (self._timer_at is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._parts.timers.at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = self._timer_at = None
        if self.phase is Phase.SERVING:
            self._settle(self._machine.expire(self._now()))

    def _renew_if_due(self) -> None:
        if self._renewal is None and self.phase is Phase.SERVING:
            least = self._parts.renewal_records_min
            if Renewal.is_due(self.partition, self._machine.image, least):
                self._renewal = Renewal(self, self._parts.timers, self._renewed)
                self._renewal.start()

    def _renewed(self) -> None:
        self._renewal = None

    def _look_at_partition(self) -> None:
        if self.partition.stopped is not None:
            self.drop(str(self.partition.stopped))
        else:
            self._begin()

    def _start_over(self, error: PenstockError, refused: Refused) -> None:
        """An append failed: the machine is ahead of the log, which alone counts."""
        if self.partition.stopped is not None:
            self.drop(str(self.partition.stopped))
            return
        events.error("groups.append_failed", partition=str(self.partition.name), error=error)
        self._forget(refused)
        self.phase = Phase.LOADING
        # Not at once: a disk that is full is full for a while, and reading the log costs everybody.
        self._timer = self._after_ms(START_OVER_MS, self._load)

    def _forget(self, reply: Reply) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_at = None
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        self._parts.witness.forgotten(self._machine.image)
        tickets, self._tickets = self._tickets, {}
        for ticket in tickets:
            ticket.done(reply)
