"""Queues on this node: the machine of `core.queues` on the coordinators of `__queue_state`.

    QueueService ── group, topic id, partition ──► Coordinator ── QueueCoordinator (core, decides)
      │                                              └── queue_records: facts in our own schemas
      │ records are ready, or given up
      └─► QueueNotices ──► the leader of the data partition (`broker.queues`)

A notice may be lost, and may come before what it speaks of is committed: whoever gets one asks, and replies
wait for the log. Consumers that wait ask once a second anyway, and notices of dead letters are repeated until
there are none.

Queues of topics that were deleted are forgotten a while later: metadata may reach a coordinator after the
leader that opened a queue for it, so what is not known is not necessarily gone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from penstock.broker.coordinator import queue_records
from penstock.broker.coordinator.coordinators import (
    Coordinators,
    InternalTopicCreator,
    LedPartitions,
)
from penstock.broker.coordinator.queue_metrics import QueueMetrics, QueueObserver
from penstock.broker.coordinator.queue_records import QueueTransactions
from penstock.broker.coordinator.runtime import Coordinator, CoordinatorOptions, CoordinatorSpec
from penstock.broker.lease import NOT_COORDINATING
from penstock.broker.partitions import LeaderPartition
from penstock.core.metadata import QUEUES_TOPIC, MetadataImage
from penstock.core.metadata.levels import METADATA_VERSION, QUEUES_LEVEL
from penstock.core.model import MILLISECOND, ApiError, ErrorKind, Instant, NodeId, Offset, TopicId
from penstock.core.queues import (
    DescribeQueue,
    FindDeadLetters,
    FindLeases,
    ForgetQueue,
    PeekRecords,
    QueueCommand,
    QueueCoordinator,
    QueueDescription,
    QueueFact,
    QueueId,
    QueueOptions,
    QueueReply,
)
from penstock.core.records import ControlRecord
from penstock.core.values import dataclass
from penstock.runtime import Runtime
from penstock.runtime.sliced_work import SlicedWork, Slices

GROUP_ID_CHARS_MAX = 8_000
# What queues may take on a node without their records, some 64,000 of them; groups that have none yet leave
# half of it to others, and no group gets more than half.
QUEUE_BYTES_MAX = 256 << 20
# Queues in one description of all, and how many of them in one turn of the loop.
DESCRIBED_MAX = 10_000
DESCRIBED_PER_TURN = 20
# How often to look for queues whose topics are gone. A queue is forgotten the second time.
FORGET_MS = 60_000
# Queues that are looked after in a slice, which takes less than a millisecond.
LOOKED_AT_ONCE = 200
# How often the leader of the data partition is told of dead letters that are still there.
REMIND_MS = 5_000
TOO_LONG = ApiError(ErrorKind.INVALID_REQUEST, f"a group id has 1 to {GROUP_ID_CHARS_MAX} characters")
LEVEL_TOO_LOW = ApiError(
    ErrorKind.COORDINATOR_NOT_AVAILABLE,
    f"queues need {METADATA_VERSION} {QUEUES_LEVEL}; see `penstock cluster upgrade`",
)


QueueHost: TypeAlias = Coordinator[QueueCoordinator, QueueCommand, QueueFact]


@dataclass(frozen=True, slots=True)
class QueueServiceOptions:
    """Options of the queues on this node."""

    machine: QueueOptions = field(default_factory=QueueOptions)
    coordinator: CoordinatorOptions = field(default_factory=CoordinatorOptions)
    queue_bytes_max: int = QUEUE_BYTES_MAX


class QueueNotices(Protocol):
    """Tells the leader of a queue's data partition, wherever it is. Notices may be lost."""

    def records_ready(self, queue: QueueId) -> None: ...

    def dead_letters_due(self, queue: QueueId) -> None: ...


@dataclass(frozen=True, slots=True)
class QueueServicePorts:
    """What queues need besides coordinators: a way to the data partitions' leaders, and metrics."""

    notices: QueueNotices
    metrics: QueueMetrics = field(default_factory=QueueMetrics)


class QueuesHere(NamedTuple):
    """Queues that a node coordinates, and all the partitions of `__queue_state` that it looked into."""

    queues: tuple[QueueDescription, ...]
    partitions: tuple[int, ...]


