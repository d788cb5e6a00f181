"""The members of the metadata quorum, as operators see and change them.

    QuorumAdmin (every node) ── describe, add_voter, remove_voter ──► the leader ──► Raft

Any node can be asked; one that does not lead forwards the request to the leader. A node becomes a
voter in two steps, as a learner first, and the reply comes when it has its vote. A voter that is
removed stays a learner if it is a broker, for brokers need the metadata.

Left out: more than one change at a time, which Raft does not allow.
"""

from collections.abc import Callable
from typing import TypeAlias
from uuid import UUID

from penstock.broker.cluster.node_addresses import AddressBook
from penstock.broker.cluster.peers import Peer
from penstock.broker.cluster.raft_host import CommandOutcome, RaftQuorum
from penstock.broker.cluster.rpc import (
    AddVoter,
    ChangeVotersReply,
    DescribeQuorum,
    NotController,
    PeerRpc,
    QuorumMemberStatus,
    QuorumStatus,
    RemoveVoter,
    Respond,
    RpcReply,
)
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    ErrorKind,
    Instant,
    LeaderEpoch,
    NodeId,
    Offset,
    Timestamp,
)
from penstock.core.raft import AddLearner, Change, Member, PromoteLearner, ProposalAccepted, RemoveMember
from penstock.observability import log as events
from penstock.runtime import Address, Clock, Runtime

VoterChangeDone: TypeAlias = Callable[[ApiError | None], None]
PATIENCE_NS = 10 * SECOND
LOOK_MS = 20
Described: TypeAlias = Callable[[QuorumStatus | ApiError], None]
Changed: TypeAlias = Callable[[ApiError | None], None]
ANSWER_MS = 2_000
CHANGE_MS = PATIENCE_NS // 1_000_000 + 2_000
_NOBODY_LEADS = ApiError(ErrorKind.NOT_CONTROLLER, "the metadata quorum has no known leader; try again")


class VoterChanges:
    """Carries out membership changes, each until it is committed or times out."""

    def __init__(self, runtime: Runtime, quorum: RaftQuorum, book: AddressBook) -> None:
        self._runtime = runtime
        self._quorum = quorum
        self._book = book

    def add_voter(self, member: Member, address: Address | None, told: VoterChangeDone) -> None:
        """Make a node a voter; `told` gets None when it is."""
        if any(voter.node_id == member.node_id for voter in self._quorum.raft.configuration.voters):
            told(ApiError(ErrorKind.DUPLICATE_VOTER, f"node {member.node_id} is a voter already"))
            return
        if address is not None:
            self._book.learn(member.node_id, address)
        self._promote(member, self._deadline(), told)

    def _promote(self, member: Member, until: Instant, told: VoterChangeDone) -> None:
        members = self._quorum.raft.configuration
        if member in members.voters:
            told(None)
        elif member in members.learners:
            self._change(PromoteLearner(member), until, told, then=told)
        else:

            def promoted(error: ApiError | None) -> None:
                if error is not None and member in self._quorum.raft.configuration.learners:
                    # Nobody asked for a learner, and one that does not exist would be waited for.
                    self._quorum.change_members(RemoveMember(member), lambda _: None)
                told(error)

            self._change(
                AddLearner(member), until, told, then=lambda _: self._promote(member, until, promoted)
            )

    def remove_voter(self, member: Member, told: VoterChangeDone) -> None:
        """Remove a voter; `told` gets None when that is committed."""
        voters = self._quorum.raft.configuration.voters
        if member not in voters:
            detail = f"node {member.node_id} with directory {member.directory_id} is not a voter"
            told(ApiError(ErrorKind.VOTER_NOT_FOUND, detail))
        elif voters == (member,):
            told(ApiError(ErrorKind.INVALID_REQUEST, f"node {member.node_id} is the last voter"))
        else:
            self._change(RemoveMember(member), self._deadline(), told, then=told)

    def _deadline(self) -> Instant:
        return Instant(self._runtime.clock.now() + PATIENCE_NS)

    def _change(self, change: Change, until: Instant, told: VoterChangeDone, then: VoterChangeDone) -> None:
        """Submit the change until Raft takes it, and continue when it is committed."""

        def asked(outcome: CommandOutcome) -> None:
            if isinstance(outcome, ProposalAccepted):
                node: NodeId = change.member.node_id
                events.info("quorum.members_changed", change=type(change).__name__, node=node)
                self._await_commit(outcome, until, told, then)
                return
            assert isinstance(outcome, ApiError)
            if outcome.kind is ErrorKind.QUORUM_BUSY and self._is_before(until):
                self._later(lambda: self._change(change, until, told, then))
            else:
                told(_about(change, outcome))

        self._quorum.change_members(change, asked)

    def _await_commit(
        self, accepted: ProposalAccepted, until: Instant, told: VoterChangeDone, then: VoterChangeDone
    ) -> None:
        raft = self._quorum.raft
        if raft.commit >= accepted.start:
            then(None)
        elif raft.term != accepted.term or not self._is_before(until):
            told(ApiError(ErrorKind.NOT_CONTROLLER, "the change is in the log, but may not be committed"))
        else:
            self._later(lambda: self._await_commit(accepted, until, told, then))

    def _is_before(self, until: Instant) -> bool:
        return self._runtime.clock.now() < until

    def _later(self, again: Callable[[], None]) -> None:
        self._runtime.timers.at(Instant(self._runtime.clock.now() + LOOK_MS * MILLISECOND), again)


