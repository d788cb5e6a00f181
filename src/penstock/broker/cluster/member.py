"""A node's membership in its cluster, from bootstrap to controlled shutdown."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.broker.cluster.bootstrap import (
    Bootstrap,
    BootstrapAsVoter,
    BootstrapFailed,
    ClusterIdMismatch,
    JoinExisting,
    JoinHandler,
    QuorumJoiner,
    is_sole_voter,
    read_join_intent,
    write_join_intent,
)
from penstock.broker.cluster.broker_lifecycle import (
    BrokerHeartbeat,
    BrokerRegistrar,
    BrokerRegistration,
    BrokerSessionOptions,
    BrokerSessionTracker,
    ClusterFormation,
    ControlledShutdown,
    parse_cluster_id,
)
from penstock.broker.cluster.command_forwarding import CommandForwarder, ReadIndexBarrier
from penstock.broker.cluster.controller import Controller
from penstock.broker.cluster.controller_tasks import (
    InternalTopicExpander,
    LeaderBalancer,
    LearnerReconciler,
    ReportGracePeriod,
)
from penstock.broker.cluster.node_addresses import AddressBook, HelloExchange, MemberFeatures
from penstock.broker.cluster.peers import PeerManager
from penstock.broker.cluster.quorum import QuorumOptions, QuorumStore
from penstock.broker.cluster.quorum_admin import QuorumAdmin
from penstock.broker.cluster.raft_host import RaftQuorum, RaftSetup
from penstock.broker.cluster.raft_recovery import is_blank
from penstock.broker.cluster.rpc import IntroductionReply, PeerRpc, Voter
from penstock.core.metadata import (
    PEER_LISTENER,
    SUPPORTED_FEATURES,
    BrokerEndpoint,
    ControllerConfig,
    MetadataImage,
)
from penstock.core.model import MILLISECOND, BrokerEpoch, Instant
from penstock.core.raft import EMPTY_CONFIGURATION, Configuration, Member, Raft, RaftOptions
from penstock.observability import log as events
from penstock.runtime import Address, Callback, Runtime
from penstock.storage.data_directory import DataDirectory, WrongNode

FIRST_CAMPAIGN_MS = 150


def _as_bound(address: Address) -> Address:
    return address


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Who the node is in its cluster.

    It listens for peers on `listen`, if anywhere, and `advertised` turns the bound address into the
    one that peers use. `voters` are used when the data directory is blank, and as addresses later.
    """

    registration: BrokerRegistration
    listen: Address | None = None
    voters: tuple[Voter, ...] = ()
    is_broker: bool = True
    is_controller: bool = True
    advertised: Callable[[Address], Address] = _as_bound
    around: ControllerConfig = field(default_factory=ControllerConfig)
    quorum: QuorumOptions = field(default_factory=QuorumOptions)
    sessions: BrokerSessionOptions = field(default_factory=BrokerSessionOptions)
    raft: RaftOptions = field(default_factory=RaftOptions)
    raft_type: type[Raft] = Raft


