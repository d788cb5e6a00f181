"""Catching up with everything that was acknowledged before the question."""

from penstock.core.metadata import Ok as Nothing
from penstock.core.metadata import Reply
from penstock.core.model import MILLISECOND, Instant, NodeId, Offset
from penstock.core.raft import ReadIndex
from penstock.runtime import Callback, Runtime
from penstock.services.cluster.control.desk import ControlDesk, Respond
from penstock.services.cluster.control.messages import Answer, Elsewhere, Readable, ReadEnd
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.raft import Outcome, RaftQuorum
from penstock.services.peering import Peer

ANSWER_MS = 1_000
AGAIN_MS = 50


class Freshness:
    """Asks the leader how much there is, and waits until the committed image of this node has it."""

    def __init__(
        self, runtime: Runtime, desk: ControlDesk, quorum: RaftQuorum, controller: Controller, me: NodeId
    ) -> None:
        self._runtime = runtime
        self._desk = desk
        self._quorum = quorum
        self._controller = controller
        self._me = me
        self._leaderless: list[Callback] = []
        desk.serve(ReadEnd, self._asked)

    def catch_up(self, done: Callback) -> None:
        """Call `done` once the image is fresh; waits for a leader as long as it takes."""
        leader = self._controller.leader
        if leader is None:
            self._leaderless.append(done)
        elif leader == self._me:
            self._quorum.read(lambda outcome: self._read(outcome, done))
        elif not self._desk.ask(leader, ReadEnd(), ANSWER_MS, lambda answer: self._answered(answer, done)):
            self._later(done)

    def _answered(self, answer: Answer | None, done: Callback) -> None:
        if isinstance(answer, Readable):
            self._hold(answer.end, done)
        else:
            self._later(done)

    def _read(self, outcome: Outcome, done: Callback) -> None:
        if isinstance(outcome, ReadIndex):
            self._hold(self._quorum.committed, done)
        else:
            self._later(done)

    def leader_changed(self) -> None:
        """There may be somebody to ask now."""
        waiting, self._leaderless = self._leaderless, []
        for done in waiting:
            self.catch_up(done)

    def _later(self, done: Callback) -> None:
        deadline = Instant(self._runtime.clock.now() + AGAIN_MS * MILLISECOND)
        self._runtime.timers.at(deadline, lambda: self.catch_up(done))

    def _hold(self, end: Offset, done: Callback) -> None:
        def caught_up(_: Reply) -> None:
            done()

        self._controller.hold(end, Nothing(), caught_up)

    def _asked(self, _peer: Peer, _question: ReadEnd, respond: Respond) -> None:
        def read(outcome: Outcome) -> None:
            if isinstance(outcome, ReadIndex):
                respond(Readable(self._quorum.committed))
            else:
                respond(Elsewhere(self._controller.leader, None))

        self._quorum.read(read)
