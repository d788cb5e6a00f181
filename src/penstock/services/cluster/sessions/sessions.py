"""The leader's side: how long each broker is believed to be alive."""

from dataclasses import dataclass

from penstock.core.metadata import Broker, FenceBroker, MetadataImage, Reply
from penstock.core.model import MILLISECOND, Instant, NodeId, Refused
from penstock.observability import log as events
from penstock.runtime import CloseReason, Runtime, Timer
from penstock.services.cluster.control.desk import ControlDesk, Respond
from penstock.services.cluster.control.messages import BrokerHeartbeat, BrokerSeen, Elsewhere, Presence
from penstock.services.cluster.controller import Controller
from penstock.services.peering import LaxWatcher, Peer, PeerHub

# Each fencing decides about all partitions of a broker. A rack that fails must not hold the loop for
# so long that the other controllers miss us: the rest waits until the loop has been round.
FENCES_PER_LOOK = 8


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How often brokers say that they live, and how long they are believed."""

    heartbeat_ms: int = 500
    session_ms: int = 2_000


class Sessions(LaxWatcher):
    """Fences brokers that are silent or gone, while this node leads."""

    def __init__(
        self,
        runtime: Runtime,
        hub: PeerHub,
        desk: ControlDesk,
        controller: Controller,
        options: SessionOptions,
    ) -> None:
        self._runtime = runtime
        self._hub = hub
        self._controller = controller
        self._session_ns = options.session_ms * MILLISECOND
        self._look_ns = options.heartbeat_ms * MILLISECOND // 4
        # The unfenced brokers, and until when they may be silent.
        self._until: dict[NodeId, Instant] = {}
        self._fencing: dict[NodeId, None] = {}
        self._brokers: object = None
        self._timer: Timer | None = None
        desk.serve(BrokerHeartbeat, self._asked)
        hub.watch(self)
        controller.subscribe(self._follow)
        controller.while_leading(self)

    def began(self) -> None:
        self._until.clear()
        self._fencing.clear()
        self._brokers = None
        self._follow(self._controller.image)
        self._look()

    def ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _follow(self, image: MetadataImage) -> None:
        if not self._controller.is_leading or image.brokers is self._brokers:
            return
        self._brokers = image.brokers
        until = Instant(self._runtime.clock.now() + self._session_ns)
        self._until = {
            broker.node_id: self._until.get(broker.node_id, until) for broker in image.live_brokers()
        }
        for node in list(self._fencing):
            if node not in self._until:
                del self._fencing[node]

    def beat(self, heartbeat: BrokerHeartbeat) -> BrokerSeen | None:
        """Hear a broker; None: we know too little to say anything."""
        controller = self._controller
        broker = controller.image.broker(heartbeat.node_id)
        if not controller.is_leading or (heartbeat.committed > controller.committed and broker is None):
            return None
        if broker is None or broker.epoch > heartbeat.epoch:
            return BrokerSeen(Presence.STALE, None if broker is None else broker.epoch)
        if broker.epoch < heartbeat.epoch:
            return None
        if broker.fenced:
            return BrokerSeen(Presence.FENCED)
        self._until[broker.node_id] = Instant(self._runtime.clock.now() + self._session_ns)
        return BrokerSeen(Presence.LIVE)

    def _asked(self, _peer: Peer, heartbeat: BrokerHeartbeat, respond: Respond) -> None:
        respond(self.beat(heartbeat) or Elsewhere(self._controller.leader, None))

    def _look(self) -> None:
        now = self._runtime.clock.now()
        silent = [node for node, until in self._until.items() if now >= until and node not in self._fencing]
        for node in silent[:FENCES_PER_LOOK]:
            self._fence(node, "nothing heard")
        pause_ns = self._look_ns if len(silent) <= FENCES_PER_LOOK else 0
        self._timer = self._runtime.timers.at(Instant(now + pause_ns), self._look)

    def lost(self, node: NodeId, ending: CloseReason) -> None:
        # While it has a link to us it lives, and it is us who cannot reach it.
        if ending is CloseReason.REFUSED and node in self._until and not self._hub.hears(node):
            self._fence(node, "its process is gone")

    def _fence(self, node: NodeId, reason: str) -> None:
        broker: Broker | None = self._controller.image.broker(node)
        if broker is None or node in self._fencing or not self._controller.is_leading:
            return
        self._fencing[node] = None
        events.warning("broker.fenced", broker=node, broker_epoch=broker.epoch, reason=reason)

        def fenced(reply: Reply) -> None:
            if isinstance(reply, Refused):
                self._fencing.pop(node, None)

        self._controller.submit(FenceBroker(node, broker.epoch), fenced)