class ClusterMember:
    """A node as a member of its cluster; a single node is a cluster too.

    start ── bootstrapped or joined ── registered as a broker ──► `registered`
             (the caller opens its logs now)  go_live ── unfenced ──► `live`
    """

    def __init__(
        self, runtime: Runtime, store: QuorumStore, directory: DataDirectory, options: ClusterOptions
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._directory = directory
        self._options = options
        node_id = options.registration.node_id
        self.me = Member(node_id, directory.directory_id)
        self.peers = PeerManager(runtime, node_id, options.listen)
        self.rpc = PeerRpc(runtime, self.peers)
        self._book = AddressBook(self.me, self.peers, options.voters)
        self._bootstrap = Bootstrap(runtime, self.peers, self.rpc, self.me, options.voters)
        self._joiner = QuorumJoiner(runtime, store.disk, self.rpc, self._book, self.me)
        self._mismatch: ClusterIdMismatch | None = None
        self._read_barrier: ReadIndexBarrier | None = None
        # The leader is about to commit the cluster's id, and we wait for it.
        self._is_nameless = False
        setup = RaftSetup(self.me, self.peers, EMPTY_CONFIGURATION, options.raft, options.raft_type)
        joined = directory.cluster_id is not None
        self.quorum = RaftQuorum(runtime, store, setup, joined=joined, options=options.quorum)
        self._forwarder = CommandForwarder(runtime, self.rpc, node_id)
        self._features = MemberFeatures(self.me)
        self.controller = Controller(runtime, self.quorum, options.around, self._forwarder, self._features)
        self._forwarder.serve(self.controller)
        self.peers.watch(self._forwarder)
        self.quorum.watch(self)
        self._sessions = BrokerSessionTracker(
            runtime, self.peers, self.rpc, self.controller, self.quorum, options.sessions
        )
        self._heartbeat = BrokerHeartbeat(
            runtime, self.rpc, self.controller, self._sessions, self.quorum, options.sessions
        )
        self.lease = self._heartbeat.lease
        self._forming = ClusterFormation(self.controller, runtime.entropy)
        static = options.around.static
        self._tasks = (
            LeaderBalancer(runtime, self.controller, static),
            InternalTopicExpander(runtime, self.controller),
            LearnerReconciler(runtime, self.controller, self.quorum, self.peers),
            ReportGracePeriod(runtime, self.controller, options.sessions.report_grace_ms),
        )
        self.membership = BrokerRegistrar(
            runtime, self.controller, directory, options.registration, options.sessions
        )
        self.voters: QuorumAdmin
        self._registered: Callable[[BrokerEpoch | None], None]

    def start(self, registered: Callable[[BrokerEpoch | None], None]) -> None:
        """Take part; `registered` gets our broker epoch, or None once a node without a broker is caught up.

        Blocks on the disk. Raises on contradictions in the configuration, now or later.
        """
        self._registered = registered
        options, directory = self._options, self._directory
        directory.claim(self.me.node_id)
        if directory.cluster_id is not None:
            self.peers.join_cluster(directory.cluster_id)
        self.peers.open()
        self._hello = HelloExchange(
            self.rpc, self.peers, self._book, self._address(), self._standing, self._features
        )
        self._book.open()
        if directory.cluster_id is not None or not is_blank(self._store.disk):
            self._mismatch = ClusterIdMismatch(self.peers, self.me, options.voters)
            self._take_part(None)
        elif is_sole_voter(self.me.node_id, options.voters):
            self._take_part(Configuration((self.me,)))
        else:
            self._bootstrap.begin(self._address(), self._decided)

    def _address(self) -> Address | None:
        """Our address for others: the one in the list of voters, or else where we listen."""
        listed = (voter.address for voter in self._options.voters if voter.node_id == self.me.node_id)
        bound = self.peers.address
        return next(listed, None) or (None if bound is None else self._options.advertised(bound))

    def _decided(self, outcome: BootstrapAsVoter | JoinExisting) -> None:
        match outcome:
            case BootstrapAsVoter(members):
                events.info("quorum.bootstrapped", voters=len(members.voters))
                self._take_part(members)
                if members.voters[0] == self.me:
                    # Only one node campaigns at once, or votes would split.
                    deadline = Instant(self._runtime.clock.now() + FIRST_CAMPAIGN_MS * MILLISECOND)
                    self._runtime.timers.at(deadline, self.quorum.campaign_soon)
            case JoinExisting():
                listed = any(voter.node_id == self.me.node_id for voter in self._options.voters)
                # Before the log is created: with a log, the intent is not stored again.
                write_join_intent(self._store.disk, wants_vote=listed and self._options.is_controller)
                self._take_part(EMPTY_CONFIGURATION)

    def _take_part(self, founders: Configuration | None) -> None:
        """Recover the log, or start one with these founders, and be a member from now on."""
        self.controller.subscribe(self._book.on_metadata)
        self.controller.subscribe(self._follow)
        if founders is not None:
            self.quorum.set_bootstrap_configuration(founders)
        # Raft calls its watchers from here on, so all of them must exist.
        self.controller.start()
        self._check_own_name()
        self._admission = JoinHandler(self.rpc, self._runtime.clock, self._book, self.quorum)
        freshness = ReadIndexBarrier(self._runtime, self.rpc, self.quorum, self.controller, self.me.node_id)
        self._read_barrier = freshness
        self.voters = QuorumAdmin(self._runtime, self.rpc, self.quorum, self._book)
        self._joiner.begin(wants_vote=read_join_intent(self._store.disk))
        freshness.catch_up(self._caught_up)

    def _check_own_name(self) -> None:
        members = self.quorum.raft.configuration.members
        for member in members:
            if member.directory_id == self.me.directory_id and member != self.me:
                raise WrongNode(str(member.node_id), self.me.node_id)
        if self._options.listen is None and any(member != self.me for member in members):
            raise BootstrapFailed(
                "this data directory belongs to a cluster with other nodes, which must be able to reach this "
                "one: set its address with --peer, or pass --voters as before"
            )

    def _standing(self) -> IntroductionReply:
        if self._read_barrier is None:
            return self._bootstrap.standing()
        return IntroductionReply(
            True, self._directory.cluster_id, self.quorum.raft.founders, features=SUPPORTED_FEATURES
        )

    def members_changed(self, configuration: Configuration) -> None:
        self._book.members_changed(configuration)
        self._features.members_changed(configuration)
        self._joiner.members_changed(configuration)
        self._heartbeat.voters_changed()

    def leader_changed(self, leader: Member | None) -> None:
        node = None if leader is None else leader.node_id
        events.info("quorum.leader_changed", leader=node, term=self.quorum.raft.term)
        self._forwarder.leader_changed(node)
        self._heartbeat.leader_changed()
        if self._read_barrier is not None:
            self._read_barrier.leader_changed()
        if self._mismatch is not None:
            self._mismatch.leader_changed(leader)

    def _follow(self, image: MetadataImage) -> None:
        if image.cluster_id is not None and self._directory.cluster_id is None:
            # Only now that the metadata is committed: a directory that says it has joined must have it.
            cluster_id = parse_cluster_id(image.cluster_id)
            self._directory.join_cluster(cluster_id)
            self.peers.join_cluster(cluster_id)
        if self._is_nameless and image.cluster_id is not None:
            self._is_nameless = False
            self._runtime.timers.soon(self._caught_up)

    def _caught_up(self) -> None:
        image = self.controller.image
        if image.cluster_id is None:
            self._is_nameless = True
            return
        self._directory.join_cluster(parse_cluster_id(image.cluster_id))
        if self._options.is_broker:
            address = self._address()
            peer = None if address is None else BrokerEndpoint(PEER_LISTENER, address.host, address.port)
            self.membership.join(self._on_registered, peer)
        else:
            self._on_registered(None)

    def _on_registered(self, epoch: BrokerEpoch | None) -> None:
        self._joiner.registered()
        self._registered(epoch)

    def catch_up(self, done: Callback) -> None:
        """Call `done` once our image has everything that was acknowledged before this call."""
        assert self._read_barrier is not None, "this node is not a member yet"
        self._read_barrier.catch_up(done)

    @property
    def is_fenced(self) -> bool:
        """Whether this broker is fenced, as far as it knows."""
        return self._heartbeat.is_fenced

    def go_live(self, live: Callback) -> None:
        """Get unfenced: the broker is ready to lead; `live` is called when that is done."""
        assert self.membership.epoch is not None
        self._heartbeat.begin(self.membership.epoch, live)

    def begin_controlled_shutdown(self, done: Callback) -> None:
        """Hand everything over to other nodes, as far as they exist and time allows."""
        if self._read_barrier is None:
            self._runtime.timers.soon(done)  # not a member yet
            return
        farewell = ControlledShutdown(
            self._runtime, self.controller, self.quorum, self._heartbeat, self.me.node_id
        )
        farewell.begin(self.membership.epoch, done)

    def close(self) -> None:
        """Stop taking part. Blocks on the disk."""
        self._heartbeat.end()
        self.peers.close()
        self.quorum.close()
