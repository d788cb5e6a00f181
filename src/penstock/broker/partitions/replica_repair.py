"""Repair of logs that are damaged or cannot be written: the replica resigns, and its leader refills it.

    damage is found ──► ResignReplica ──► committed: no one relies on this replica any more
                                             │  a new leader epoch, in which this node follows
                                             ▼
                        the damaged ranges of its segments are fetched from other replicas, and then
                        the leader is followed again (see `broker.replication.segment_refill`)

Nothing is removed before the resignation is committed: until then this replica may be the only one
that has the records behind the damage. If the growing segment is damaged when the node starts, there is
no telling where it ended: damaged segments go to quarantine, the log is cut before the first of them,
and the leader sends the rest again. A log that failed (its sync did) resigns as well and stays
as it is until the node starts again; one whose disk is full resigns too, and follows on as soon as
there is room, so that nobody waits for it until then. The only complete replica cannot resign, and a
leader whose log can be read does not while no other complete replica is live: its error is reported,
and what can be read is read.

A log that existed and is missing is created again and filled by the leader once the replica
has resigned. Until then, and for ever if there is no other replica, its partition is offline: an empty log
in its place would pass for a complete one, and others would cut theirs to match it.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from penstock.broker.partitions.follower_partition import FollowerPartition
from penstock.broker.partitions.leader_partition import Replica
from penstock.core.metadata import EMPTY_IMAGE, Command, MetadataImage, Reply, ResignReplica, Topic
from penstock.core.metadata import Partition as PartitionState
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    BrokerEpoch,
    CorruptionError,
    Instant,
    NodeId,
    Offset,
    PartitionIndex,
    PenstockError,
    StorageError,
    TopicId,
    TopicPartition,
)
from penstock.observability import log as events
from penstock.runtime import Runtime, Timer

LOOK_MS = 5_000
Key: TypeAlias = tuple[TopicId, PartitionIndex]
# Submits a command to the controller, wherever it is.
Submit: TypeAlias = Callable[[Command, Callable[[Reply], None]], None]


class ReplicaRepair:
    """Checks logs periodically, and resigns from those that are damaged or cannot be written."""

    def __init__(
        self,
        me: NodeId,
        runtime: Runtime,
        logs: Callable[[], list[Replica]],
        find: Callable[[Key], Replica | None],
    ) -> None:
        self._me = me
        self._runtime = runtime
        self._logs = logs
        self._find = find
        self._image = EMPTY_IMAGE
        self._broker_epoch = BrokerEpoch(-1)
        self._submit: Submit | None = None
        self._timer: Timer | None = None
        # Logs that could not be opened: they are not created again while the cluster relies on them.
        self._lost: dict[Key, str] = {}
        # The resignations requested, and when each may be requested again.
        self._asked: dict[Key, Instant] = {}

    def start(self, broker_epoch: BrokerEpoch, submit: Submit) -> None:
        """Check now, and then periodically."""
        self._broker_epoch = broker_epoch
        self._submit = submit
        self._check()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_metadata(self, image: MetadataImage) -> None:
        self._image = image

    def is_relied_on(self, state: PartitionState) -> bool:
        """Whether the cluster relies on this node for what the partition holds."""
        return len(state.replicas) > 1 and self._me in (state.leader, *state.isr, *state.elr)

    def _matters(self, state: PartitionState) -> bool:
        """Whether the log of this node may hold committed records, or be elected for them."""
        return len(state.replicas) == 1 or self.is_relied_on(state) or self._me in state.last_known_elr

    def on_log_lost(self, topic: Topic, state: PartitionState, reason: str) -> None:
        """The log of a replica is missing, or cannot be identified."""
        if self._matters(state):
            self._lost[topic.id, state.index] = reason
        events.error(
            "replica.lost",
            partition=f"{topic.name}/{state.index}",
            reason=reason,
            replicas=len(state.replicas),
            online=not self._matters(state),
        )

    def lost(self) -> dict[Key, str]:
        """The logs that are missing and must not be created yet, and what is known of them."""
        return dict(self._lost)

    def may_create(self, topic_id: TopicId, state: PartitionState) -> bool:
        """Whether an empty log may be created: it must not be taken for a complete one."""
        if (topic_id, state.index) in self._lost and self._matters(state):
            return False
        self._lost.pop((topic_id, state.index), None)
        return True

    def repair(self, replica: Replica, state: PartitionState) -> bool:
        """Repair what is damaged, if no one relies on it; call it in a new leader epoch.

        Returns whether segments have to be filled, or producers rebuilt, before the leader is followed. If
        the last segment is damaged, what is damaged goes to the quarantine instead, with all behind it; that
        blocks.
        """
        log = replica.log
        if log.is_start_in_doubt and not self.is_relied_on(state):
            self._begin_anew(replica)
            return False
        damaged = log.corruption
        if self.is_relied_on(state) or not _can_mend(replica):
            return False
        if log.stopped is None:
            return True
        segments = list(dict.fromkeys(damage.segment for damage in damaged))
        try:
            for segment in segments:
                log.quarantine(segment)
            log.truncate_to(segments[0])
        except PenstockError as error:
            events.error("partition.repair_failed", partition=str(replica.name), error=error)
        else:
            events.warning("partition.repaired", partition=str(replica.name), end=log.end)
        return log.is_unsure and log.stopped is None

    def _begin_anew(self, replica: Replica) -> None:
        """Have the leader send everything: by following, a log never gets its beginning back."""
        start, end = replica.log.start, replica.log.end
        try:
            replica.log.truncate_fully(Offset(0))
        except StorageError as error:
            events.error("partition.repair_failed", partition=str(replica.name), error=error)
        else:
            events.warning("partition.start_unknown", partition=str(replica.name), start=start, end=end)

    def resign(self, topic_id: TopicId, name: TopicPartition) -> None:
        """Something could not be written or created: let the others continue without this replica."""

        def resign() -> None:
            state = self._image.partition(name.topic, name.partition)
            if state is not None and self.is_relied_on(state) and not self._serves_alone(topic_id, state):
                self._resign(topic_id, name.partition)

        self._runtime.timers.soon(resign)

    def _serves_alone(self, topic_id: TopicId, state: PartitionState) -> bool:
        """Whether this node leads, can still be read from, and those that could take over are down.

        Then it stays until one of them is there: what is not damaged can be read meanwhile.
        """
        replica = self._find((topic_id, state.index))
        if replica is None or replica.log.stopped is not None or state.leader != self._me:
            return False
        others = [node for node in state.complete if node != self._me]
        return bool(others) and not any(map(self._image.may_lead, others))

    def _check(self) -> None:
        for topic_id, index in list(self._lost):
            topic = self._image.topic_by_id(topic_id)
            state = None if topic is None else topic.partition(index)
            if state is None:
                del self._lost[topic_id, index]
            elif len(state.replicas) > 1 and self._matters(state):
                self._resign(topic_id, index)
        for replica in self._logs():
            log = replica.log
            if log.corruption or log.is_unsure or log.stopped is not None:
                self._consider(replica)
        deadline = Instant(self._runtime.clock.now() + LOOK_MS * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, self._check)

    def _consider(self, replica: Replica) -> None:
        state = self._image.partition(replica.name.topic, replica.name.partition)
        if state is None or len(state.replicas) == 1:
            return
        role = replica.role
        if self._serves_alone(replica.topic_id, state):
            return
        if isinstance(role, FollowerPartition) and role.needs_refill:
            # It is being repaired.
            return
        # A follower is repaired in a new leader epoch; one that cannot be has nothing to gain.
        if self.is_relied_on(state) or (_can_mend(replica) and role is not None):
            self._resign(replica.topic_id, replica.name.partition)

    def _resign(self, topic_id: TopicId, index: PartitionIndex) -> None:
        key, now = (topic_id, index), self._runtime.clock.now()
        if self._submit is not None and now >= self._asked.get(key, now):
            self._asked[key] = Instant(now + LOOK_MS * MILLISECOND)
            command = ResignReplica(self._me, self._broker_epoch, topic_id, index)
            self._submit(command, partial(self._resigned, key))

    def _resigned(self, key: Key, reply: Reply) -> None:
        name = self._image.topic_name(key[0]) or str(key[0])
        if isinstance(reply, ApiError):
            # The others may have caught up next time.
            reason = reply.detail or reply.kind.value
            events.error("replica.resign_failed", partition=f"{name}/{key[1]}", reason=reason)
        else:
            self._asked.pop(key, None)
            events.warning("replica.resigned", partition=f"{name}/{key[1]}")


def _can_mend(replica: Replica) -> bool:
    log = replica.log
    is_damaged = bool(log.corruption) or log.is_unsure
    return is_damaged and (log.stopped is None or isinstance(log.stopped, CorruptionError))
