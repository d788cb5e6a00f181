"""The cluster of one run: its nodes and its clients, and who leads what."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from penstock.broker.cluster.bootstrap import BootstrapFailed
from penstock.broker.encryption.key_rotation import RotationPhase
from penstock.broker.partitions import LeaderPartition
from penstock.broker.queues.dead_letters import dead_letter_topic
from penstock.core.metadata import (
    NO_LEADER,
    OFFSETS_TOPIC,
    QUEUES_TOPIC,
    TRANSACTIONS_TOPIC,
    MetadataImage,
)
from penstock.core.model import MILLISECOND, NodeId, PartitionIndex
from penstock.core.queues import QueueId
from penstock.core.queues.queue import Queue
from penstock.runtime import Address
from penstock.sim.checkers.queues import QueuePolicy
from penstock.sim.cluster.clients.access import SimulatedUser, UserAdmin, UserClient
from penstock.sim.cluster.clients.admin import SimulatedAdmin, TopicCreation
from penstock.sim.cluster.clients.consumer_members import ConsumerGroupMember
from penstock.sim.cluster.clients.consumers import AssignedConsumer
from penstock.sim.cluster.clients.deletions import RecordDeleter
from penstock.sim.cluster.clients.master_keys import KeyRotator
from penstock.sim.cluster.clients.members import SimulatedMember
from penstock.sim.cluster.clients.producers import AtMostOnceProducer, IdempotentProducer
from penstock.sim.cluster.clients.queue_admins import QueuePauser, QueueRedriver
from penstock.sim.cluster.clients.queues import JobProducer, QueueConsumer, QueueTransactor
from penstock.sim.cluster.clients.reassignments import LeaderRotator, PartitionMover
from penstock.sim.cluster.clients.share_consumers import ShareConsumer
from penstock.sim.cluster.clients.sinks import SimulatedSink
from penstock.sim.cluster.clients.transactions import IsolatedConsumer, RackConsumer, TransactionalProducer
from penstock.sim.cluster.clients.transformers import TransformingMember
from penstock.sim.cluster.clients.voters import VoterAdmin
from penstock.sim.cluster.journal import Journal, Place
from penstock.sim.cluster.node import ClusterNode, MakeProcess, SimulatedBroker, SimulatedKeys
from penstock.sim.cluster.options import (
    JOBS,
    PRIVATE,
    REDRIVEN,
    SHARERS,
    TOPIC,
    TRANSFERS,
    WORKERS,
    QueueGroup,
    SimulatedClusterOptions,
    name_of,
    node_options,
    rack_of,
)
from penstock.sim.cluster.probe import EligibilityProbe
from penstock.sim.faults import FaultTarget
from penstock.sim.node import SimulatedNode
from penstock.sim.tcp import SimulatedTcp
from penstock.sim.world import EVERYTHING, World

STATIC_GROUP = "group-2"
TRANSFORMERS = "transformers"
CONSUMER_GROUP = "consumer-group"
# Every so many-th member of it is static.
STATIC_EVERY = 3
# Between two transactions of one producer, in steps of one that writes without.
TRANSACTION_STEPS = 2
# Between two batches of what queues have to do.
JOB_STEPS = 3
# Between two pauses of queues.
PAUSE_STEPS = 10
# Between two requests to move dead letters.
REDRIVE_STEPS = 10
EVENTS_MAX = 300_000
# A controller is new in its term, and again if it has survived a fault for so long.
NEW_AGAIN_NS = 1_500 * MILLISECOND
# So many records more on every partition mean that the cluster works again.
PROGRESS = 5


WritingClient: TypeAlias = IdempotentProducer | AtMostOnceProducer | TransactionalProducer | SimulatedSink
OtherClient: TypeAlias = (
    AssignedConsumer
    | IsolatedConsumer
    | SimulatedMember
    | ConsumerGroupMember
    | SimulatedAdmin
    | QueueConsumer
    | ShareConsumer
    | QueuePauser
    | QueueRedriver
    | RecordDeleter
    | PartitionMover
    | VoterAdmin
    | KeyRotator
    | UserAdmin
    | UserClient
)


class ClusterWorld:
    """Nodes `n1` to `nN` and the hosts of their clients."""

    def __init__(
        self, seed: int, options: SimulatedClusterOptions, make: MakeProcess = SimulatedBroker
    ) -> None:
        self.options = options
        self.world = World(seed)
        self.world.refusals = (BootstrapFailed,)
        self.world.scheduler.events_max = EVENTS_MAX
        self.journal = Journal()
        self.journal.freshness.is_active = self.journal.groups.is_fresh = options.fresh
        self.journal.is_compacted = options.compacted
        self.journal.log_starts.retention_bytes = options.retention_bytes
        self.journal.is_live = self._is_live
        self.nodes: dict[NodeId, ClusterNode] = {}
        self.tcp = SimulatedTcp(self.world.network)
        self.probe = EligibilityProbe(self.journal, self.world, self.nodes)
        for number in range(1, options.nodes + 1):
            # No two nodes have the same.
            keys = SimulatedKeys(self.world.random(f"keys of {number}")) if options.encrypted else None
            self._add(ClusterNode(node_options(options, number), self.journal, self.tcp, make, keys))
        self.places = [(TOPIC, index) for index in range(options.partitions)]
        count = options.partitions if options.has_transactions else 0
        self.transfers = [(TRANSFERS, index) for index in range(count)]
        internal = [(OFFSETS_TOPIC, 0), *([(TRANSACTIONS_TOPIC, 0)] if self.transfers else [])]
        self.jobs = [(JOBS, index) for index in range(options.partitions if options.queue_consumers else 0)]
        self.private = [
            (PRIVATE, index) for index in range(options.partitions if options.access_users else 0)
        ]
        # What faults are aimed at, and the probe looks at.
        self.used = [*self.places, *self.transfers, *self.private, *internal, *self._queue_places()]
        self.probe.watch(self.used)
        self._progress = [0 for _ in self.places]
        self.waits_for_groups = False
        # The newest term whose leader a fault was aimed at.
        self._aimed_term, self._aimed_at = -1, 0
        self.creator = TopicCreation(self, options)
        self.groups = [f"group-{n}" for n in range(1, options.groups + 1)] if options.members else []
        self.sinks = [
            SimulatedSink(self, f"sink-{n}", self.transfers, TRANSACTION_STEPS * options.pace_ms)
            for n in range(options.sinks)
        ]
        self.producers = self._producers()
        self.consumer_members = [
            ConsumerGroupMember(
                self, f"consumer-member-{n}", CONSUMER_GROUP, static=n % STATIC_EVERY == STATIC_EVERY - 1
            )
            for n in range(options.consumer_members)
        ]
        self.queue_consumers = self._queue_consumers()
        self.others = self._others()
        self.world.hosts += [client.host for client in (*self.producers, *self.others)]
        self.world.hosts += [task.host for sink in self.sinks for task in sink.tasks]

    def _add(self, node: ClusterNode) -> None:
        node.probe = self.probe
        node.machine = self.world.add(name_of(node.node_id), node)
        node.machine.pace.work_max_ns = MILLISECOND
        node.machine.pace.sync_max_ns = self.options.sync_max_ns
        self.nodes[node.node_id] = node

    def _queue_places(self) -> list[Place]:
        """The partitions that are there because of queues."""
        if not self.jobs:
            return []
        letters = [(dead_letter_topic(topic), index) for topic, index in (*self.jobs, *self.transfers)]
        moved = [(REDRIVEN, index) for _, index in self.jobs] if self.options.queue_redrivers else []
        return [*self.jobs, (QUEUES_TOPIC, 0), *letters, *moved]

    def queues(self) -> Iterator[tuple[QueueGroup, Place]]:
        """Every queue that consumers have to drain."""
        for group in self.options.queue_groups:
            for place in self.jobs if group.topic == JOBS else self.transfers:
                yield group, place

    def _queue_consumers(self) -> Sequence[QueueConsumer | ShareConsumer]:
        options, pace_ms = self.options, self.options.pace_ms
        for group in options.queue_groups:
            settings = group.settings
            self.journal.queues.policies[group.name] = QueuePolicy(
                settings.deliveries_max, settings.is_key_ordered, settings.backoff_ms, settings.backoff_ms_max
            )
        groups = dict.fromkeys(group for group, _ in self.queues() if group is not SHARERS)
        return [
            *(
                QueueConsumer(self, f"{group.name}-{n}", group, pace_ms)
                for group in groups
                for n in range(1 if group.is_transactional else options.queue_consumers)
            ),
            *(
                QueueTransactor(self, f"transactor-{n}", WORKERS, self.transfers, pace_ms)
                for n in range(options.queue_transactors)
            ),
            *(
                ShareConsumer(self, f"{SHARERS.name}-{n}", SHARERS, pace_ms)
                for n in range(options.share_consumers)
            ),
        ]

    def _producers(self) -> Sequence[WritingClient]:
        places, options = self.places, self.options
        idempotent = [
            IdempotentProducer(self, f"producer-{n}", places, options.pace_ms)
            for n in range(options.idempotent_producers)
        ]
        transactional = [
            TransactionalProducer(
                self, f"transactions-{n}", self.transfers, TRANSACTION_STEPS * options.pace_ms
            )
            for n in range(options.transactional_producers)
        ]
        return [
            *idempotent,
            AtMostOnceProducer(self, "at-most-once", places, options.pace_ms),
            *transactional,
            *self.sinks,
            *(
                JobProducer(self, "jobs", self.jobs, JOB_STEPS * options.pace_ms, options.client_skew_ms)
                for _ in self.jobs[:1]
            ),
        ]

    def _others(self) -> Sequence[OtherClient]:
        """Those who never come to an end by themselves."""
        places, options = self.places, self.options
        return [
            *(AssignedConsumer(self, f"consumer-{n}", places) for n in range(options.consumers)),
            *(
                SimulatedMember(self, f"member-{group}-{n}", group, places, static=group == STATIC_GROUP)
                for group in self.groups
                for n in range(options.members)
            ),
            *self.consumer_members,
            *self.queue_consumers,
            *(
                QueuePauser(
                    self,
                    f"pauser-{n}",
                    # No two of them have the same queue.
                    options.pausable_groups[n :: options.queue_pausers],
                    PAUSE_STEPS * options.pace_ms,
                )
                for n in range(options.queue_pausers)
            ),
            *(
                QueueRedriver(self, f"redriver-{n}", REDRIVE_STEPS * options.pace_ms)
                for n in range(options.queue_redrivers)
            ),
            *(
                TransformingMember(self, f"transformer-{n}", TRANSFORMERS, places, self.transfers)
                for n in range(options.transformers)
            ),
            *(
                IsolatedConsumer(self, f"isolated-{name}", self.transfers, committed=name == "committed")
                for name in (("committed", "uncommitted") if self.transfers else ())
            ),
            *(
                RackConsumer(self, f"in-rack-{n}", self.transfers, rack_of(n))
                for n in range(1, options.rack_consumers + 1)
            ),
            *(SimulatedAdmin(self, f"admin-{n}", options) for n in range(options.admins)),
            *(PartitionMover(self, f"mover-{n}", self.used, options) for n in range(options.movers)),
            *(LeaderRotator(self, f"rotator-{n}", self.used, options) for n in range(options.rotators)),
            *(VoterAdmin(self, f"voter-admin-{n}", options.pace_ms) for n in range(options.voter_admins)),
            *(KeyRotator(self, "key-rotator", options.pace_ms) for _ in range(options.encrypted)),
            *self._access_clients(),
            *(RecordDeleter(self, f"deleter-{n}", places, options.pace_ms) for n in range(options.deleters)),
        ]

    def _access_clients(self) -> Iterator[OtherClient]:
        """Users, each with a password and with an API key, and whoever changes what they may."""
        for number in range(self.options.access_users):
            user = SimulatedUser(f"user-{number}")
            pace_ms = self.options.pace_ms
            yield UserAdmin(self, f"access-admin-{number}", user, 2 * pace_ms)
            yield UserClient(self, user.name, user, self.private, pace_ms)
            yield UserClient(self, f"{user.name}-key", user, self.private, pace_ms, by_key=True)

    def bootstrap(self) -> dict[int, Address]:
        return {int(node_id): node.address for node_id, node in self.nodes.items()}

    def newest_term(self) -> int:
        return max((int(node.raft.term) for node in self.nodes.values() if node.raft is not None), default=0)

    def node(self, node_id: int) -> ClusterNode:
        return self.nodes[NodeId(node_id)]

    @property
    def has_failed(self) -> bool:
        """Whether something is wrong for good, so that there is no point in going on."""
        if self.world.scheduler.is_exhausted and not self.journal.failures:
            self.journal.failures.append(f"endless loop: more than {EVENTS_MAX} events in one run")
        return bool(self.world.failures) or self.journal.is_wrong

    def start_clients(self) -> None:
        for client in (*self.producers, *self.others):
            client.start()

    def finish_clients(self) -> None:
        """Let producers bring to an end what they have begun, and members settle."""
        for producer in self.producers:
            producer.finish()
        for member in self.consumer_members:
            member.settle()
        for client in self.others:
            if isinstance(client, QueueConsumer | ShareConsumer | QueuePauser):
                client.drain()
        if self.queue_consumers:
            # Whoever is an hour behind would deliver what is for later an hour late.
            for node in self.world.nodes.values():
                node.set_clock()

    def stop_clients(self) -> None:
        for other in self.others:
            other.stop()

    def too_little(self) -> Iterator[str]:
        """What was done too little for a run to prove something."""
        options, journal = self.options, self.journal
        if journal.acknowledged < options.acknowledged_min:
            yield f"only {journal.acknowledged} records were acknowledged"
        if self.groups and journal.groups.commits < options.commits_min:
            yield f"only {journal.groups.commits} offsets were committed"
        if self.consumer_members and journal.consumer_groups.commits < options.commits_min:
            yield f"only {journal.consumer_groups.commits} offsets were committed by the consumer group"
        if self.transfers and journal.transactions.committed < options.transactions_min:
            yield f"only {journal.transactions.committed} transactions were committed"
        if self.sinks and journal.batches.committed < options.batches_min:
            yield f"only {journal.batches.committed} batches were committed"
        if options.encrypted and journal.rotations < options.rotations_min:
            yield f"only {journal.rotations} master keys were rotated"
        yield from self._too_little_of_queues()
        yield from self._too_little_of_access()

    def _too_little_of_access(self) -> Iterator[str]:
        options, access = self.options, self.journal.access
        if self.private:
            if access.served < options.access_served_min:
                yield f"only {access.served} requests of users were served"
            if access.denied < options.access_denied_min:
                yield f"only {access.denied} requests of users were refused"
            if access.changes < options.access_changes_min:
                yield f"only {access.changes} rights were changed"

    def _too_little_of_queues(self) -> Iterator[str]:
        options, journal = self.options, self.journal
        if self.jobs:
            acks, again = journal.queues.acknowledgements, journal.queues.redeliveries
            if acks < options.queue_acks_min:
                yield f"only {acks} records of queues were acknowledged"
            if again < options.queue_redeliveries_min:
                yield f"only {again} records of queues were delivered again"

    def has_done_enough(self) -> bool:
        return next(self.too_little(), None) is None

    def waiting_clients(self) -> Iterator[str]:
        """Producers that have something to send or to wait for, and readers that have something to read."""
        yield from self.too_little()
        for producer in self.producers:
            if not producer.finished:
                yield f"{producer.host} has unacknowledged batches"
        for place in self.places:
            end = 1 + max(self.journal.log(*place).acknowledged.values(), default=-1)
            for group in self.groups:
                committed = self.journal.groups.committed_offset(group, place)
                if max(committed, 0) < end:
                    yield f"{group} is at {committed} of {place}, which ends at {end} or later"
            yield from self._readers_behind(AssignedConsumer, place, end)
        yield from self._unsettled_consumer_group()
        yield from self.undrained()
        for place in self.transfers:
            end = self.journal.transactions.acknowledged_end(place)
            yield from self._readers_behind(IsolatedConsumer, place, end)

    def undrained(self) -> Iterator[str]:
        """Queues with something to do."""
        image = self.newest_image()
        if image is None:
            return
        for group, place in self.queues():
            name, queue = f"the queue of {group.name} on {place[0]}/{place[1]}", self.queue(group.name, place)
            led = self.leader_of(place)
            if queue is None or led is None:
                yield f"{name} is nowhere"
            elif queue.entries:
                first = next(iter(queue.entries.values()))
                yield f"{name} has {len(queue.entries)} records left: {first.stored()}"
            elif queue.end < led.log.last_stable_offset:
                yield f"{name} is at {queue.end} of {led.log.last_stable_offset}"

    def queue(self, group_id: str, place: Place) -> Queue | None:
        """A queue at its coordinator, if that is ready."""
        image = self.newest_image()
        topic = None if image is None else image.topic(place[0])
        led, node = self.leader_of((QUEUES_TOPIC, 0)), self._leading_node((QUEUES_TOPIC, 0))
        if topic is None or led is None or node is None or node.backstage is None:
            return None
        for coordinator in node.backstage._queues or ():
            if coordinator.partition is led and coordinator.state.value is None:
                queue_id = QueueId(group_id, topic.id, PartitionIndex(place[1]))
                return coordinator.machine.queues.get(queue_id)
        return None

    def _leading_node(self, place: Place) -> ClusterNode | None:
        image = self.newest_image()
        partition = None if image is None else image.partition(*place)
        return None if partition is None else self.nodes.get(partition.leader)

    def leader_of(self, place: Place) -> LeaderPartition | None:
        """The partition at its leader, if that is ready."""
        node = self._leading_node(place)
        backend = None if node is None else node.backend
        led = None if backend is None else backend.partitions.find(*place)
        return None if led is None or not led.is_established else led

    def _unsettled_consumer_group(self) -> Iterator[str]:
        """Partitions of subscribed topics without one owner, and those whose owner does not want them."""
        for member in self.consumer_members:
            for place in member.owned:
                if place[0] not in member.subscription.topics:
                    yield f"{member.host} has {place[0]}/{place[1]}, and does not subscribe to it"
        image, now = self.newest_image(), self.world.scheduler.now
        wanted = dict.fromkeys(topic for one in self.consumer_members for topic in one.subscription.topics)
        for name in wanted:
            topic = None if image is None else image.topic(name)
            for partition in () if topic is None else topic.partitions:
                place = (name, partition.index)
                owners = self.journal.consumer_groups.owners(CONSUMER_GROUP, place, now)
                if len(owners) != 1:
                    yield f"{name}/{partition.index} has owners {owners} in {CONSUMER_GROUP}"

    def _readers_behind(
        self, kind: type[AssignedConsumer | IsolatedConsumer], place: Place, end: int
    ) -> Iterator[str]:
        for reader in self.others:
            if isinstance(reader, kind) and (at := reader.furthest(place)) < end:
                yield f"{reader.host} has read {place} to {at}; it ends at {end} or later"

    def works_again(self) -> bool:
        """Whether enough was done by now; nodes that ended of a fault are started again."""
        self.world.start_all()
        return self.has_done_enough()

    def clients_are_done(self) -> bool:
        """Whether clients have got all they wanted; nodes that ended of a fault are started again."""
        self.world.start_all()
        return next(self.waiting_clients(), None) is None

    def has_dropped_old_keys(self) -> bool:
        """Take away the master keys that nodes do not need; whether every node had nothing left to do."""
        self.world.start_all()
        rotations = [
            None if node.backstage is None else node.backstage.key_rotation for node in self.nodes.values()
        ]
        if any(one is None or one.status.phase is not RotationPhase.IDLE for one in rotations):
            return False
        for node, rotation in zip(self.nodes.values(), rotations, strict=True):
            assert rotation is not None
            assert node.keys is not None
            self.journal.keys_taken += node.keys.keep({use.name for use in rotation.status.keys})
        return True

    def restart_where_disks_failed(self) -> None:
        """What an operator does: starts nodes anew whose logs have stopped, and replaces damaged disks.

        Nothing else brings such a log back, and a node that finds its metadata damaged refuses to start.
        """
        for name, has_refused in self.world.damaged.items():
            if has_refused:
                self.world.damaged[name] = False
                self.world.nodes[name].replace_disk()
                self.world.damage(name, EVERYTHING)
                self.world.start_all([name])
        for node in self.nodes.values():
            backend = node.backend
            if backend is not None and any(p.log.stopped is not None for p in backend.partitions):
                node.machine.kill()
                self.world.start_all([node.machine.name])

    def newest_image(self) -> MetadataImage | None:
        """The image of the node that is up and knows most."""
        up = [node.backstage.controller for node in self.nodes.values() if node.backstage is not None]
        newest = max(up, key=lambda controller: controller.committed, default=None)
        return None if newest is None else newest.image

    def _is_live(self, node_id: int) -> bool:
        image = self.newest_image()
        broker = None if image is None else image.broker(NodeId(node_id))
        return broker is not None and not broker.fenced

    def works(self) -> bool:
        """Whether something was done since this last returned True.

        Something was acknowledged on every partition and, where it is waited for, committed by a group.
        """
        counts = [len(self.journal.log(*place).acknowledged) for place in self.places]
        if self.groups and self.waits_for_groups:
            counts.append(PROGRESS * self.journal.groups.commits)
        if any(now < before + PROGRESS for now, before in zip(counts, self._progress, strict=False)):
            return False
        self._progress = counts
        return True

    def find(self, aim: FaultTarget) -> SimulatedNode | None:
        """The machine that leads a partition that clients use, or the metadata quorum."""
        if aim in (FaultTarget.CONTROLLER, FaultTarget.NEW_CONTROLLER):
            # One that was cut off takes itself for the leader of an older term still.
            terms = {
                node: node.raft.term for node in self.nodes.values() if _leads_quorum(node) and node.raft
            }
            newest = max(terms, key=lambda node: terms[node], default=None)
            if newest is None:
                return None
            term, now = terms[newest], self.world.scheduler.now
            is_new = term > self._aimed_term or now > self._aimed_at + NEW_AGAIN_NS
            if aim is FaultTarget.NEW_CONTROLLER and not is_new:
                return None
            self._aimed_term, self._aimed_at = term, now
            return newest.machine
        image = self.newest_image()
        luck = self.world.random(f"aim {self.world.scheduler.now}")
        place = luck.choice(self.used)
        partition = None if image is None else image.partition(*place)
        if partition is None or partition.leader == NO_LEADER:
            return None
        return self.nodes[partition.leader].machine


def _leads_quorum(node: ClusterNode) -> bool:
    """Whether it is the leader of the quorum's term, established or not."""
    raft = node.raft
    return raft is not None and raft.leader == node.member
