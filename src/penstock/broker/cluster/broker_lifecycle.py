"""Brokers from registration to controlled shutdown: heartbeats, sessions and fencing.

    BrokerHeartbeat (every broker) ── every 500 ms ──► BrokerSessionTracker (the leader)
        ▲                                                 │ silent for a session (2 s), or connection refused
        └── live, fenced or stale ◄───────────────────────┘   ──► FenceBroker

A broker is told that it is live only after a majority has confirmed that the leader still leads. From
then on it holds the lease (see `broker.lease`), counted from the sending of that heartbeat.

A broker that is fenced asks to be unfenced; one whose epoch is stale ends. A new leader grants
every broker a whole session, since it cannot know who was silent before; a process that is gone is
noticed at once, because its port refuses connections and no link from it is open.

The timeout of its sessions is registered with a broker, so that every controller and the broker itself
count with the same one, whatever their own settings are. Time in which the controller stood still (its
process was stopped, or busy with something else) is not the silence of others: it fences nobody for it,
its own broker included, before it has looked at what has arrived meanwhile.

A node that stops says so first (`ControlledShutdown`): its leaderships go to others, it leaves every
ISR, and the quorum gets another leader. Then clients hardly notice that it stops.

Left out: wall clocks, which are not used here.
"""

import base64
import binascii
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from penstock.broker.cluster.controller import Controller
from penstock.broker.cluster.peers import BasePeerWatcher, Peer, PeerManager
from penstock.broker.cluster.raft_host import CommandOutcome, RaftQuorum
from penstock.broker.cluster.rpc import (
    BrokerPresence,
    NotController,
    PeerRpc,
    Respond,
    RpcReply,
    SendHeartbeat,
    SendHeartbeatReply,
)
from penstock.broker.lease import ENDED, FOREVER, BrokerLease
from penstock.core.metadata import (
    DEFAULT_SESSION_MS,
    METADATA_VERSION,
    NO_BROKER_EPOCH,
    NO_INCARNATION,
    SUPPORTED_FEATURES,
    BeginControlledShutdown,
    BootstrapCluster,
    Broker,
    BrokerEndpoint,
    FenceBroker,
    MetadataImage,
    Ok,
    RegisterBroker,
    RegisteredBroker,
    RemainingLeaderships,
    Reply,
    UnfenceBroker,
)
from penstock.core.metadata.levels import SESSIONS_LEVEL
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    BrokerEpoch,
    CorruptionError,
    ErrorKind,
    Instant,
    NodeId,
    PenstockError,
    ProtocolError,
    StorageError,
)
from penstock.core.raft import Member, ReadIndex
from penstock.core.values import dataclass
from penstock.observability import log as events
from penstock.runtime import Callback, CloseReason, Entropy, Runtime, Timer
from penstock.storage.data_directory import DataDirectory

# Each fencing decides about all partitions of a broker. A rack that fails must not block the loop for
# so long that the other controllers time out: the rest waits for the next turn.
FENCES_PER_LOOK = 8
# The whole shutdown; what is not done by then looks like a crash to the others.
FAREWELL_MS = 1_500
# Of that, how long to wait for out-of-sync replicas that could take over.
HANDING_OVER_MS = 1_000
SHUTDOWN_RETRY_MS = 50
REGISTRATION_RETRY_MS = 100
# A heartbeat that no leader answered is sent again after this part of the interval.
RETRIES_PER_BEAT = 4
# As often as Raft's own heartbeats, which these rounds take the place of.
CONFIRMATIONS_PER_BEAT = 5
# The lease is shorter than the session by this part: the clocks of two nodes run at speeds that differ.
CLOCK_DRIFT_PART = 100
# A broker that was replaced counts as live until its session is over, and every controller begins one.
RIVAL_NS = 3 * SECOND
# Errors that a retry would not change.
FOR_GOOD = (ErrorKind.INCONSISTENT_CLUSTER, ErrorKind.INVALID_REQUEST, ErrorKind.INVALID_FEATURE_LEVEL)


