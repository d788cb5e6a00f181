"""The broker's side: saying that we live, and hearing how the cluster sees us."""

from penstock.core.metadata import MetadataImage, Reply, UnfenceBroker
from penstock.core.model import MILLISECOND, BrokerEpoch, Instant, NodeId, PenstockError
from penstock.observability import log as events
from penstock.runtime import Callback, Runtime, Timer
from penstock.services.cluster.control.desk import ControlDesk
from penstock.services.cluster.control.messages import Answer, BrokerHeartbeat, BrokerSeen, Presence
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.sessions.sessions import SessionOptions, Sessions


class Replaced(PenstockError):
    """The cluster knows a later broker under our node id: this one must not go on."""


class Pulse:
    """Beats from the registration to the stop."""

    def __init__(
        self,
        runtime: Runtime,
        desk: ControlDesk,
        controller: Controller,
        sessions: Sessions,
        me: NodeId,
        options: SessionOptions,
    ) -> None:
        self._runtime = runtime
        self._desk = desk
        self._controller = controller
        self._sessions = sessions
        self._me = me
        self._options = options
        self._epoch: BrokerEpoch | None = None
        self._timer: Timer | None = None
        self._live: Callback | None = None
        self._is_unfencing = False
        self._unfence_at = Instant(0)
        controller.subscribe(self._follow)

    @property
    def is_fenced(self) -> bool:
        """Whether the cluster does not count on us now, as far as we know."""
        broker = self._controller.image.broker(self._me)
        return broker is None or broker.epoch != self._epoch or broker.fenced

    def begin(self, epoch: BrokerEpoch, live: Callback) -> None:
        """Beat under this epoch, and get unfenced; `live` hears when that is so the first time."""
        self._epoch = epoch
        self._live = live
        self._beat()
        self._consider_unfencing()

    def end(self) -> None:
        self._epoch = None
        if self._timer is not None:
            self._timer.cancel()

    def leader_changed(self) -> None:
        """A new leader hears of us at once."""
        if self._epoch is not None:
            self._beat()

    def _beat(self) -> None:
        epoch = self._epoch
        if epoch is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        heartbeat = BrokerHeartbeat(self._me, epoch, self._controller.committed)
        leader, patience_ms = self._controller.leader, self._options.heartbeat_ms
        if leader == self._me:
            self._seen(self._sessions.beat(heartbeat))
        elif leader is not None:
            self._desk.ask(leader, heartbeat, patience_ms, self._seen)
        deadline = Instant(self._runtime.clock.now() + patience_ms * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._beat)

    def _seen(self, answer: Answer | None) -> None:
        if self._epoch is None or not isinstance(answer, BrokerSeen):
            return
        if answer.presence is Presence.STALE:
            raise Replaced(
                f"this broker's epoch {self._epoch} is stale, the cluster knows {answer.epoch}: "
                f"is another node running under id {self._me}, or was this one unregistered?"
            )
        if answer.presence is Presence.FENCED:
            self._consider_unfencing()

    def _follow(self, image: MetadataImage) -> None:
        broker = image.broker(self._me)
        if self._epoch is None or broker is None or broker.epoch != self._epoch:
            return
        if broker.fenced:
            self._consider_unfencing()
        elif self._live is not None:
            # Not from within the news: others have to hear of it first.
            self._runtime.timers.soon(self._live)
            self._live = None

    def _consider_unfencing(self) -> None:
        now = self._runtime.clock.now()
        if self._is_unfencing or now < self._unfence_at or self._epoch is None:
            return
        self._is_unfencing = True
        # Fenced again at once, there is a reason that asking more often does not remove.
        self._unfence_at = Instant(now + self._options.heartbeat_ms * MILLISECOND // 2)

        def unfenced(reply: Reply) -> None:
            self._is_unfencing = False
            events.debug("broker.unfencing", reply=type(reply).__name__)

        self._controller.submit(UnfenceBroker(self._me, self._epoch), unfenced)
