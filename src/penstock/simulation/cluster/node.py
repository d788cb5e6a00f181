"""A whole node on a simulated machine: every service of production, and a door for simulated clients."""

from collections.abc import Callable
from typing import TypeAlias

from penstock.app import Backstage, NodeOptions, NodeStorage
from penstock.core.model import SECOND, Instant, LeaderEpoch, NodeId
from penstock.core.raft import Index
from penstock.gateways.kafka.backend import Backend
from penstock.runtime import Callback, Runtime
from penstock.simulation.cluster.door import Door, key_of
from penstock.simulation.cluster.journal import Journal
from penstock.simulation.node import SimulatedNode
from penstock.storage.directory import DataDirectory
from penstock.storage.disk import Disk

# How long a stop waits for the logs before it leaves them as they are.
CLOSING_NS = 3 * SECOND

MakeBackstage: TypeAlias = Callable[[Runtime, NodeStorage, NodeOptions], Backstage]


def production(runtime: Runtime, storage: NodeStorage, options: NodeOptions) -> Backstage:
    """A node as `app` composes it."""
    return Backstage(runtime, storage, options, ())


class ClusterNode:
    """One node of a cluster, across its lives."""

    def __init__(self, options: NodeOptions, journal: Journal, make: MakeBackstage = production) -> None:
        self.options = options
        self.machine: SimulatedNode
        self._journal = journal
        self._make = make
        self._backstage: Backstage | None = None
        self._door: Door | None = None
        self._epochs: dict[str, LeaderEpoch] = {}

    @property
    def node_id(self) -> NodeId:
        return self.options.node_id

    @property
    def door(self) -> Door | None:
        """Where clients come in, while the node is up and ready for them."""
        return self._door if self.machine.is_up else None

    @property
    def backstage(self) -> Backstage | None:
        return self._backstage if self.machine.is_up else None

    def __call__(self, runtime: Runtime, disk: Disk) -> "NodeLife":
        """Begin a life; what a simulated machine runs."""
        self._door = None
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, self.machine.identity.directory_id))
        self._backstage = backstage = self._make(runtime, storage, self.options)
        backstage.controller.while_leading(Office(backstage, self._journal))
        backstage.start(self._ready)
        return NodeLife(backstage, runtime, self._shut)

    def _shut(self) -> None:
        """Let no client in any more."""
        self._door = None

    def _ready(self, backend: Backend) -> None:
        self._door = Door(backend, self._journal, f"{self.machine.name}/{self.machine.lives}")
        self._look_at_leaders(backend)
        backend.partitions.when_roles_change(lambda: self._look_at_leaders(backend))

    def _look_at_leaders(self, backend: Backend) -> None:
        """Tell the checkers what this node leads now, with what it has in its log."""
        for partition in backend.partitions.led():
            key = key_of(partition)
            if partition.stopped is None and self._epochs.get(key) != partition.leader_epoch:
                self._epochs[key] = partition.leader_epoch
                self._journal.watermarks.led(key, partition.leader_epoch, self.node_id, partition.log.end)


class Office:
    """Tells the checkers when a node begins to lead the metadata quorum."""

    def __init__(self, backstage: Backstage, journal: Journal) -> None:
        self._backstage = backstage
        self._journal = journal

    def began(self) -> None:
        raft = self._backstage.quorum.raft
        self._journal.quorum.took_office(self._backstage.member.me, raft.term, lambda _: None, Index(0))

    def ended(self) -> None:
        """Whoever follows says so."""


class NodeLife:
    """The service that a machine stops in order, as `app.Node` does around its doors."""

    def __init__(self, backstage: Backstage, runtime: Runtime, shut: Callback) -> None:
        self._backstage = backstage
        self._runtime = runtime
        self._shut = shut
        self._is_closed = False

    def stop(self, done: Callback) -> None:
        self._backstage.leave(lambda: self._close(done))

    def _close(self, done: Callback) -> None:
        self._shut()
        self._backstage.resign()

        def end(last: Callback) -> None:
            if not self._is_closed:
                self._is_closed = True
                last()
                done()

        until = Instant(self._runtime.clock.now() + CLOSING_NS)
        self._runtime.timers.at(until, lambda: end(self._backstage.abandon))
        self._backstage.wind_down(lambda: end(self._backstage.close))
