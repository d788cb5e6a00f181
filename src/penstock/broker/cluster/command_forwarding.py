"""Forwards commands of a node that does not lead to the leading controller."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from penstock.broker.cluster.controller import Controller
from penstock.broker.cluster.peers import BasePeerWatcher, Channel, Peer
from penstock.broker.cluster.raft_host import CommandOutcome, RaftQuorum
from penstock.broker.cluster.rpc import (
    NotController,
    PeerRpc,
    ReadIndexReply,
    RequestReadIndex,
    Respond,
    RpcReply,
    SubmitCommand,
    SubmitCommandReply,
    decode_command,
    decode_reply,
    encode_command,
    encode_reply,
)
from penstock.core.metadata import Command, Reply
from penstock.core.metadata import Ok as Nothing
from penstock.core.metadata.commands import (
    AllocateProducerIds,
    AlterPartition,
    BeginControlledShutdown,
    DeposeLeader,
    RegisterBroker,
    ReportReplicas,
    ResignReplica,
    UnfenceBroker,
)
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, NodeId, Offset, ProtocolError
from penstock.core.raft import ReadIndex
from penstock.runtime import Callback, NodeIdentity, Runtime, Timer

Done: TypeAlias = Callable[[Reply], None]
# What a broker says of itself: nobody else says it.
ABOUT_THE_SENDER = (
    RegisterBroker,
    UnfenceBroker,
    ReportReplicas,
    BeginControlledShutdown,
    AllocateProducerIds,
    AlterPartition,
    ResignReplica,
    DeposeLeader,
)
# How long a command waits for a leader, and then for the reply.
PATIENCE_MS = 4_000
PARKED_MAX = 10_000
# How many commands are decided or sent in one turn of the loop: a node that has just become the leader may
# have thousands that wait for one.
COMMANDS_PER_TURN = 64
# A node that replies NotController learns the leader with the next heartbeats.
ASK_AGAIN_MS = 50
ANSWER_MS = 1_000
AGAIN_MS = 50


class LocalController(Protocol):
    """The part of this node's controller that other nodes use."""

    @property
    def is_leading(self) -> bool: ...

    def decide(self, command: Command, done: Callable[[Reply, Offset], None]) -> None:
        """Decide here; `done` gets the reply and the log end behind it, once that is committed."""

    def reply_when_committed(self, end: Offset, reply: Reply, done: Done) -> None:
        """Give the reply once our own committed image has every fact below `end`."""


class ParkedCommand(NamedTuple):
    """A command that was not sent, or not decided."""

    command: Command
    done: Done
    deadline: Instant


