"""The only broker of a cluster that is kept by one controller."""

from collections.abc import Callable

from penstock.broker.cluster import (
    BrokerRegistrar,
    BrokerRegistration,
    BrokerSessionOptions,
    Controller,
    new_cluster_id,
    parse_cluster_id,
    show_cluster_id,
)
from penstock.core.metadata import BootstrapCluster, RegisteredBroker, Reply, UnfenceBroker
from penstock.core.model import ApiError, BrokerEpoch, NodeId
from penstock.runtime import Runtime
from penstock.storage.data_directory import DataDirectory

ME = NodeId(1)


class LoneBroker:
    """Forms the cluster if there is none, registers, and is unfenced."""

    def __init__(self, runtime: Runtime, controller: Controller, directory: DataDirectory) -> None:
        self._runtime = runtime
        self._controller = controller
        self._directory = directory
        self._membership = BrokerRegistrar(
            runtime, controller, directory, BrokerRegistration(ME, ()), BrokerSessionOptions()
        )

    @property
    def epoch(self) -> BrokerEpoch | None:
        return self._membership.epoch

    def join(self, done: Callable[[BrokerEpoch], None]) -> None:
        """`done` is called with the epoch once the broker may lead."""

        def formed(reply: Reply) -> None:
            assert not isinstance(reply, ApiError), reply
            self._register(done)

        if self._controller.image.cluster_id is None:
            cluster_id = show_cluster_id(new_cluster_id(self._runtime.entropy))
            self._controller.submit(BootstrapCluster(cluster_id), formed)
        else:
            self._register(done)

    def _register(self, done: Callable[[BrokerEpoch], None]) -> None:
        cluster_id = self._controller.image.cluster_id
        assert cluster_id is not None
        self._directory.join_cluster(parse_cluster_id(cluster_id))

        def registered(epoch: BrokerEpoch) -> None:
            def unfenced(reply: Reply) -> None:
                assert not isinstance(reply, RegisteredBroker | ApiError), reply
                done(epoch)

            self._controller.submit(UnfenceBroker(ME, epoch), unfenced)

        self._membership.join(registered)
