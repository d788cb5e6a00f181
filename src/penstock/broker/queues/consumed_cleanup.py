"""Point-to-point topics (`cleanup.policy=consumed`): a record is deleted once every queue has finished it.

    leader of a partition ── describe the topic's queues ──► every coordinator
          └── the least of what they have finished ──► the log begins there, on all replicas

Every group that has a queue on any partition of the topic counts, whether somebody consumes for it or not:
one that has none on this partition has all of it still to do. Without any group nothing is deleted, nor
while the queues of any partition of `__queue_state` are not known: it may be moving, or be read. What a
queue says about offsets of a later leader epoch than its own is not believed: an unclean election may have
put other records there.

Groups that read the topic as a log do not count.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from penstock.broker.partitions import LeaderPartition
from penstock.broker.queues.queue_admin import OnDescribed, QueuesDescribed
from penstock.core.metadata import ConfigResourceType, MetadataImage
from penstock.core.metadata.configs import CleanupPolicy, TopicOptions
from penstock.core.model import MILLISECOND, ApiError, Instant, NodeId, Offset, TopicId
from penstock.core.queues import QueueDescription
from penstock.observability import log as events
from penstock.runtime import Runtime

CHECK_MS = 10_000
_KEY, _POLICY = "cleanup.policy", "consumed"


class ConsumedPartitions(Protocol):
    """The partitions of this node."""

    def find(self, topic: str, index: int) -> LeaderPartition | None: ...

    def options(self, topic: str) -> TopicOptions: ...


class DeletionService(Protocol):
    """Moves the start of a log, as DeleteRecords does."""

    def delete_before(
        self, partition: LeaderPartition, offset: int, done: Callable[[Offset | ApiError], None]
    ) -> None: ...


class QueueDescriptions(Protocol):
    """The queues of all coordinators."""

    def describe(self, group_ids: Sequence[str], topic_ids: Sequence[TopicId], done: OnDescribed) -> None: ...


class ConsumedCleanup:
    """Deletes what all queues have finished, in the partitions that this node leads."""

    def __init__(
        self,
        runtime: Runtime,
        node_id: NodeId,
        partitions: ConsumedPartitions,
        queues: QueueDescriptions,
        deletion: DeletionService,
    ) -> None:
        self._timers = runtime.timers
        self._clock = runtime.clock
        self._node_id = node_id
        self._partitions = partitions
        self._queues = queues
        self._deletion = deletion
        self._image = MetadataImage()
        # The names of topics that may have the policy.
        self.topics: dict[str, None] = {}
        self._is_started = False

    def on_metadata(self, image: MetadataImage) -> None:
        """Nothing runs while no topic has the policy."""
        before, self._image = self._image.configs, image
        if image.configs is not before:
            changed = image.configs.keys_changed_since(before) + before.keys_missing_in(image.configs)
            for kind, name in changed:
                if kind is not ConfigResourceType.TOPIC:
                    continue
                if _POLICY in image.config(kind, name).get(_KEY, ""):
                    self.topics[name] = None
                else:
                    self.topics.pop(name, None)
        if self.topics and not self._is_started:
            self._is_started = True
            self._later()

    def _later(self) -> None:
        self._timers.at(Instant(self._clock.now() + CHECK_MS * MILLISECOND), self._check)

    def _check(self) -> None:
        for name in sorted(self.topics):
            topic = self._image.topic(name)
            is_led = topic is not None and any(each.leader == self._node_id for each in topic.partitions)
            if (
                topic is not None
                and is_led
                and CleanupPolicy.CONSUMED in self._partitions.options(name).cleanup
            ):
                self._queues.describe((), [topic.id], partial(self._clean, name, topic.id))
        self._later()

    def _clean(self, name: str, topic_id: TopicId, described: QueuesDescribed) -> None:
        topic = self._image.topic(name)
        if described.error is not None or topic is None or topic.id != topic_id:
            # Whoever is missing may have something to do.
            return
        groups = {each.stored.queue.group_id: None for each in described.queues}
        for placed in topic.partitions:
            its = [each for each in described.queues if each.stored.queue.partition == placed.index]
            partition = self._partitions.find(name, placed.index)
            if not its or len(its) < len(groups) or partition is None or partition.stopped is not None:
                continue
            if partition.topic_id == topic_id:
                self._delete(partition, Offset(min(_finished(partition, each) for each in its)))

    def _delete(self, partition: LeaderPartition, finished: Offset) -> None:
        end = min(finished, partition.log.last_stable_offset)
        if end <= partition.log.start:
            return

        def deleted(start: Offset | ApiError) -> None:
            if isinstance(start, ApiError):
                events.warning("queue.consumed_not_deleted", partition=str(partition.name), error=str(start))

        self._deletion.delete_before(partition, end, deleted)


def _finished(partition: LeaderPartition, described: QueueDescription) -> Offset:
    own = described.stored.leader_epoch
    later = [each.start for each in partition.log.epochs.entries() if each.epoch > own]
    return Offset(min([described.finished_below, *later]))
