"""Questions about the quorum, answered by whoever leads it."""

from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from penstock.core.model import NodeId, Refused, Why
from penstock.core.raft import Member
from penstock.runtime import Address, Runtime
from penstock.services.cluster.control.addresses import AddressBook
from penstock.services.cluster.control.desk import ControlDesk, Respond
from penstock.services.cluster.control.messages import (
    AddVoter,
    Answer,
    AskQuorum,
    Elsewhere,
    QuorumStatus,
    RemoveVoter,
    VoterChanged,
)
from penstock.services.cluster.raft import RaftQuorum
from penstock.services.cluster.voters.changing import PATIENCE_NS, Changing
from penstock.services.cluster.voters.status import describe
from penstock.services.peering import Peer

Described: TypeAlias = Callable[[QuorumStatus | Refused], None]
Changed: TypeAlias = Callable[[Refused | None], None]
ANSWER_MS = 2_000
CHANGE_MS = PATIENCE_NS // 1_000_000 + 2_000
_NOBODY_LEADS = Refused(Why.NOT_CONTROLLER, "nobody is known to lead the metadata quorum")


class QuorumDesk:
    """How operators look at the quorum and change it, on every node."""

    def __init__(self, runtime: Runtime, desk: ControlDesk, quorum: RaftQuorum, book: AddressBook) -> None:
        self._runtime = runtime
        self._desk = desk
        self._quorum = quorum
        self._book = book
        self._changing = Changing(runtime, quorum, book)
        desk.serve(AskQuorum, self._asked)
        desk.serve(AddVoter, self._asked_to_add)
        desk.serve(RemoveVoter, self._asked_to_remove)

    def describe(self, done: Described) -> None:
        """How the quorum stands. `done` is never called inside this call."""
        if self._leads:
            status = self._describe()
            self._runtime.timers.soon(lambda: done(status))
            return

        def answered(answer: Answer | None) -> None:
            done(answer if isinstance(answer, QuorumStatus) else _NOBODY_LEADS)

        self._ask(AskQuorum(), ANSWER_MS, answered, lambda: done(_NOBODY_LEADS))

    def add_voter(self, node: NodeId, directory_id: UUID, address: Address | None, done: Changed) -> None:
        """Let a node vote; `done` hears None when it does, or why it cannot."""
        if self._leads:
            member = Member(node, directory_id)
            self._runtime.timers.soon(lambda: self._changing.add_voter(member, address, done))
        else:
            self._change(AddVoter(node, directory_id, address), done)

    def remove_voter(self, node: NodeId, directory_id: UUID, done: Changed) -> None:
        """Take a node's vote; `done` hears None when that is committed, or why it cannot be."""
        if self._leads:
            member = Member(node, directory_id)
            self._runtime.timers.soon(lambda: self._changing.remove_voter(member, done))
        else:
            self._change(RemoveVoter(node, directory_id), done)

    @property
    def _leads(self) -> bool:
        return self._quorum.leader_epoch is not None

    def _describe(self) -> QuorumStatus:
        return describe(self._quorum, self._runtime.clock, self._book)

    def _change(self, question: AddVoter | RemoveVoter, done: Changed) -> None:
        def answered(answer: Answer | None) -> None:
            if not isinstance(answer, VoterChanged):
                done(_NOBODY_LEADS)
            elif answer.why is None:
                done(None)
            else:
                done(Refused(answer.why, answer.detail))

        self._ask(question, CHANGE_MS, answered, lambda: done(_NOBODY_LEADS))

    def _ask(
        self,
        question: AskQuorum | AddVoter | RemoveVoter,
        patience_ms: int,
        answered: Callable[[Answer | None], None],
        failed: Callable[[], None],
    ) -> None:
        leader = self._quorum.raft.leader
        if leader is None or not self._desk.ask(leader.node_id, question, patience_ms, answered):
            self._runtime.timers.soon(failed)

    def _asked(self, _peer: Peer, _question: AskQuorum, respond: Respond) -> None:
        respond(self._describe() if self._leads else Elsewhere(None, None))

    def _asked_to_add(self, _peer: Peer, question: AddVoter, respond: Respond) -> None:
        member = Member(question.node_id, question.directory_id)
        if self._leads:
            self._changing.add_voter(member, question.address, lambda refusal: _tell(respond, refusal))
        else:
            respond(Elsewhere(None, None))

    def _asked_to_remove(self, _peer: Peer, question: RemoveVoter, respond: Respond) -> None:
        member = Member(question.node_id, question.directory_id)
        if self._leads:
            self._changing.remove_voter(member, lambda refusal: _tell(respond, refusal))
        else:
            respond(Elsewhere(None, None))


def _tell(respond: Respond, refusal: Refused | None) -> None:
    respond(VoterChanged() if refusal is None else VoterChanged(refusal.why, refusal.detail))
