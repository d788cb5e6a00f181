"""How a blank node becomes a member: it bootstraps a quorum with others, or joins an existing one.

    blank ── Bootstrap ──┬── every voter is blank and has the same list ────────► BootstrapAsVoter
       (asks every voter)├── one is a member of a quorum bootstrapped with us ──► BootstrapAsVoter
                         ├── one is a member of a quorum without us ────────────► JoinExisting
                         └── lists differ, two clusters, an id that is taken ───► BootstrapFailed

Every node asks all voters repeatedly, in rounds, and says which ones it has reached. It bootstraps
only when all have replied in one round with the same list of voters and the same directories, over
links to the addresses in the list: so no two nodes ever bootstrap different quorums out of the same
directories. A node that was away at that time learns the initial members from another.

`QuorumJoiner` is the newcomer's side: it asks until it is the member it wants to be. `JoinHandler`
is the leader's: one membership change per request, and each request is safe to repeat. A voter whose
directory is lost comes back with a new one; the old one is removed first, unless a node still runs
with it.

    meta/joining      exists while a newcomer waits for its vote: see `write_join_intent`

Left out: bootstrapping with a part of the voters; discovering voters other than by the list.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.broker.cluster.node_addresses import AddressBook
from penstock.broker.cluster.peers import BasePeerWatcher, Peer, PeerManager
from penstock.broker.cluster.raft_host import CommandOutcome, RaftQuorum
from penstock.broker.cluster.rpc import (
    Introduction,
    IntroductionReply,
    JoinQuorum,
    JoinQuorumReply,
    JoinStatus,
    NotController,
    PeerRpc,
    Respond,
    RpcReply,
    Voter,
)
from penstock.core.metadata import SUPPORTED_FEATURES
from penstock.core.model import MILLISECOND, SECOND, ApiError, ErrorKind, Instant, NodeId, PenstockError
from penstock.core.raft import (
    EMPTY_CONFIGURATION,
    AddLearner,
    Change,
    Configuration,
    Member,
    PromoteLearner,
    ProposalAccepted,
    RemoveMember,
)
from penstock.observability import log as events
from penstock.runtime import Address, Clock, CloseReason, NodeIdentity, Runtime, Timer
from penstock.storage.data_directory import RecordFileDamaged, read_record, write_record
from penstock.storage.disk import Disk

# A node that is silent for this long is taken for stopped.
SILENT_NS = 1 * SECOND
ROUND_MS = 100
VOTER_REPLY_TIMEOUT_MS = 1_000
REMINDER_NS = 5 * SECOND
# No warnings during this time: nodes that are started together need it to come up.
FIRST_REMINDER_NS = SECOND
_META, _NAME, _VOTER = "meta", "joining", "voter"
AGAIN_MS = 100
# How often a member asks whether it still is one, until it is registered.
STILL_MEMBER_MS = 1_000
JOIN_REPLY_TIMEOUT_MS = 2_000
RIVAL_NS = 4 * SECOND
# Longer than it takes a quorum to notice that its leader is gone.
NAMESAKE_NS = 5 * SECOND


class JoinHandler:
    """The leader's side of joining: adds newcomers, as learners first."""

    def __init__(self, desk: PeerRpc, clock: Clock, book: AddressBook, quorum: RaftQuorum) -> None:
        self._clock = clock
        self._book = book
        self._quorum = quorum
        desk.serve(JoinQuorum, self._on_join)

    def _on_join(self, peer: Peer, question: JoinQuorum, respond: Respond) -> None:
        raft = self._quorum.raft
        if self._quorum.leader_epoch is None:
            leader = None if raft.leader is None else raft.leader.node_id
            respond(NotController(leader, None if leader is None else self._book.address_of(leader)))
            return
        newcomer, members = Member(peer.node_id, peer.directory_id), raft.configuration
        rival = _rival(newcomer, members)
        if rival is not None and self._is_there(rival):
            detail = f"node {rival.node_id} is already running with another data directory"
            respond(JoinQuorumReply(JoinStatus.REFUSED, detail))
            return
        change = _next_change(newcomer, members, rival, wants_vote=question.wants_vote)
        if change is None:
            is_voter = newcomer in members.voters
            respond(JoinQuorumReply(JoinStatus.VOTER if is_voter else JoinStatus.LEARNER))
            return
        self._quorum.change_members(change, lambda outcome: _on_reply(change, outcome, respond))

    def _is_there(self, member: Member) -> bool:
        """Whether a member replies to our heartbeats; a link alone may lead to a machine without power."""
        peer = self._quorum.raft.followers.get(member)
        return peer is None or self._clock.now() - peer.heard_at < SILENT_NS


