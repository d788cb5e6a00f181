"""Delayed records on this node: the machine of `core.delays` on the coordinators of `__delayed`.

DelayService ── partition ──► Coordinator ── DelayCoordinator (core, decides)
  │                             ├── delay_records: facts in our own schemas, the records among them
  │ delays are due              └── DelayLogRewrite: what is pending is written again
  └─► DelayPublisher (`broker.delays`), on the same node
"""

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from typing import Protocol

from penstock.broker.coordinator import delay_records
from penstock.broker.coordinator.coordinators import Coordinators, InternalTopicCreator, LedPartitions
from penstock.broker.coordinator.delay_metrics import DelayMetrics, DelayObserver
from penstock.broker.coordinator.delay_records import DelayTransactions
from penstock.broker.coordinator.delay_rewrite import DelayLogRewrite
from penstock.broker.coordinator.runtime import Coordinator, CoordinatorOptions, CoordinatorSpec
from penstock.broker.partitions import LeaderPartition
from penstock.core.delays import (
    DelayCommand,
    DelayCoordinator,
    DelayFact,
    DelayOptions,
    FindDelays,
    ListDelays,
    ReleaseDelays,
    TakeDueDelays,
)
from penstock.core.metadata import DELAYED_TOPIC, MetadataImage
from penstock.core.metadata.levels import DELAYS_LEVEL, METADATA_VERSION
from penstock.core.model import ApiError, ErrorKind, NodeId, Offset
from penstock.core.records import ControlRecord
from penstock.core.values import dataclass
from penstock.runtime import Runtime

# One is read and checked for each record that is due.
BATCH_BYTES_MAX = 16 << 10
# Two or three milliseconds of a start with a million delays.
LOAD_STEP_BYTES = 256 << 10
LEVEL_TOO_LOW = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    f"delayed records need {METADATA_VERSION} {DELAYS_LEVEL}; see `penstock cluster upgrade`",
)


@dataclass(frozen=True, slots=True)
class DelayServiceOptions:
    """Options of the delayed records on this node."""

    machine: DelayOptions = field(default_factory=DelayOptions)
    coordinator: CoordinatorOptions = field(default_factory=CoordinatorOptions)


class DuePublisher(Protocol):
    """Publishes what is due; `is_open`: a transaction decides on some of it."""

    def publish(self, partition: LeaderPartition, *, is_open: bool) -> None: ...


class DelayService:
    """Passes commands to the coordinator of their partition, and knows where that is.

    Call `on_metadata` after `ReplicaManager.on_metadata`.
    """

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        partitions: LedPartitions,
        topics: InternalTopicCreator,
        metrics: DelayMetrics,
        options: DelayServiceOptions | None = None,
    ) -> None:
        options = options or DelayServiceOptions()
        self._timers = runtime.timers
        self._publisher: DuePublisher | None = None
        spec: CoordinatorSpec[DelayCoordinator, DelayCommand, DelayFact] = CoordinatorSpec(
            DELAYED_TOPIC,
            lambda: DelayCoordinator(runtime.clock.wall(), options.machine),
            delay_records,
            DelayObserver(metrics, self._due),
            (FindDelays, ListDelays, ReleaseDelays),
            # What comes of a take is decided by `EndDelays`, which stands behind it in the log.
            unlogged_commands=(TakeDueDelays,),
            transactional=DelayTransactions(),
            located=delay_records.located,
            load_step_bytes=LOAD_STEP_BYTES,
            batch_bytes_max=BATCH_BYTES_MAX,
            rewrite=partial(DelayLogRewrite.if_due, runtime),
        )
        self._coordinators = Coordinators(node_id, runtime, partitions, topics, spec, options.coordinator)
        self._image = MetadataImage()
        metrics.pending.read(lambda: sum(len(each.machine.pending) for each in self._coordinators))

    def serve(self, publisher: DuePublisher) -> None:
        """Have this publish what is due."""
        self._publisher = publisher

    @property
    def count(self) -> int:
        """How many partitions there are; none before the topic is created."""
        return self._coordinators.count

    def when_created(self, done: Callable[[ApiError | None], None]) -> None:
        """Have the topic; it is created on the first call."""
        if self._image.feature_level(METADATA_VERSION) < DELAYS_LEVEL:
            done(LEVEL_TOO_LOW)
        else:
            self._coordinators.when_created(done)

    def leader_at(self, partition: int) -> NodeId | ApiError:
        """The node that coordinates the partition."""
        return self._coordinators.leader_at(partition)

    def submit(self, command: DelayCommand) -> None:
        """Serve a command; its callback gets the reply, perhaps at once."""
        coordinator = self._coordinators.at(command.partition)
        if isinstance(coordinator, ApiError):
            command.on_reply(coordinator)
        else:
            coordinator.submit(command)

    def first_due(self, partition: int) -> int | None:
        """The time of the first delay that a take may find, if there is one and its coordinator is here."""
        coordinator = self._coordinators.at(partition)
        return None if isinstance(coordinator, ApiError) else coordinator.machine.first_due

    def partition_at(self, partition: int) -> LeaderPartition | ApiError:
        """The partition, if its coordinator is on this node and serves."""
        coordinator = self._coordinators.at(partition)
        if isinstance(coordinator, ApiError):
            return coordinator
        kind: ErrorKind | None = coordinator.state.value
        return coordinator.partition if kind is None else ApiError(kind)

    def end_transaction(
        self, partition: LeaderPartition, append: Callable[[], Offset | ApiError], marker: ControlRecord
    ) -> Offset | ApiError:
        """Have the partition's coordinator append a marker, and end what the transaction was to end."""
        coordinator = self._coordinators.at(partition.name.partition)
        if isinstance(coordinator, ApiError) or coordinator.partition is not partition:
            return ApiError(ErrorKind.COORDINATOR_LOADING)
        return coordinator.end_transaction(append, marker)

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over and give up coordinators as the cluster's metadata says."""
        self._image = image
        self._coordinators.on_metadata(image)

    def roles_changed(self) -> None:
        """The node leads other partitions than before."""
        self._coordinators.on_leadership_change()

    def stop(self) -> None:
        """Give up every coordinator: commands that wait get NOT_COORDINATOR."""
        self._coordinators.stop()

    def __iter__(self) -> Iterator[Coordinator[DelayCoordinator, DelayCommand, DelayFact]]:
        return iter(self._coordinators)

    def _due(self, machine: DelayCoordinator) -> None:
        # Not now: the machine is in the middle of a step.
        self._timers.soon(partial(self._publish, machine))

    def _publish(self, machine: DelayCoordinator) -> None:
        for coordinator in self._coordinators:
            if coordinator.machine is machine and self._publisher is not None:
                self._publisher.publish(coordinator.partition, is_open=bool(machine.ending))