class QueueService:
    """Passes commands to the coordinator of their queue, and knows where that is.

    Call `on_metadata` after `ReplicaManager.on_metadata`.
    """

    def __init__(
        self,
        node_id: NodeId,
        runtime: Runtime,
        partitions: LedPartitions,
        topics: InternalTopicCreator,
        ports: QueueServicePorts,
        options: QueueServiceOptions | None = None,
    ) -> None:
        options = options or QueueServiceOptions()
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._work = SlicedWork(runtime.clock.now, runtime.timers.soon)
        self._lease = partitions.lease
        self._notices = ports.notices
        self._queue_bytes_max = options.queue_bytes_max
        machine = replace(options.machine, has_room=self._has_room)
        spec: CoordinatorSpec[QueueCoordinator, QueueCommand, QueueFact] = CoordinatorSpec(
            QUEUES_TOPIC,
            lambda: QueueCoordinator(machine),
            queue_records,
            QueueObserver(ports.metrics, self._records_ready, self._dead_letters_due, self._name_of),
            (DescribeQueue, FindDeadLetters, FindLeases, PeekRecords),
            transactional=QueueTransactions(),
        )
        self._coordinators = Coordinators(node_id, runtime, partitions, topics, spec, options.coordinator)
        self._image = MetadataImage()
        # Queues of topics that the metadata did not have when it was last compared with them.
        self._orphans: dict[QueueId, None] = {}
        # Whether there are queues anywhere: without, there is nothing to look after.
        self._is_looking = False
        self._is_stopped = False

    def submit(self, command: QueueCommand) -> None:
        """Serve a command; its callback gets the reply, perhaps at once."""
        coordinator = self._problem_with(command.queue) or self._coordinators.find(key_of(command.queue))
        if isinstance(coordinator, ApiError):
            command.on_reply(coordinator)
        else:
            coordinator.submit(command)

    def locate(self, queue: QueueId, done: Callable[[NodeId | ApiError], None]) -> None:
        """Find the node that coordinates the queue; the topic is created on the first call."""
        error = self._problem_with(queue)
        if error is not None:
            done(error)
        else:
            self._coordinators.locate(key_of(queue), done)

    def partition_of(self, queue: QueueId) -> LeaderPartition | ApiError:
        """The partition that keeps the queue, if its coordinator is on this node and serves."""
        coordinator = self._problem_with(queue) or self._coordinators.find(key_of(queue))
        if isinstance(coordinator, ApiError):
            return coordinator
        kind: ErrorKind | None = coordinator.state.value
        return coordinator.partition if kind is None else ApiError(kind)

    def describe(
        self,
        group_ids: Sequence[str],
        topic_ids: Sequence[TopicId],
        done: Callable[[QueuesHere | ApiError], None],
    ) -> None:
        """The queues that this node coordinates, of these groups and topics; none means all.

        Not all in one turn of the loop; an error while a coordinator does not serve.
        """
        if self._clock.now() >= self._lease.until:
            # Others may have queues meanwhile in partitions that have none here.
            done(NOT_COORDINATING)
            return
        groups, topics = dict.fromkeys(group_ids), dict.fromkeys(topic_ids)
        wanted: list[QueueId] = []
        partitions: list[int] = []
        for coordinator in self._coordinators:
            kind: ErrorKind | None = coordinator.state.value
            if kind is not None:
                done(ApiError(kind))
                return
            partitions.append(coordinator.partition.name.partition)
            wanted += [
                queue
                for queue in coordinator.machine.queues
                if (not groups or queue.group_id in groups) and (not topics or queue.topic_id in topics)
            ]
        if len(wanted) > DESCRIBED_MAX:
            done(ApiError(ErrorKind.INVALID_REQUEST, f"more than {DESCRIBED_MAX:,} queues; name groups"))
            return

        def described(reply: list[QueueDescription] | ApiError) -> None:
            done(reply if isinstance(reply, ApiError) else QueuesHere(tuple(reply), tuple(partitions)))

        self._describe(wanted, 0, [], described)

    def _describe(
        self,
        wanted: list[QueueId],
        start: int,
        found: list[QueueDescription],
        done: Callable[[list[QueueDescription] | ApiError], None],
    ) -> None:
        portion = wanted[start : start + DESCRIBED_PER_TURN]
        if not portion:
            done(found)
            return
        left = len(portion)
        error: ApiError | None = None

        def replied(reply: QueueReply) -> None:
            nonlocal left, error
            left -= 1
            if isinstance(reply, QueueDescription):
                found.append(reply)
            elif isinstance(reply, ApiError) and reply.kind is not ErrorKind.UNKNOWN_GROUP:
                error = reply
            # Otherwise it was forgotten meanwhile, and is left out.
            if left:
                return
            if error is not None:
                done(error)
            else:
                start_next = start + DESCRIBED_PER_TURN
                self._timers.soon(partial(self._describe, wanted, start_next, found, done))

        for queue in portion:
            # A callback of its own: the coordinator distinguishes commands that wait by it.
            self.submit(DescribeQueue(on_reply=partial(replied), queue=queue))

    def end_transaction(
        self, partition: LeaderPartition, append: Callable[[], Offset | ApiError], marker: ControlRecord
    ) -> Offset | ApiError:
        """Have the partition's coordinator append a marker, and finish what the transaction was to finish."""
        for coordinator in self._coordinators:
            if coordinator.partition is partition:
                return coordinator.end_transaction(append, marker)
        # The metadata says that this node leads it, and the coordinator is about to be made.
        return ApiError(ErrorKind.COORDINATOR_LOADING)

    def on_metadata(self, image: MetadataImage) -> None:
        """Take over and give up coordinators as the cluster's metadata says."""
        self._image = image
        self._coordinators.on_metadata(image)
        if not self._is_looking and image.topic(QUEUES_TOPIC) is not None:
            self._is_looking = True
            self._later(FORGET_MS, self._forget_orphans())
            self._later(REMIND_MS, self._remind())

    def roles_changed(self) -> None:
        """The node leads other partitions than before."""
        self._coordinators.on_leadership_change()

    def stop(self) -> None:
        """Give up every coordinator: commands that wait get NOT_COORDINATOR."""
        self._is_stopped = True
        self._coordinators.stop()

    def __iter__(self) -> Iterator[Coordinator[QueueCoordinator, QueueCommand, QueueFact]]:
        return iter(self._coordinators)

    def _problem_with(self, queue: QueueId) -> ApiError | None:
        if not 0 < len(queue.group_id) <= GROUP_ID_CHARS_MAX:
            return TOO_LONG
        # Nodes of a version without queues would coordinate some of them.
        return LEVEL_TOO_LOW if self._image.feature_level(METADATA_VERSION) < QUEUES_LEVEL else None

    def _has_room(self, group_id: str, size_bytes: int) -> bool:
        """Whether the group may have another queue, over all coordinators of this node."""
        machines = [each.machine for each in self._coordinators]
        total = sum([each.held_bytes for each in machines])
        of_group = sum([each.held_bytes_of(group_id) for each in machines])
        half = self._queue_bytes_max // 2
        has_part = total + size_bytes <= (self._queue_bytes_max if of_group else half)
        return has_part and of_group + size_bytes <= half

    def _name_of(self, topic_id: TopicId) -> str:
        return self._image.topic_name(topic_id) or str(topic_id)

    def _records_ready(self, queue: QueueId) -> None:
        # Not now: the machine is in the middle of a step.
        self._timers.soon(partial(self._notices.records_ready, queue))

    def _dead_letters_due(self, queue: QueueId) -> None:
        self._timers.soon(partial(self._notices.dead_letters_due, queue))

    def _later(self, delay_ms: int, slices: Slices) -> None:
        if not self._is_stopped:
            deadline = Instant(self._clock.now() + delay_ms * MILLISECOND)
            self._timers.at(deadline, partial(self._work.run, slices))

    def _look_after(self, look: Callable[[QueueHost, QueueId], None]) -> Slices:
        number = 0
        for coordinator in self._coordinators:
            for queue in list(coordinator.machine.queues):
                look(coordinator, queue)
                number += 1
                if number % LOOKED_AT_ONCE == 0:
                    yield

    def _remind(self) -> Slices:
        def look(coordinator: QueueHost, queue: QueueId) -> None:
            if coordinator.machine.has_dead_letters(queue):
                self._notices.dead_letters_due(queue)

        yield from self._look_after(look)
        self._later(REMIND_MS, self._remind())

    def _forget_orphans(self) -> Slices:
        """With the lease, the metadata here was complete within the last session."""
        known, self._orphans = self._orphans, {}

        def look(coordinator: QueueHost, queue: QueueId) -> None:
            if self._clock.now() >= self._lease.until or self._image.topic_by_id(queue.topic_id) is not None:
                return
            if queue in known:
                # A callback of its own: the coordinator distinguishes commands that wait by it.
                coordinator.submit(ForgetQueue(on_reply=lambda _: None, queue=queue))
            else:
                self._orphans[queue] = None

        yield from self._look_after(look)
        self._later(FORGET_MS, self._forget_orphans())


def key_of(queue: QueueId) -> str:
    """What says which partition coordinates the queue."""
    return f"{queue.group_id}:{queue.topic_id}:{queue.partition}"
