"""How this node becomes a broker of its cluster."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.metadata import (
    NO_BROKER_EPOCH,
    SUPPORTED_FEATURES,
    FormCluster,
    Listener,
    RegisterBroker,
    RegisteredBroker,
    Reply,
    UnfenceBroker,
)
from penstock.core.model import BrokerEpoch, NodeId, PenstockError, Refused
from penstock.observability import log as events
from penstock.runtime import Entropy
from penstock.services.cluster.controller import Controller
from penstock.services.cluster.ids import new_cluster_id, parse_cluster_id, show_cluster_id
from penstock.storage.directory import DataDirectory


class NotAdmitted(PenstockError):
    """The cluster does not take this node as a broker."""


@dataclass(frozen=True, slots=True)
class Registration:
    """How the node presents itself. `synced`: it acknowledges only what is on disk."""

    node_id: NodeId
    listeners: tuple[Listener, ...]
    rack: str | None = None
    synced: bool = True


class Membership:
    """Joins the cluster, forming it if there is none yet. Refusals end the node."""

    def __init__(
        self, controller: Controller, directory: DataDirectory, registration: Registration, entropy: Entropy
    ) -> None:
        self._controller = controller
        self._directory = directory
        self._registration = registration
        self._entropy = entropy
        self._joined: Callable[[BrokerEpoch], None]
        self.epoch: BrokerEpoch | None = None

    def join(self, done: Callable[[BrokerEpoch], None]) -> None:
        """Become a live broker; `done` hears the epoch once the cluster has committed it."""
        self._joined = done
        if self._controller.image.cluster_id is not None:
            self._register()
            return
        cluster_id = new_cluster_id(self._entropy)
        self._controller.submit(FormCluster(show_cluster_id(cluster_id)), self._formed)

    def _formed(self, reply: Reply) -> None:
        _expect(reply)
        events.info("cluster.formed", cluster_id=self._controller.image.cluster_id)
        self._register()

    def _register(self) -> None:
        cluster_id = self._controller.image.cluster_id
        assert cluster_id is not None
        # Only now that the metadata is committed: a directory that says it has joined must have it.
        self._directory.join_cluster(parse_cluster_id(cluster_id))
        node, clean = self._registration, self._directory.last_clean_epoch
        command = RegisterBroker(
            cluster_id,
            node.node_id,
            self._directory.directory_id,
            node.listeners,
            node.rack,
            SUPPORTED_FEATURES,
            previous_epoch=NO_BROKER_EPOCH if clean is None else clean,
            synced=node.synced,
        )
        self._controller.submit(command, self._registered)

    def _registered(self, reply: Reply) -> None:
        _expect(reply)
        assert isinstance(reply, RegisteredBroker)
        self.epoch = reply.epoch
        command = UnfenceBroker(self._registration.node_id, reply.epoch)
        self._controller.submit(command, self._unfenced)

    def _unfenced(self, reply: Reply) -> None:
        _expect(reply)
        assert self.epoch is not None
        self._joined(self.epoch)


def _expect(reply: Reply) -> None:
    if isinstance(reply, Refused):
        raise NotAdmitted(f"the cluster refuses this node: {reply.detail or reply.why.value}")