def _rival(newcomer: Member, members: Configuration) -> Member | None:
    """The member with the newcomer's node id or its directory, but not both."""
    for member in members.members:
        same = (member.node_id == newcomer.node_id, member.directory_id == newcomer.directory_id)
        if any(same) and not all(same):
            return member
    return None


def _next_change(
    newcomer: Member, members: Configuration, rival: Member | None, *, wants_vote: bool
) -> Change | None:
    if rival is not None:
        return RemoveMember(rival)
    if newcomer not in members.members:
        return AddLearner(newcomer)
    if wants_vote and newcomer in members.learners:
        return PromoteLearner(newcomer)
    return None


def _on_reply(change: Change, outcome: CommandOutcome, respond: Respond) -> None:
    node: NodeId = change.member.node_id
    if isinstance(outcome, ProposalAccepted):
        events.info("quorum.members_changed", change=type(change).__name__, member=node)
        respond(JoinQuorumReply(JoinStatus.LATER))
    elif isinstance(outcome, ApiError) and outcome.kind is ErrorKind.NOT_CONTROLLER:
        respond(NotController(None, None))
    else:
        respond(JoinQuorumReply(JoinStatus.LATER, str(outcome) if isinstance(outcome, ApiError) else ""))


class BootstrapFailed(PenstockError):
    """A node cannot take part with the voters it was given; the text is for the operator."""


class BootstrapAsVoter(NamedTuple):
    """Start a new log with these members."""

    members: Configuration


class JoinExisting(NamedTuple):
    """Join a quorum that does not know this node yet."""

    cluster_id: UUID | None


class VoterReply(NamedTuple):
    """The reply of one voter, and its directory."""

    directory_id: UUID
    standing: IntroductionReply


BootstrapOutcome: TypeAlias = BootstrapAsVoter | JoinExisting | None


def decide_bootstrap(
    me: Member, voters: Sequence[Voter], heard: Mapping[NodeId, VoterReply]
) -> BootstrapOutcome:
    """What to do after a round of replies; None: wait for more. Raises BootstrapFailed."""
    for voter in voters:
        answer = heard.get(voter.node_id)
        if answer is not None:
            _check_directory(me, voter, answer.standing)
    members = [
        voter for voter in voters if voter.node_id in heard and heard[voter.node_id].standing.is_member
    ]
    if members:
        return _follow(me, members, heard)
    for voter in voters:
        answer = heard.get(voter.node_id)
        if answer is not None and answer.standing.voters != tuple(voters):
            raise BootstrapFailed(
                f"voter {voter.node_id} at {voter.address} was started with other voters: "
                f"{show(answer.standing.voters)} there, {show(voters)} here"
            )
    return _found(me, voters, heard)


def _check_directory(me: Member, voter: Voter, standing: IntroductionReply) -> None:
    known = standing.known.get(me.node_id, me.directory_id)
    if known != me.directory_id:
        raise BootstrapFailed(
            f"node id {me.node_id} is taken: voter {voter.node_id} at {voter.address} "
            "knows another node with it, which has another data directory"
        )


