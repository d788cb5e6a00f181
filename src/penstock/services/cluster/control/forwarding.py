"""Commands of a node that does not lead: carried to whoever does."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from penstock.core.metadata import Command, Reply
from penstock.core.model import MILLISECOND, Instant, NodeId, Offset, ProtocolError, Refused, Why
from penstock.runtime import NodeIdentity, Runtime, Timer
from penstock.services.cluster.control.codec import decode_command, decode_reply, encode_command, encode_reply
from penstock.services.cluster.control.desk import ControlDesk, Respond
from penstock.services.cluster.control.messages import Answer, Elsewhere, Submit, Submitted
from penstock.services.peering import Channel, LaxWatcher, Peer

Done: TypeAlias = Callable[[Reply], None]
# How long a command waits for somebody to lead, and then for the answer.
PATIENCE_MS = 4_000
PARKED_MAX = 10_000
# A node that says it does not lead learns who does with the next heartbeats.
ASK_AGAIN_MS = 50


class Decider(Protocol):
    """The controller of this node, as far as it concerns others."""

    @property
    def is_leading(self) -> bool: ...

    def decide(self, command: Command, done: Callable[[Reply, Offset], None]) -> None:
        """Decide here; `done` hears the reply, and the log end behind it, once that is committed."""

    def hold(self, end: Offset, reply: Reply, done: Done) -> None:
        """Give the reply once our own committed image has every fact below `end`."""


class Parked(NamedTuple):
    """A command that was not sent, or not decided."""

    command: Command
    done: Done
    deadline: Instant


class Forwarding(LaxWatcher):
    """Knows who leads, and brings commands there.

    A command that nobody has seen waits for a leader and may be sent several times. One that
    was sent and not answered may have been decided: it is refused, and its owner looks again.
    """

    def __init__(self, runtime: Runtime, desk: ControlDesk, me: NodeId) -> None:
        self._runtime = runtime
        self._desk = desk
        self._me = me
        self._decider: Decider
        self._parked: deque[Parked] = deque()
        self._timer: Timer | None = None
        self._sent = 0
        self._underway: dict[int, tuple[NodeId, Parked]] = {}
        self.leader: NodeId | None = None
        desk.serve(Submit, self._asked)

    def serve(self, decider: Decider) -> None:
        """Decide here what comes from others."""
        self._decider = decider

    def submit(self, command: Command, done: Done) -> None:
        """Have a command decided, wherever that is. `done` is never called inside this call."""
        if len(self._parked) >= PARKED_MAX:
            self._runtime.timers.soon(lambda: done(_refused("too many commands wait for a controller")))
            return
        deadline = Instant(self._runtime.clock.now() + PATIENCE_MS * MILLISECOND)
        self._parked.append(Parked(command, done, deadline))
        self._pump()

    def leader_changed(self, leader: NodeId | None) -> None:
        """What was sent to another may be decided or not; what was not sent goes to this one."""
        self.leader = leader
        for number, (node, parked) in list(self._underway.items()):
            if node != leader:
                del self._underway[number]
                self._refuse(parked, f"node {node} does not lead the metadata quorum any more")
        self.look_again()

    def look_again(self) -> None:
        """Commands that wait may be sent, or decided here."""
        if self._parked:
            self._runtime.timers.soon(self._pump)

    def reached(self, node: NodeId, _identity: NodeIdentity) -> None:
        if node == self.leader:
            self.look_again()

    def drained(self, node: NodeId, channel: Channel) -> None:
        if node == self.leader and channel is Channel.CONTROL:
            self.look_again()

    def _pump(self) -> None:
        parked = self._parked
        while parked and self._is_sent(parked[0]):
            parked.popleft()
        self._set_timer()

    def _is_sent(self, parked: Parked) -> bool:
        if self._decider.is_leading:
            self._decider.decide(parked.command, lambda reply, _: parked.done(reply))
            return True
        leader = self.leader
        if leader is None or leader == self._me:
            return False
        self._sent += 1
        number = self._sent
        left_ms = max(1, (parked.deadline - self._runtime.clock.now()) // MILLISECOND)
        question = Submit(*encode_command(parked.command))
        if not self._desk.ask(leader, question, left_ms, lambda answer: self._answered(number, answer)):
            return False
        self._underway[number] = (leader, parked)
        return True

    def _answered(self, number: int, answer: Answer | None) -> None:
        node, parked = self._underway.pop(number, (self._me, None))
        if parked is None:
            return
        match answer:
            case Submitted(name, content, end):
                try:
                    reply = decode_reply(name, content)
                except ProtocolError as wrong:
                    self._refuse(parked, f"the answer of node {node} cannot be read: {wrong}")
                    return
                self._decider.hold(end, reply, parked.done)
            case Elsewhere():
                self._parked.append(parked)
                self._set_timer()
            case _:
                self._refuse(parked, f"node {node} did not answer")

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parked:
            soon = Instant(self._runtime.clock.now() + ASK_AGAIN_MS * MILLISECOND)
            self._timer = self._runtime.timers.at(soon, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        now = self._runtime.clock.now()
        for parked in [parked for parked in self._parked if parked.deadline <= now]:
            self._parked.remove(parked)
            self._refuse(parked, "no controller could be reached")
        self._pump()

    def _refuse(self, parked: Parked, detail: str) -> None:
        refusal = _refused(detail)
        self._runtime.timers.soon(lambda: parked.done(refusal))

    def _asked(self, _peer: Peer, question: Submit, respond: Respond) -> None:
        if not self._decider.is_leading:
            respond(Elsewhere(self.leader, None))
            return

        def decided(reply: Reply, end: Offset) -> None:
            respond(Submitted(*encode_reply(reply), end))

        try:
            command = decode_command(question.name, question.content)
        except ProtocolError as wrong:
            decided(
                Refused(Why.INVALID_REQUEST, f"node {self._me} does not know this command: {wrong}"),
                Offset(0),
            )
            return
        self._decider.decide(command, decided)


def _refused(detail: str) -> Refused:
    return Refused(Why.NOT_CONTROLLER, detail)