class CommandForwarder(BasePeerWatcher):
    """Knows the leader, and sends commands there.

    A command that was not received anywhere waits for a leader and may be sent several times. One that
    was sent and got no reply may have been decided: its caller gets an error, and checks the metadata.
    """

    def __init__(self, runtime: Runtime, desk: PeerRpc, me: NodeId) -> None:
        self._runtime = runtime
        self._rpc = desk
        self._me = me
        self._decider: LocalController
        self._parked: deque[ParkedCommand] = deque()
        self._timer: Timer | None = None
        self._goes_on = False
        self._sent = 0
        self._underway: dict[int, tuple[NodeId, ParkedCommand]] = {}
        self.leader: NodeId | None = None
        desk.serve(SubmitCommand, self._on_submit)

    def serve(self, decider: LocalController) -> None:
        """Have `decider` decide the commands of other nodes."""
        self._decider = decider

    def submit(self, command: Command, done: Done) -> None:
        """Have a command decided, wherever that is. `done` is never called inside this call."""
        if len(self._parked) >= PARKED_MAX:
            self._runtime.timers.soon(
                lambda: done(_error("too many commands wait for a controller; try again later"))
            )
            return
        deadline = Instant(self._runtime.clock.now() + PATIENCE_MS * MILLISECOND)
        self._parked.append(ParkedCommand(command, done, deadline))
        if not self._goes_on:
            self._pump()

    def leader_changed(self, leader: NodeId | None) -> None:
        """Fail commands that were sent to the old leader, and send those that wait to the new one."""
        self.leader = leader
        for number, (node, parked) in list(self._underway.items()):
            if node != leader:
                del self._underway[number]
                self._refuse(parked, f"node {node} does not lead the metadata quorum any more")
        self.retry()

    def retry(self) -> None:
        """Commands that wait may be sent, or decided here."""
        if self._parked and not self._goes_on:
            self._goes_on = True
            self._runtime.timers.soon(self._go_on)

    def reached(self, node: NodeId, _identity: NodeIdentity) -> None:
        if node == self.leader:
            self.retry()

    def drained(self, node: NodeId, channel: Channel) -> None:
        if node == self.leader and channel is Channel.CONTROL:
            self.retry()

    def _pump(self) -> None:
        parked = self._parked
        for _ in range(COMMANDS_PER_TURN):
            if not parked or not self._is_sent(parked[0]):
                break
            parked.popleft()
        else:
            self.retry()
        self._set_timer()

    def _go_on(self) -> None:
        self._goes_on = False
        self._pump()

    def _is_sent(self, parked: ParkedCommand) -> bool:
        if self._decider.is_leading:
            self._decider.decide(parked.command, lambda reply, _: parked.done(reply))
            return True
        leader = self.leader
        if leader is None or leader == self._me:
            return False
        self._sent += 1
        number = self._sent
        left_ms = max(1, (parked.deadline - self._runtime.clock.now()) // MILLISECOND)
        question = SubmitCommand(*encode_command(parked.command))
        if not self._rpc.call(leader, question, left_ms, lambda answer: self._answered(number, answer)):
            return False
        self._underway[number] = (leader, parked)
        return True

    def _answered(self, number: int, answer: RpcReply | None) -> None:
        node, parked = self._underway.pop(number, (self._me, None))
        if parked is None:
            return
        match answer:
            case SubmitCommandReply(name, content, end):
                try:
                    reply = decode_reply(name, content)
                except ProtocolError as wrong:
                    self._refuse(parked, f"the reply of node {node} cannot be decoded: {wrong}")
                    return
                self._decider.reply_when_committed(end, reply, parked.done)
            case NotController():
                self._parked.append(parked)
                self._set_timer()
            case _:
                self._refuse(parked, f"node {node} did not reply; the command may have been decided")

    def _set_timer(self) -> None:
        if self._timer is not None and not self._parked:
            self._timer.cancel()
            self._timer = None
        if self._parked and self._timer is None:
            soon = Instant(self._runtime.clock.now() + ASK_AGAIN_MS * MILLISECOND)
            self._timer = self._runtime.timers.at(soon, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        now = self._runtime.clock.now()
        for parked in [parked for parked in self._parked if parked.deadline <= now]:
            self._parked.remove(parked)
            self._refuse(parked, "no controller could be reached")
        self._pump()

    def _refuse(self, parked: ParkedCommand, detail: str) -> None:
        refusal = _error(detail)
        self._runtime.timers.soon(lambda: parked.done(refusal))

    def _on_submit(self, peer: Peer, question: SubmitCommand, respond: Respond) -> None:
        if not self._decider.is_leading:
            respond(NotController(self.leader, None))
            return

        def decided(reply: Reply, end: Offset) -> None:
            respond(SubmitCommandReply(*encode_reply(reply), end))

        try:
            command = decode_command(question.name, question.content)
        except ProtocolError as wrong:
            decided(
                ApiError(ErrorKind.INVALID_REQUEST, f"node {self._me} cannot decode this command: {wrong}"),
                Offset(0),
            )
            return
        if isinstance(command, ABOUT_THE_SENDER) and command.node_id != peer.node_id:
            raise ProtocolError(f"a {question.name} of node {command.node_id} from node {peer.node_id}")
        self._decider.decide(command, decided)


def _error(detail: str) -> ApiError:
    return ApiError(ErrorKind.NOT_CONTROLLER, detail)


class ReadIndexBarrier:
    """Asks the leader for its read index, and waits until this node's committed image has reached it."""

    def __init__(
        self, runtime: Runtime, desk: PeerRpc, quorum: RaftQuorum, controller: Controller, me: NodeId
    ) -> None:
        self._runtime = runtime
        self._rpc = desk
        self._quorum = quorum
        self._controller = controller
        self._me = me
        self._leaderless: list[Callback] = []
        desk.serve(RequestReadIndex, self._on_request)

    def catch_up(self, done: Callback) -> None:
        """Call `done` once the image is fresh; waits for a leader as long as it takes."""
        leader = self._controller.leader
        if leader is None:
            self._leaderless.append(done)
        elif leader == self._me:
            self._quorum.read(lambda outcome: self._read(outcome, done))
        elif not self._rpc.call(
            leader, RequestReadIndex(), ANSWER_MS, lambda answer: self._answered(answer, done)
        ):
            self._later(done)

    def _answered(self, answer: RpcReply | None, done: Callback) -> None:
        if isinstance(answer, ReadIndexReply):
            self._hold(answer.end, done)
        else:
            self._later(done)

    def _read(self, outcome: CommandOutcome, done: Callback) -> None:
        if isinstance(outcome, ReadIndex):
            self._hold(self._quorum.committed, done)
        else:
            self._later(done)

    def leader_changed(self) -> None:
        """Ask the new leader."""
        waiting, self._leaderless = self._leaderless, []
        for done in waiting:
            self.catch_up(done)

    def _later(self, done: Callback) -> None:
        deadline = Instant(self._runtime.clock.now() + AGAIN_MS * MILLISECOND)
        self._runtime.timers.at(deadline, lambda: self.catch_up(done))

    def _hold(self, end: Offset, done: Callback) -> None:
        def caught_up(_: Reply) -> None:
            done()

        self._controller.reply_when_committed(end, Nothing(), caught_up)

    def _on_request(self, _peer: Peer, _question: RequestReadIndex, respond: Respond) -> None:
        def read(outcome: CommandOutcome) -> None:
            if isinstance(outcome, ReadIndex):
                respond(ReadIndexReply(self._quorum.committed))
            else:
                respond(NotController(self._controller.leader, None))

        self._quorum.read(read)
