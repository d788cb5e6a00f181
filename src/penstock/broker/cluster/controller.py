"""Decides commands, and keeps the committed image."""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from penstock.broker.cluster.quorum import Quorum
from penstock.core.metadata import (
    EMPTY_IMAGE,
    METADATA_VERSION,
    Command,
    ControllerConfig,
    Fact,
    MetadataImage,
    MetadataMachine,
    Ok,
    Reply,
    UpdateFeatures,
    problem_with_level,
    replay,
)
from penstock.core.metadata.commands import AccessCommand
from penstock.core.model import ApiError, ErrorKind, LeaderEpoch, NodeId, Offset
from penstock.runtime import Callback, Runtime
from penstock.storage.disk import DiskFull

Done: TypeAlias = Callable[[Reply], None]
Decided: TypeAlias = Callable[[Reply, Offset], None]
Subscriber: TypeAlias = Callable[[MetadataImage], None]
# More facts than this are appended at once, without waiting for the turn to end.
FACTS_PER_TURN_MAX = 5_000


class UncommittedReply(NamedTuple):
    """A reply that must not be released before `end` is committed."""

    end: Offset
    reply: Reply
    done: Decided


class RemoteController(Protocol):
    """The way to the leading controller, when that is not this node."""

    @property
    def leader(self) -> NodeId | None:
        """The node that leads, as far as we know."""

    def submit(self, command: Command, done: Done) -> None: ...

    def retry(self) -> None:
        """Hand back the commands that wait: this node decides from now on."""


class FeatureSupport(Protocol):
    """What members support that the metadata does not know, because they are no brokers."""

    def problem_with(self, command: UpdateFeatures, image: MetadataImage) -> ApiError | None: ...


class ControllerTask(Protocol):
    """Something that runs while this node is the leading controller."""

    def on_leadership_gained(self) -> None:
        """The node is the leading controller now, and decides what is submitted."""

    def on_leadership_lost(self) -> None:
        """The node is no longer the leading controller."""