def _follow(me: Member, members: Sequence[Voter], heard: Mapping[NodeId, VoterReply]) -> BootstrapOutcome:
    """Some voters are members already: check that they belong to one cluster, and follow them."""
    clusters: dict[UUID, Voter] = {}
    for voter in members:
        cluster_id = heard[voter.node_id].standing.cluster_id
        if cluster_id is not None:
            clusters.setdefault(cluster_id, voter)
    if len(clusters) > 1:
        first, second = list(clusters.values())[:2]
        raise BootstrapFailed(
            f"voter {first.node_id} at {first.address} and voter {second.node_id} at {second.address} "
            "belong to different clusters"
        )
    for voter in members:
        founding = heard[voter.node_id].standing.founding
        if founding is not None and me in founding.voters:
            return BootstrapAsVoter(founding)
    return JoinExisting(next(iter(clusters), None))


def _found(me: Member, voters: Sequence[Voter], heard: Mapping[NodeId, VoterReply]) -> BootstrapOutcome:
    directories = {me.node_id: me.directory_id}
    for voter in voters:
        if voter.node_id in heard:
            directories[voter.node_id] = heard[voter.node_id].directory_id
    if any(voter.node_id not in directories for voter in voters) or len(directories) != len(voters):
        return None  # a voter is missing, or we are no voter and wait for those who are
    if any(answer.standing.known != directories for answer in heard.values()):
        return None  # they have not reached the same nodes yet
    return BootstrapAsVoter(Configuration(tuple(Member(node, directories[node]) for node, _ in voters)))


def show(voters: Sequence[Voter]) -> str:
    return ",".join(map(str, voters)) or "none"


Decided: TypeAlias = Callable[[BootstrapAsVoter | JoinExisting], None]


def is_sole_voter(me: NodeId, voters: Sequence[Voter]) -> bool:
    """Whether there is no other voter to ask."""
    return all(voter.node_id == me for voter in voters)


class Bootstrap(BasePeerWatcher):
    """Asks the voters in rounds. Only replies of one round, on open links, count together."""

    def __init__(
        self, runtime: Runtime, hub: PeerManager, desk: PeerRpc, me: Member, voters: Sequence[Voter]
    ) -> None:
        self._runtime = runtime
        self._peers = hub
        self._rpc = desk
        self._address: Address | None = None
        self._me = me
        self._voters = tuple(sorted(voters))
        self._others = [voter for voter in self._voters if voter.node_id != me.node_id]
        self._decided: Decided | None = None
        self._heard: dict[NodeId, VoterReply] = {}
        self._round = 0
        self._timer: Timer | None = None
        self._remind_at = Instant(0)

    def begin(self, address: Address | None, decided: Decided) -> None:
        """Ask until there is a decision; conflicts raise BootstrapFailed."""
        self._address = address
        self._decided = decided
        self._remind_at = Instant(self._runtime.clock.now() + FIRST_REMINDER_NS)
        self._peers.watch(self)
        self._peers.on_identity_mismatch(self._met_stranger)
        self._next_round()

    def standing(self) -> IntroductionReply:
        """The reply to introductions while this node is still blank."""
        return IntroductionReply(False, None, None, self._voters, self._known(), SUPPORTED_FEATURES)

    def _known(self) -> dict[NodeId, UUID]:
        """The voters that were reached, and their directories; this node included."""
        known: dict[NodeId, UUID] = {}
        for voter in self._voters:
            identity = self._peers.identity_of(voter.node_id)
            if voter.node_id == self._me.node_id:
                known[voter.node_id] = self._me.directory_id
            elif identity is not None:
                known[voter.node_id] = identity.directory_id
        return known

    def _next_round(self) -> None:
        if self._decided is None:
            return
        self._round += 1
        self._heard.clear()
        question = Introduction(self._address, self._voters, self._known())
        for voter in self._others:
            self._ask(voter.node_id, question)
        self._remind()
        deadline = Instant(self._runtime.clock.now() + ROUND_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._next_round)

    def _ask(self, node: NodeId, question: Introduction) -> None:
        number, identity = self._round, self._peers.identity_of(node)
        if identity is None:
            return
        directory_id = identity.directory_id

        def answered(answer: RpcReply | None) -> None:
            if number == self._round and isinstance(answer, IntroductionReply):
                self._heard[node] = VoterReply(directory_id, answer)
                self._judge()

        self._rpc.call(node, question, VOTER_REPLY_TIMEOUT_MS, answered)

    def _judge(self) -> None:
        decided = self._decided
        outcome = decide_bootstrap(self._me, self._voters, self._heard)
        if outcome is None or decided is None:
            return
        self._decided = None
        if self._timer is not None:
            self._timer.cancel()
        decided(outcome)

    def _remind(self) -> None:
        now = self._runtime.clock.now()
        missing = [voter for voter in self._others if self._peers.identity_of(voter.node_id) is None]
        if now >= self._remind_at and missing:
            self._remind_at = Instant(now + REMINDER_NS)
            whom = ", ".join(f"{voter.node_id} at {voter.address}" for voter in missing)
            events.info("cluster.waiting_for_voters", voters=whom)

    def _met_stranger(self, node: NodeId, address: Address, identity: NodeIdentity) -> None:
        if self._decided is None:
            return
        if identity.node_id == self._me.node_id and identity.directory_id == self._me.directory_id:
            raise BootstrapFailed(f"voter {node} is configured at {address}, but that is this node itself")
        raise BootstrapFailed(
            f"voter {node} is configured at {address}, but node {identity.node_id} listens there"
        )

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        if self._decided is not None and ending is CloseReason.REJECTED:
            raise BootstrapFailed(
                f"voter {node} rejected this node: its version of Penstock is not compatible with this one"
            )