@dataclass(frozen=True, slots=True)
class BrokerSessionOptions:
    """The heartbeat interval and the session timeout of this node's broker.

    An election among restarted replicas waits `report_grace_ms` for those that have not reported.
    """

    heartbeat_ms: int = 500
    session_ms: int = DEFAULT_SESSION_MS
    report_grace_ms: int = 5_000


class BrokerSessionTracker(BasePeerWatcher):
    """Fences brokers that are silent or gone, while this node leads the quorum."""

    def __init__(
        self,
        runtime: Runtime,
        hub: PeerManager,
        desk: PeerRpc,
        controller: Controller,
        quorum: RaftQuorum,
        options: BrokerSessionOptions,
    ) -> None:
        self._runtime = runtime
        self._peers = hub
        self._controller = controller
        self._quorum = quorum
        self._look_ns = options.heartbeat_ms * MILLISECOND // 4
        # The unfenced brokers, and when the session of each ends.
        self._until: dict[NodeId, Instant] = {}
        self._fencing: dict[NodeId, None] = {}
        self._brokers: object = None
        self._timer: Timer | None = None
        # When the sessions are looked at next.
        self._check_at = Instant(0)
        # Heartbeats of live brokers that wait for a majority, and when it may be asked again.
        self._unconfirmed: list[tuple[SendHeartbeat, Respond]] = []
        self._confirm_ns = options.heartbeat_ms * MILLISECOND // CONFIRMATIONS_PER_BEAT
        self._confirm_at = Instant(0)
        self._confirm_timer: Timer | None = None
        desk.serve(SendHeartbeat, self._on_heartbeat)
        hub.watch(self)
        controller.subscribe(self._follow)
        controller.add_task(self)

    def on_leadership_gained(self) -> None:
        self._until.clear()
        self._fencing.clear()
        self._brokers = None
        self._follow(self._controller.image)
        self._check_at = self._runtime.clock.now()
        self._check()

    def on_leadership_lost(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _follow(self, image: MetadataImage) -> None:
        if not self._controller.is_leading or image.brokers is self._brokers:
            return
        self._brokers = image.brokers
        now, former = self._runtime.clock.now(), self._until
        self._until = {
            broker.node_id: former.get(broker.node_id, Instant(now + broker.session_ns))
            for broker in image.live_brokers()
        }
        for node in list(self._fencing):
            if node not in self._until:
                del self._fencing[node]

    def heartbeat(self, heartbeat: SendHeartbeat, respond: Respond) -> None:
        """Take a broker's heartbeat; a broker that is live gets its reply after a round with a majority.

        Without the round, a leader that was replaced and does not know it could grant a lease beyond
        the session that its successor grants.
        """
        presence = self._presence(heartbeat)
        if presence is None:
            respond(NotController(self._controller.leader, None))
        elif presence.presence is BrokerPresence.LIVE:
            session_ns = self._controller.image.session_ns(heartbeat.node_id)
            self._until[heartbeat.node_id] = Instant(self._runtime.clock.now() + session_ns)
            self._unconfirmed.append((heartbeat, respond))
            self._confirm_soon()
        else:
            respond(presence)

    def _confirm_soon(self) -> None:
        """Ask the majority at once, or a little after it was last asked, for all heartbeats that wait.

        A round goes to every member of the quorum, brokers included: one for each heartbeat would be
        too many in a large cluster.
        """
        now = self._runtime.clock.now()
        if self._confirm_timer is not None:
            return
        if now >= self._confirm_at:
            self._confirm()
        else:
            self._confirm_timer = self._runtime.timers.at(self._confirm_at, self._confirm)

    def _confirm(self) -> None:
        self._confirm_timer = None
        self._confirm_at = Instant(self._runtime.clock.now() + self._confirm_ns)
        waiting, self._unconfirmed = self._unconfirmed, []

        def read(outcome: CommandOutcome) -> None:
            for heartbeat, respond in waiting:
                respond(self._confirmed(heartbeat, outcome))

        self._quorum.read(read)

    def _presence(self, heartbeat: SendHeartbeat) -> SendHeartbeatReply | None:
        """How the committed metadata sees the broker; None while this node knows too little."""
        controller = self._controller
        broker = controller.image.broker(heartbeat.node_id)
        if not controller.is_leading or (heartbeat.committed > controller.committed and broker is None):
            return None
        if broker is None or broker.epoch > heartbeat.epoch:
            return SendHeartbeatReply(BrokerPresence.STALE, None if broker is None else broker.epoch)
        if broker.epoch < heartbeat.epoch:
            return None
        if broker.fenced:
            return SendHeartbeatReply(BrokerPresence.FENCED)
        return SendHeartbeatReply(BrokerPresence.LIVE)

    def _confirmed(self, heartbeat: SendHeartbeat, outcome: CommandOutcome) -> RpcReply:
        presence = self._presence(heartbeat) if isinstance(outcome, ReadIndex) else None
        if presence is None:
            return NotController(self._controller.leader, None)
        if presence.presence is BrokerPresence.LIVE and heartbeat.node_id not in self._fencing:
            return SendHeartbeatReply(BrokerPresence.LIVE, end=self._controller.committed)
        return presence

    def _on_heartbeat(self, peer: Peer, heartbeat: SendHeartbeat, respond: Respond) -> None:
        if heartbeat.node_id != peer.node_id:
            raise ProtocolError(f"a heartbeat of node {heartbeat.node_id} from node {peer.node_id}")
        self.heartbeat(heartbeat, respond)

    def _check(self) -> None:
        now = self._runtime.clock.now()
        if now - self._check_at > self._look_ns:
            self._excuse_silence(now, now - self._check_at)
        silent = [node for node, until in self._until.items() if now >= until and node not in self._fencing]
        for node in silent[:FENCES_PER_LOOK]:
            self._fence(node, "no heartbeat within the session timeout")
        pause_ns = self._look_ns if len(silent) <= FENCES_PER_LOOK else 0
        self._check_at = Instant(now + pause_ns)
        self._timer = self._runtime.timers.at(self._check_at, self._check)

    def _excuse_silence(self, now: Instant, late_ns: int) -> None:
        """Prolong all sessions by the time in which this node stood still, up to a whole one.

        It did not listen then: heartbeats may be on their way to it still, its own broker's among them,
        whose timer is as late.
        """
        image = self._controller.image
        if any(now >= until for until in self._until.values()):
            events.warning("controller.stalled", late_ms=late_ns // MILLISECOND)
        for node, until in self._until.items():
            limit = max(until, now + image.session_ns(node))
            self._until[node] = Instant(min(until + late_ns, limit))

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        # While it has a link to us it is alive, and only unreachable from here.
        if ending is CloseReason.REFUSED and node in self._until and not self._peers.hears(node):
            self._fence(node, "its process has ended")

    def _fence(self, node: NodeId, reason: str) -> None:
        broker: Broker | None = self._controller.image.broker(node)
        if broker is None or node in self._fencing or not self._controller.is_leading:
            return
        self._fencing[node] = None
        events.warning("broker.fenced", broker=node, broker_epoch=broker.epoch, reason=reason)

        def fenced(_: Reply) -> None:
            self._fencing.pop(node, None)

        self._controller.submit(FenceBroker(node, broker.epoch), fenced)


class BrokerReplaced(PenstockError):
    """The cluster knows a later broker under our node id: this one must stop."""


class BrokerHeartbeat:
    """Sends heartbeats from the registration to the stop, and renews the lease with their replies."""

    def __init__(
        self,
        runtime: Runtime,
        desk: PeerRpc,
        controller: Controller,
        sessions: BrokerSessionTracker,
        quorum: RaftQuorum,
        options: BrokerSessionOptions,
    ) -> None:
        self._runtime = runtime
        self._rpc = desk
        self._controller = controller
        self._sessions = sessions
        self._quorum = quorum
        self._me = quorum.me.node_id
        self._options = options
        self.lease = BrokerLease()
        self._was_fenced = True
        self._epoch: BrokerEpoch | None = None
        self._timer: Timer | None = None
        self._live: Callback | None = None
        self._is_unfencing = False
        self._unfence_at = Instant(0)
        controller.subscribe(self._follow)
        controller.add_task(self)

    @property
    def is_fenced(self) -> bool:
        """Whether this broker is fenced, as far as it knows."""
        broker = self._controller.image.broker(self._me)
        return broker is None or broker.epoch != self._epoch or broker.fenced

    def begin(self, epoch: BrokerEpoch, live: Callback) -> None:
        """Send heartbeats under this epoch, and get unfenced; `live` is called the first time that is so."""
        self._epoch = epoch
        self._live = live
        self._beat()
        self._consider_unfencing()

    def end(self) -> None:
        """Send no more, and give up the lease: others may take over what this broker leads."""
        self._epoch = None
        if self.lease.until != FOREVER:
            self.lease.until = ENDED
        if self._timer is not None:
            self._timer.cancel()

    def leader_changed(self) -> None:
        """Send a heartbeat to the new leader at once."""
        if self._epoch is not None:
            self._beat()

    def on_leadership_gained(self) -> None:
        self.voters_changed()
        self.leader_changed()

    def on_leadership_lost(self) -> None:
        self.voters_changed()

    def voters_changed(self) -> None:
        """The leader of a quorum without another voter needs no lease from anyone."""
        quorum, lease = self._quorum, self.lease
        if quorum.leader_epoch is not None and quorum.raft.configuration.voters == (quorum.me,):
            lease.until = FOREVER
        elif lease.until == FOREVER:
            # Until this moment nobody else could lead.
            lease.until = Instant(self._runtime.clock.now() + self._lease_ns())

    def _lease_ns(self) -> int:
        """Of the session that is registered: with that one every controller counts."""
        session_ns = self._controller.image.session_ns(self._me)
        return session_ns - session_ns // CLOCK_DRIFT_PART

    def _beat(self) -> None:
        epoch = self._epoch
        if epoch is None:
            return
        heartbeat = SendHeartbeat(self._me, epoch, self._controller.committed)
        leader, patience_ms = self._controller.leader, self._options.heartbeat_ms
        now = self._runtime.clock.now()
        self._beat_in(patience_ms)
        if leader == self._me:
            self._sessions.heartbeat(heartbeat, lambda answer: self._seen(now, answer))
        elif leader is not None and not self._rpc.call(
            leader, heartbeat, patience_ms, lambda answer: self._seen(now, answer)
        ):
            self._seen(now, None)

    def _beat_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = Instant(self._runtime.clock.now() + delay_ms * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._beat)

    def _seen(self, sent: Instant, answer: RpcReply | None) -> None:
        """The reply to the heartbeat that was sent at `sent`, or None if there is none."""
        if self._epoch is None:
            return
        if not isinstance(answer, SendHeartbeatReply):
            # An election is underway: the next leader should know of this broker soon.
            self._beat_in(self._options.heartbeat_ms // RETRIES_PER_BEAT)
        elif answer.presence is BrokerPresence.STALE:
            raise BrokerReplaced(
                f"this broker's epoch {self._epoch} is stale, the cluster knows {answer.epoch}: "
                f"is another node running under id {self._me}, or was this one unregistered?"
            )
        elif answer.presence is BrokerPresence.FENCED:
            self._consider_unfencing()
        elif answer.end is not None:
            # An older image may show leaderships that others have by now.
            self._controller.reply_when_committed(answer.end, Ok(), lambda _: self._granted(sent))

    def _granted(self, sent: Instant) -> None:
        """A majority knew at `sent`, or later, that this broker is live."""
        if self._epoch is None:
            return
        until = Instant(sent + self._lease_ns())
        if until > self.lease.until:
            self.lease.until = until
        self._go_live()

    def _go_live(self) -> None:
        """Report that clients can be served, the first time that it is so."""
        if self._live is not None and not self.is_fenced and self._runtime.clock.now() < self.lease.until:
            # Not inside this callback: other subscribers have to see the image first.
            self._runtime.timers.soon(self._live)
            self._live = None

    def _follow(self, image: MetadataImage) -> None:
        broker = image.broker(self._me)
        if self._epoch is None or broker is None or broker.epoch != self._epoch:
            return
        was_fenced, self._was_fenced = self._was_fenced, broker.fenced
        if broker.fenced:
            self._consider_unfencing()
        elif was_fenced:
            # Clients need not wait for the next heartbeat.
            self._beat()
            self._go_live()

    def _consider_unfencing(self) -> None:
        now = self._runtime.clock.now()
        if self._is_unfencing or now < self._unfence_at or self._epoch is None:
            return
        self._is_unfencing = True
        # A broker that is fenced again at once has a problem that more frequent requests do not solve.
        self._unfence_at = Instant(now + self._options.heartbeat_ms * MILLISECOND // 2)

        def unfenced(reply: Reply) -> None:
            self._is_unfencing = False
            events.debug("broker.unfence_requested", reply=type(reply).__name__)

        self._controller.submit(UnfenceBroker(self._me, self._epoch), unfenced)


class ControlledShutdown:
    """Hands over leaderships and leaves the cluster, within a bounded time."""

    def __init__(
        self, runtime: Runtime, controller: Controller, quorum: RaftQuorum, pulse: BrokerHeartbeat, me: NodeId
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._quorum = quorum
        self._heartbeat = pulse
        self._me = me
        self._done: Callback | None = None
        self._timer: Timer | None = None
        self._patience = Instant(0)

    def begin(self, epoch: BrokerEpoch | None, done: Callback) -> None:
        """Start; `done` is called once, not inside this call."""
        now = self._runtime.clock.now()
        self._done = done
        self._patience = Instant(now + HANDING_OVER_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(Instant(now + FAREWELL_MS * MILLISECOND), self._overdue)
        if epoch is None or not self._has_others():
            self._hand_over_quorum()
        else:
            self._hand_over_partitions(epoch)

    def _has_others(self) -> bool:
        return any(broker.node_id != self._me for broker in self._controller.image.live_brokers())

    def _overdue(self) -> None:
        if self._quorum.raft.leader is None:
            # The last nodes of a cluster that is stopped cannot hand over to anyone: no warning.
            events.debug("node.controlled_shutdown_timeout")
        else:
            events.warning("node.controlled_shutdown_timeout")
        self._end()

    def _end(self) -> None:
        done, self._done = self._done, None
        if self._timer is not None:
            self._timer.cancel()
        self._heartbeat.end()
        if done is not None:
            done()

    def _hand_over_partitions(self, epoch: BrokerEpoch) -> None:
        def told(reply: Reply) -> None:
            waits = (
                isinstance(reply, RemainingLeaderships) and reply.leading > 0 and self._could_be_taken_over()
            )
            if waits and self._runtime.clock.now() < self._patience:
                self._later(lambda: self._hand_over_partitions(epoch))
            else:
                self._leave_place(epoch)

        if self._done is not None:
            self._controller.submit(BeginControlledShutdown(self._me, epoch), told)

    def _could_be_taken_over(self) -> bool:
        """Whether another live broker has a replica of a partition that this node still leads."""
        image = self._controller.image
        return any(
            partition.leader == self._me
            and any(node != self._me and image.may_lead(node) for node in partition.replicas)
            for _, partition in image.partitions_of(self._me)
        )

    def _leave_place(self, epoch: BrokerEpoch) -> None:
        """Leave every ISR before fetching stops, so that no write waits for this node."""

        def told(_: Reply) -> None:
            self._hand_over_quorum()

        if self._done is not None:
            self._heartbeat.end()
            self._controller.submit(FenceBroker(self._me, epoch), told)

    def _hand_over_quorum(self) -> None:
        target = self._successor()
        if self._done is None:
            return
        if target is None:
            self._runtime.timers.soon(self._end)
        else:
            self._quorum.transfer(target, lambda _: self._await_successor())

    def _await_successor(self) -> None:
        leader = self._quorum.raft.leader
        if self._done is None:
            return
        if self._quorum.leader_epoch is None and leader is not None:
            self._end()
        else:
            self._later(self._await_successor)

    def _successor(self) -> Member | None:
        """The voter with the longest log, if this node leads and there are others that can."""
        raft = self._quorum.raft
        if self._quorum.leader_epoch is None:
            return None
        known = [voter for voter in raft.configuration.voters if voter in raft.followers]
        others = [voter for voter in known if raft.followers[voter].doubt is None]
        return max(others, key=lambda voter: raft.followers[voter].match, default=None)

    def _later(self, again: Callback) -> None:
        self._runtime.timers.at(Instant(self._runtime.clock.now() + SHUTDOWN_RETRY_MS * MILLISECOND), again)


def new_cluster_id(entropy: Entropy) -> UUID:
    """A random id that does not start with a dash: on a command line it would be an option."""
    while True:
        drawn = UUID(bytes=entropy.bytes(16), version=4)
        if not show_cluster_id(drawn).startswith("-"):
            return drawn


def show_cluster_id(cluster_id: UUID) -> str:
    """The id as clients and the metadata log show it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(cluster_id.bytes).rstrip(b"=").decode("ascii")


def parse_cluster_id(text: str) -> UUID:
    """The id that is shown as `text`."""
    try:
        return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (binascii.Error, ValueError):
        raise CorruptionError(f"{text!r} is not a valid cluster id") from None


class RegistrationRejected(PenstockError):
    """The cluster does not accept this node as a broker."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What the node registers with. `synced`: it acknowledges only what is on disk."""

    node_id: NodeId
    listeners: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    synced: bool = True


class ClusterFormation:
    """Gives a new cluster its id, if this node is the first to lead it."""

    def __init__(self, controller: Controller, entropy: Entropy) -> None:
        self._controller = controller
        self._entropy = entropy
        controller.add_task(self)

    def on_leadership_gained(self) -> None:
        if self._controller.image.cluster_id is None:
            cluster_id = show_cluster_id(new_cluster_id(self._entropy))
            self._controller.submit(BootstrapCluster(cluster_id), self._formed)

    def on_leadership_lost(self) -> None:
        """Do nothing: the next leader sees what is missing."""

    def _formed(self, reply: Reply) -> None:
        if not isinstance(reply, ApiError):
            events.info("cluster.bootstrapped", cluster_id=self._controller.image.cluster_id)


class BrokerRegistrar:
    """Registers the broker of this node. A permanent error ends the node."""

    def __init__(
        self,
        runtime: Runtime,
        controller: Controller,
        directory: DataDirectory,
        registration: BrokerRegistration,
        sessions: BrokerSessionOptions,
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._directory = directory
        self._registration = registration
        self._session_ms = sessions.session_ms
        self._incarnation = UUID(bytes=runtime.entropy.bytes(16), version=4)
        # The runs that the directory knows of, and those that were noted in it since.
        self._known_runs = directory.known_runs()
        self._noted_runs: tuple[UUID, ...] = ()
        # Since when, and by which controller, we are refused because of another broker with our node id.
        self._rival: tuple[Instant, NodeId | None] | None = None
        self._peers: tuple[BrokerEndpoint, ...] = ()
        self._joined: Callable[[BrokerEpoch], None]
        self.epoch: BrokerEpoch | None = None

    def join(self, done: Callable[[BrokerEpoch], None], peer: BrokerEndpoint | None = None) -> None:
        """Register a new broker epoch, fenced; `done` gets it once our image has it.

        The image must have the cluster's id. `peer` is where other nodes find us.
        """
        self._joined = done
        self._peers = () if peer is None else (peer,)
        self._register()

    def _register(self) -> None:
        cluster_id = self._controller.image.cluster_id
        assert cluster_id is not None
        node, kept = self._registration, self._directory.last_clean_epoch
        if kept is None:
            # A crash of the process alone: whatever it wrote is there.
            kept = self._directory.surviving_epoch(self._runtime.boot_id)
        former = self._controller.image.broker(node.node_id)
        is_old = self._is_old_copy(former)
        if is_old:
            kept = None
        self._note_run(former)
        command = RegisterBroker(
            cluster_id,
            node.node_id,
            self._directory.directory_id,
            (*node.listeners, *self._peers),
            node.rack,
            SUPPORTED_FEATURES,
            previous_epoch=NO_BROKER_EPOCH if kept is None else kept,
            # What a later run acknowledged is not here, however it was synced.
            synced=node.synced and not is_old,
            incarnation=self._incarnation,
            known_epoch=NO_BROKER_EPOCH if former is None else former.epoch,
            session_ms=self._registered_session_ms(),
        )
        self._controller.submit(command, self._registered)

    def _registered_session_ms(self) -> int:
        level = self._controller.image.feature_level(METADATA_VERSION)
        if self._session_ms == DEFAULT_SESSION_MS:
            return 0
        if level < SESSIONS_LEVEL:
            events.warning(
                "broker.session_timeout_ignored",
                session_ms=DEFAULT_SESSION_MS,
                reason=f"the cluster runs at {METADATA_VERSION} {level}: penstock cluster upgrade",
            )
            return 0
        return self._session_ms

    def _is_old_copy(self, former: Broker | None) -> bool:
        """Whether the broker has run with this directory, and the directory does not know of it."""
        if former is None or former.directory_id != self._directory.directory_id:
            return False
        known = (NO_INCARNATION, self._incarnation, *self._known_runs)
        if not self._known_runs or former.incarnation in known:
            return False
        if not self._noted_runs:
            events.error(
                "broker.directory_is_old",
                broker_epoch=former.epoch,
                reason="the broker has run since: this data directory is an older copy",
            )
        return True

    def _note_run(self, former: Broker | None) -> None:
        """Note this run before the cluster can know it.

        What the directory knew stays until the cluster knows a later run. A run that it did not know is
        not added: an older copy must stay one until it has registered as such.
        """
        known = self._known_runs
        if former is not None and former.incarnation in known:
            known = known[: known.index(former.incarnation) + 1]
        elif former is not None and not known:
            known = (former.incarnation,)
        runs = (self._incarnation, *known)
        if runs == self._noted_runs:
            return
        try:
            self._directory.set_runs(runs)
            self._noted_runs = runs
        except StorageError as error:
            # On a full disk, say. Nobody can tell then whether the directory is an old copy.
            events.warning("broker.run_not_stored", error=error)
            with suppress(StorageError):
                self._directory.forget_runs()

    def _registered(self, reply: Reply) -> None:
        if isinstance(reply, ApiError):
            self._on_error(reply)
            return
        assert isinstance(reply, RegisteredBroker)
        self.epoch = reply.epoch
        try:
            self._directory.set_boot(reply.epoch, self._runtime.boot_id)
        except StorageError as error:
            # On a full disk, say. The next start finds the former epoch there and doubts what it has.
            events.warning("broker.boot_not_stored", error=error)
        self._joined(reply.epoch)

    def _on_error(self, error: ApiError) -> None:
        now = self._runtime.clock.now()
        if error.kind is not ErrorKind.DUPLICATE_BROKER:
            # The same controller may be elected again, and begins another session then.
            self._rival = None
        # Other errors pass: there is no controller, its disk is full, or its metadata is newer than ours.
        if error.kind in FOR_GOOD or (error.kind is ErrorKind.DUPLICATE_BROKER and self._is_rival_alive()):
            raise RegistrationRejected(
                f"the cluster does not accept this broker: {error.detail or error.kind.value}"
            )
        self._runtime.timers.at(Instant(now + REGISTRATION_RETRY_MS * MILLISECOND), self._register)

    def _is_rival_alive(self) -> bool:
        """Whether one controller calls another broker with our node id live for longer than a session."""
        controller, now = self._controller, self._runtime.clock.now()
        decided_by = self._registration.node_id if controller.is_leading else controller.leader
        if self._rival is None or self._rival[1] != decided_by:
            self._rival = now, decided_by
        return now - self._rival[0] >= RIVAL_NS + controller.image.session_ns(self._registration.node_id)
