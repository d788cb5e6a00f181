"""How this node becomes a broker of its cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from penstock.core.metadata import (
    NO_BROKER_EPOCH,
    SUPPORTED_FEATURES,
    BootstrapCluster,
    BrokerEndpoint,
    RegisterBroker,
    RegisteredBroker,
    Reply,
)
from penstock.core.model import MILLISECOND, SECOND, BrokerEpoch, Instant, NodeId, PenstockError, Refused, Why
from penstock.observability import log as events
from penstock.runtime import Entropy, Runtime
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.ids import new_cluster_id, show_cluster_id
from penstock.storage.data_directory import DataDirectory

AGAIN_MS = 100
# A broker that was replaced counts as live until its session is over.
RIVAL_NS = 5 * SECOND
# Trying again would change nothing.
FOR_GOOD = (Why.INCONSISTENT_CLUSTER, Why.INVALID_REQUEST, Why.INVALID_FEATURE_LEVEL)


class NotAdmitted(PenstockError):
    """The cluster does not take this node as a broker."""


@dataclass(frozen=True, slots=True)
class Registration:
    """How the node presents itself. `synced`: it acknowledges only what is on disk."""

    node_id: NodeId
    listeners: tuple[BrokerEndpoint, ...]
    rack: str | None = None
    synced: bool = True


class Forming:
    """Gives a cluster that has no identity yet its own, if this node is the first to lead it."""

    def __init__(self, controller: Controller, entropy: Entropy) -> None:
        self._controller = controller
        self._entropy = entropy
        controller.while_leading(self)

    def began(self) -> None:
        if self._controller.image.cluster_id is None:
            cluster_id = show_cluster_id(new_cluster_id(self._entropy))
            self._controller.submit(BootstrapCluster(cluster_id), self._formed)

    def ended(self) -> None:
        """Whoever leads next sees what is missing."""

    def _formed(self, reply: Reply) -> None:
        if not isinstance(reply, Refused):
            events.info("cluster.formed", cluster_id=self._controller.image.cluster_id)


class Membership:
    """Registers the broker of this node. What the cluster refuses for good ends the node."""

    def __init__(
        self, runtime: Runtime, controller: Controller, directory: DataDirectory, registration: Registration
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._directory = directory
        self._registration = registration
        self._incarnation = UUID(bytes=runtime.entropy.bytes(16), version=4)
        self._give_up_at = Instant(0)
        self._peers: tuple[BrokerEndpoint, ...] = ()
        self._joined: Callable[[BrokerEpoch], None]
        self.epoch: BrokerEpoch | None = None

    def join(self, done: Callable[[BrokerEpoch], None], peer: BrokerEndpoint | None = None) -> None:
        """Register a new broker epoch, fenced; `done` hears it once our image has it.

        The image must have the cluster's id. `peer` is where other nodes find us.
        """
        self._joined = done
        self._peers = () if peer is None else (peer,)
        self._give_up_at = Instant(self._runtime.clock.now() + RIVAL_NS)
        self._register()

    def _register(self) -> None:
        cluster_id = self._controller.image.cluster_id
        assert cluster_id is not None
        node, clean = self._registration, self._directory.last_clean_epoch
        former = self._controller.image.broker(node.node_id)
        command = RegisterBroker(
            cluster_id,
            node.node_id,
            self._directory.directory_id,
            (*node.listeners, *self._peers),
            node.rack,
            SUPPORTED_FEATURES,
            previous_epoch=NO_BROKER_EPOCH if clean is None else clean,
            synced=node.synced,
            incarnation=self._incarnation,
            known_epoch=NO_BROKER_EPOCH if former is None else former.epoch,
        )
        self._controller.submit(command, self._registered)

    def _registered(self, reply: Reply) -> None:
        if isinstance(reply, Refused):
            self._refused(reply)
            return
        assert isinstance(reply, RegisteredBroker)
        self.epoch = reply.epoch
        self._joined(reply.epoch)

    def _refused(self, refusal: Refused) -> None:
        now = self._runtime.clock.now()
        is_rival = refusal.why is Why.DUPLICATE_BROKER
        # The rest passes: there is no controller, its disk is full, or it knew of us what we did not.
        if refusal.why in FOR_GOOD or (is_rival and now >= self._give_up_at):
            raise NotAdmitted(f"the cluster refuses this node: {refusal.detail or refusal.why.value}")
        self._runtime.timers.at(Instant(now + AGAIN_MS * MILLISECOND), self._register)