class ClusterIdMismatch(BasePeerWatcher):
    """Notices when the voters that a member was started with belong to another cluster.

    One that rejects us is worth a warning. If most do, and we have seen no other leader since the
    start, then this is the wrong data directory or the wrong cluster.
    """

    def __init__(self, hub: PeerManager, me: Member, voters: Sequence[Voter]) -> None:
        self._me = me
        self._others = {voter.node_id: voter for voter in voters}
        self._rejecting: dict[NodeId, None] = {}
        self._is_settled = False
        hub.watch(self)

    def reached(self, node: NodeId, _identity: NodeIdentity) -> None:
        self._rejecting.pop(node, None)

    def leader_changed(self, leader: Member | None) -> None:
        # A node that bootstrapped a cluster alone leads it, whatever the others belong to.
        self._is_settled = self._is_settled or (leader is not None and leader != self._me)

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        if ending is not CloseReason.REJECTED:
            return
        voter = self._others.get(node)
        if voter is None or node in self._rejecting:
            return
        events.warning("cluster.join_refused", voter=node, address=str(voter.address))
        self._rejecting[node] = None
        if not self._is_settled and len(self._rejecting) * 2 > len(self._others) - 1:
            raise BootstrapFailed(
                f"voter {node} at {voter.address} belongs to another cluster than this data directory"
            )


def read_join_intent(disk: Disk) -> bool:
    """Whether this directory joined in order to vote, and has no vote yet. Blocks."""
    try:
        return read_record(disk, _META, _NAME) == _VOTER
    except RecordFileDamaged:
        # Nothing is lost: an operator can give it a vote.
        return False


def write_join_intent(disk: Disk, *, wants_vote: bool) -> None:
    """Store or clear the intent to become a voter. Blocks."""
    path = f"{_META}/{_NAME}"
    if wants_vote:
        write_record(disk, _META, _NAME, _VOTER)
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_directory(_META)