def _about(change: Change, error: ApiError) -> ApiError:
    """The same error, naming the node; a temporary one has become a timeout."""
    kind = ErrorKind.TIMED_OUT if error.kind is ErrorKind.QUORUM_BUSY else error.kind
    return ApiError(kind, f"node {change.member.node_id}: {error}")


def describe(quorum: RaftQuorum, clock: Clock, book: AddressBook) -> QuorumStatus:
    """What the leader knows; times are those of its own wall clock."""
    raft, now, wall = quorum.raft, clock.now(), clock.wall()

    def moment(instant: Instant | None) -> Timestamp | None:
        return None if instant is None else Timestamp(wall - (now - instant) // MILLISECOND)

    def status(member: Member) -> QuorumMemberStatus:
        address = book.address_of(member.node_id)
        peer = raft.followers.get(member)
        if peer is None:
            return QuorumMemberStatus(*_named(member), Offset(raft.last), wall, wall, address)
        heard, caught_up = moment(peer.heard_at), moment(peer.caught_up_at)
        return QuorumMemberStatus(*_named(member), Offset(peer.match), heard, caught_up, address)

    members = raft.configuration
    return QuorumStatus(
        quorum.me.node_id,
        LeaderEpoch(raft.term),
        Offset(raft.commit),
        tuple(status(voter) for voter in members.voters),
        tuple(status(learner) for learner in members.learners),
    )


def _named(member: Member) -> tuple[NodeId, UUID]:
    return member.node_id, member.directory_id


class QuorumAdmin:
    """Describes and changes the quorum for operators, on every node."""

    def __init__(self, runtime: Runtime, desk: PeerRpc, quorum: RaftQuorum, book: AddressBook) -> None:
        self._runtime = runtime
        self._rpc = desk
        self._quorum = quorum
        self._book = book
        self._changing = VoterChanges(runtime, quorum, book)
        desk.serve(DescribeQuorum, self._on_describe)
        desk.serve(AddVoter, self._on_add_voter)
        desk.serve(RemoveVoter, self._on_remove_voter)

    def describe(self, done: Described) -> None:
        """Get the state of the quorum. `done` is never called inside this call."""
        if self._leads:
            status = self._describe()
            self._runtime.timers.soon(lambda: done(status))
            return

        def answered(answer: RpcReply | None) -> None:
            done(answer if isinstance(answer, QuorumStatus) else _NOBODY_LEADS)

        self._ask(DescribeQuorum(), ANSWER_MS, answered, lambda: done(_NOBODY_LEADS))

    def add_voter(self, node: NodeId, directory_id: UUID, address: Address | None, done: Changed) -> None:
        """Make a node a voter; `done` gets None when it is, or the error."""
        if self._leads:
            member = Member(node, directory_id)
            self._runtime.timers.soon(lambda: self._changing.add_voter(member, address, done))
        else:
            self._change(AddVoter(node, directory_id, address), done)

    def remove_voter(self, node: NodeId, directory_id: UUID, done: Changed) -> None:
        """Remove a voter; `done` gets None when that is committed, or the error."""
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
        def answered(answer: RpcReply | None) -> None:
            if not isinstance(answer, ChangeVotersReply):
                done(_NOBODY_LEADS)
            elif answer.kind is None:
                done(None)
            else:
                done(ApiError(answer.kind, answer.detail))

        self._ask(question, CHANGE_MS, answered, lambda: done(_NOBODY_LEADS))

    def _ask(
        self,
        question: DescribeQuorum | AddVoter | RemoveVoter,
        patience_ms: int,
        answered: Callable[[RpcReply | None], None],
        failed: Callable[[], None],
    ) -> None:
        leader = self._quorum.raft.leader
        if leader is None or not self._rpc.call(leader.node_id, question, patience_ms, answered):
            self._runtime.timers.soon(failed)

    def _on_describe(self, _peer: Peer, _question: DescribeQuorum, respond: Respond) -> None:
        respond(self._describe() if self._leads else NotController(None, None))

    def _on_add_voter(self, _peer: Peer, question: AddVoter, respond: Respond) -> None:
        member = Member(question.node_id, question.directory_id)
        if self._leads:
            self._changing.add_voter(member, question.address, lambda refusal: _reply(respond, refusal))
        else:
            respond(NotController(None, None))

    def _on_remove_voter(self, _peer: Peer, question: RemoveVoter, respond: Respond) -> None:
        member = Member(question.node_id, question.directory_id)
        if self._leads:
            self._changing.remove_voter(member, lambda refusal: _reply(respond, refusal))
        else:
            respond(NotController(None, None))


def _reply(respond: Respond, error: ApiError | None) -> None:
    respond(ChangeVotersReply() if error is None else ChangeVotersReply(error.kind, error.detail))