class Controller:
    """The host of the metadata machine on this node.

    Commands of one turn of the loop share one append. `done` is never called inside
    `submit`, and replies that are decided here come in the order of the commands. What another
    node decided is replied to once our own committed image has it.
    """

    def __init__(
        self,
        runtime: Runtime,
        quorum: Quorum,
        around: ControllerConfig | None = None,
        elsewhere: RemoteController | None = None,
        members: FeatureSupport | None = None,
    ) -> None:
        self._runtime = runtime
        self._quorum = quorum
        self._config = around or ControllerConfig()
        self._elsewhere = elsewhere
        self._members = members
        self._machine: MetadataMachine | None = None
        self._epoch = LeaderEpoch(-1)
        self._pending: list[Fact] = []
        # The speculative image as far as it is in the log, and the log end behind it.
        self._appended = EMPTY_IMAGE
        self._end = Offset(0)
        # The same after each append that is not committed, by the log end behind it.
        self._uncommitted: deque[tuple[Offset, MetadataImage]] = deque()
        self._waiting: deque[UncommittedReply] = deque()
        # Replies of other nodes that are ahead of our image, by the log end they need.
        self._held: list[tuple[Offset, int, Reply, Done]] = []
        self._holds = 0
        self._turn_set = False
        self._subscribers: list[Subscriber] = []
        self._tasks: list[ControllerTask] = []
        self.image: MetadataImage = EMPTY_IMAGE

    @property
    def is_leading(self) -> bool:
        """Whether commands are decided here."""
        return self._machine is not None

    @property
    def leader(self) -> NodeId | None:
        """The leading controller's node; None if it is unknown, or if there are no others."""
        return None if self._elsewhere is None else self._elsewhere.leader

    @property
    def committed(self) -> Offset:
        """How many facts the committed image holds: the epoch of everything read from it."""
        return self._quorum.committed

    def start(self) -> None:
        """Recover the metadata. Blocks on the disk."""
        self._quorum.start(self)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Hand every new committed image to `subscriber`, before any reply that depends on it."""
        self._subscribers.append(subscriber)

    def add_task(self, duty: ControllerTask) -> None:
        """Notify `duty` whenever this node becomes the leading controller, and when it stops being it."""
        self._tasks.append(duty)

    def submit(self, command: Command, done: Done) -> None:
        """Have a command decided; `done` gets the reply once what it was decided on is committed."""
        if self._machine is None and self._elsewhere is not None:
            # The leading controller may be of an older version.
            error = problem_with_level(command, self.image.feature_level(METADATA_VERSION))
            if error is None:
                self._elsewhere.submit(command, done)
            else:
                self._runtime.timers.soon(partial(done, error))
        else:
            self.decide(command, lambda reply, _: done(reply))

    def decide(self, command: Command, done: Decided) -> None:
        """Decide a command here; `done` gets the reply and the log end behind it."""
        machine = self._machine
        if machine is None:
            self._waiting.append(UncommittedReply(Offset(0), _NOT_LEADING, done))
        else:
            error = None
            if isinstance(command, UpdateFeatures) and self._members is not None:
                error = self._members.problem_with(command, machine.image)
            reply = error or self._decided(machine, command)
            seen = Offset(self._end + len(self._pending))
            if error is None and isinstance(command, AccessCommand) and not self._pending:
                # Else it waits for what this turn appends: that needs a majority, and may fail.
                self._confirm(UncommittedReply(seen, reply, done))
                return
            self._waiting.append(UncommittedReply(seen, reply, done))
            if len(self._pending) >= FACTS_PER_TURN_MAX:
                self._append()
        self._set_turn()

    def _set_turn(self) -> None:
        if not self._turn_set:
            self._turn_set = True
            self._runtime.timers.soon(self._turn_ended)

    def _confirm(self, unconfirmed: UncommittedReply) -> None:
        """Reply that there is nothing to change once a majority has confirmed that this node still leads.

        Nothing is written that could fail: a leader that was replaced and does not know it yet would say
        that there is no such rule, and whoever takes a right back would believe it.
        """

        def confirmed(is_leading: bool) -> None:
            reply = unconfirmed if is_leading else unconfirmed._replace(end=Offset(0), reply=_NOT_LEADING)
            self._waiting.append(reply)
            self._set_turn()

        self._quorum.confirm(confirmed)

    def _decided(self, machine: MetadataMachine, command: Command) -> Reply:
        decision = machine.decide(command, self._runtime.clock.now())
        machine.replay(decision.facts)
        self._pending += decision.facts
        return decision.reply

    def reply_when_committed(self, end: Offset, reply: Reply, done: Done) -> None:
        """Give a reply that was decided elsewhere once every fact below `end` is in our image."""
        self._holds += 1
        heapq.heappush(self._held, (end, self._holds, reply, done))
        self._runtime.timers.soon(self._release)

    def when_committed(self, end: Offset, done: Callback) -> None:
        """Call `done` once every fact below `end` is in our image."""
        self.reply_when_committed(end, Ok(), lambda _reply: done())

    def _turn_ended(self) -> None:
        self._turn_set = False
        self._append()
        self._release()

    def _append(self) -> None:
        machine = self._machine
        if machine is None or not self._pending:
            return
        facts, self._pending = tuple(self._pending), []
        try:
            end = self._quorum.propose(facts, self._epoch)
        except DiskFull as full:
            end = ApiError(ErrorKind.STORAGE_FAILED, str(full))
        if isinstance(end, ApiError):
            self._take_back(machine, end)
        else:
            self._end, self._appended = end, machine.image
            self._uncommitted.append((end, machine.image))

    def _take_back(self, machine: MetadataMachine, error: ApiError) -> None:
        """Undo this turn: nothing was appended, so what was decided never happened."""
        machine.image = self._appended
        kept = (entry for entry in self._waiting if entry.end <= self._end)
        lost = (
            UncommittedReply(self._end, error, entry.done) for entry in self._waiting if entry.end > self._end
        )
        self._waiting = deque((*kept, *lost))

    def _release(self) -> None:
        waiting, committed = self._waiting, self._quorum.committed
        while waiting and waiting[0].end <= committed:
            entry = waiting.popleft()
            entry.done(entry.reply, entry.end)
        while self._held and self._held[0][0] <= self._quorum.committed:
            _, _, reply, done = heapq.heappop(self._held)
            done(reply)

    def restored(self, image: MetadataImage) -> None:
        self._publish(image)
        self._release()

    def facts_committed(self, facts: Sequence[Fact]) -> None:
        committed, image = self._quorum.committed, None
        while self._uncommitted and self._uncommitted[0][0] <= committed:
            end, image = self._uncommitted.popleft()
            if end != committed:
                image = None
        # What this node has decided is applied already: while it leads, the log is what was committed when
        # that began and what it has appended since, so its image of that end is what the facts add up to.
        self._publish(replay(self.image, facts) if image is None else image)
        self._release()

    def _publish(self, image: MetadataImage) -> None:
        self.image = image
        for subscriber in self._subscribers:
            subscriber(image)

    def leadership_gained(self, epoch: LeaderEpoch) -> None:
        self._epoch = epoch
        self._machine = MetadataMachine(self.image, self._config)
        self._uncommitted.clear()
        self._appended, self._end = self.image, self._quorum.end
        if self._elsewhere is not None:
            self._elsewhere.retry()
        for duty in self._tasks:
            duty.on_leadership_gained()

    def leadership_lost(self) -> None:
        """Drop the speculative image; commands that wait fail, and their outcome is unknown."""
        self._machine = None
        self._uncommitted.clear()
        for duty in self._tasks:
            duty.on_leadership_lost()
        self._pending.clear()
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            entry.done(_NOT_LEADING, Offset(0))


_NOT_LEADING = ApiError(ErrorKind.NOT_CONTROLLER, "this node does not lead the metadata quorum")