class QuorumJoiner:
    """Asks the leader for membership, until the known members include this node as it wishes.

    The leader is not known before we get the log, so every known node is asked in turn, and
    nodes that do not lead name the leader.

    A member that is taken out is told nothing more, perhaps not even that. The leader puts it back if it is a
    broker; so until it is registered as one, it goes on asking now and then.
    """

    def __init__(self, runtime: Runtime, disk: Disk, desk: PeerRpc, book: AddressBook, me: Member) -> None:
        self._runtime = runtime
        self._disk = disk
        self._rpc = desk
        self._book = book
        self._me = me
        self._wants_vote = False
        self._has_joined = True
        self._is_registered = False
        self._turn = 0
        self._hint: NodeId | None = None
        self._timer: Timer | None = None
        self._remind_at = Instant(0)
        self._refused_at: Instant | None = None
        self._namesake_until: Instant | None = None
        self._configuration = EMPTY_CONFIGURATION

    def begin(self, *, wants_vote: bool) -> None:
        """Ask, unless this node is already the member it wants to be."""
        self._wants_vote = wants_vote
        self._remind_at = Instant(self._runtime.clock.now() + REMINDER_NS)
        self._has_joined = False
        self.members_changed(self._configuration)
        if not self._has_joined:
            self._ask()

    def registered(self) -> None:
        """From now on the leader sees to it that this node stays a member."""
        self._is_registered = True

    def members_changed(self, configuration: Configuration) -> None:
        self._configuration = configuration
        enough = configuration.voters if self._wants_vote else configuration.members
        if self._has_joined or self._me not in enough:
            return
        self._has_joined = True
        if self._wants_vote:
            write_join_intent(self._disk, wants_vote=False)
            # If somebody takes the vote away, that is not undone.
            self._wants_vote = False
        self._later()
        events.info("cluster.joined", voter=self._me in configuration.voters)

    def _ask(self) -> None:
        if self._has_joined and self._is_registered:
            return
        nodes = self._book.reachable()
        self._turn += 1
        node = self._hint if self._hint in nodes else nodes[self._turn % len(nodes)] if nodes else None
        self._hint = None
        if node is None or not self._rpc.call(
            node, JoinQuorum(self._wants_vote), JOIN_REPLY_TIMEOUT_MS, self._answered
        ):
            self._later()

    def _answered(self, answer: RpcReply | None) -> None:
        match answer:
            case JoinQuorumReply(JoinStatus.REFUSED, detail) if not self._has_joined:
                self._on_error(detail)
            case NotController(leader, _) if leader == self._me.node_id:
                if not self._has_joined:
                    self._met_namesake()
            case NotController(leader, address) if leader is not None and address is not None:
                self._hint = leader
                self._book.learn(leader, address)
            case NotController(None, _):
                # The next leader takes every member for live at first: its refusals count anew.
                self._refused_at = None
            case _:
                pass
        self._later()

    def _met_namesake(self) -> None:
        """The leader has our node id. It may be one that has just stopped, so wait before failing."""
        now = self._runtime.clock.now()
        if self._namesake_until is None:
            self._namesake_until = Instant(now + NAMESAKE_NS)
        elif now >= self._namesake_until:
            raise BootstrapFailed(
                f"the cluster does not accept this node: node {self._me.node_id} is already running with "
                "another data directory, and leads the quorum"
            )

    def _on_error(self, detail: str) -> None:
        """Fail, but not at once: the conflicting node may have just stopped, unnoticed so far."""
        now = self._runtime.clock.now()
        if self._refused_at is None:
            self._refused_at = now
        elif now - self._refused_at >= RIVAL_NS:
            raise BootstrapFailed(f"the cluster does not accept this node: {detail}")

    def _later(self) -> None:
        now = self._runtime.clock.now()
        if now >= self._remind_at and not self._has_joined:
            self._remind_at = Instant(now + REMINDER_NS)
            events.info("cluster.waiting_to_join", wants_vote=self._wants_vote)
        if self._timer is not None:
            self._timer.cancel()
        pause_ms = STILL_MEMBER_MS if self._has_joined else AGAIN_MS
        self._timer = self._runtime.timers.at(Instant(now + pause_ms * MILLISECOND), self._ask)
