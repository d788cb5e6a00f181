"""How large a simulated cluster is, how much its clients do, and how long the faults last."""

import random
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.broker.cluster import BrokerSessionOptions, QuorumOptions, Voter
from penstock.broker.coordinator import CoordinatorOptions
from penstock.broker.coordinator.queues import QueueServiceOptions
from penstock.broker.partitions import FsyncMode
from penstock.core.metadata.access import ScramMechanism
from penstock.core.model import MILLISECOND, SECOND, NodeId
from penstock.core.queues import QueueSettings
from penstock.core.raft import RaftOptions
from penstock.node import ListenerOptions, NodeOptions
from penstock.runtime import Address
from penstock.security import ANONYMOUS
from penstock.security.options import EncryptionOptions, SecurityOptions
from penstock.sim.faults import FaultPlan
from penstock.storage.journal import JournalOptions

KAFKA_PORT, PEER_PORT = 9092, 7000
# Where users log in.
SASL_PORT = 9093
TOPIC = "orders"
# Written to by transactions only.
TRANSFERS = "transfers"
# Subscribed to by members of consumer groups, and written to by nobody.
RETURNS = "returns"
# Written to for queues alone.
JOBS = "jobs"
# Where dead letters of those are moved to.
REDRIVEN = "redriven"
# Read and written by users who log in, as far as rules allow it.
PRIVATE = "private"
# Small, so that segments are rolled, snapshots taken and sessions ended within a few seconds.
STATIC = {
    "log.segment.bytes": "6000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "20",
    "group.min.session.timeout.ms": "100",
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": "1000",
    # Records are older than any clock says.
    "log.retention.ms": "-1",
}
# In how many of the runs there is each kind of work that others can do without.
SHARE = 0.25
TRANSACTIONS_SHARE = 0.4
CONSUMER_GROUPS_SHARE = 0.15
# Of the runs with transactions.
SINKS_SHARE = 0.15
QUEUES_SHARE = 0.15
# Of the runs that are asked for queues.
PAUSED_SHARE = 0.6
REDRIVEN_SHARE = 0.4
# Less often where it takes another node, and more time.
FOUR_NODES_SHARE = 0.15
CONSUMER_SESSION_MS = 1_000
CONSUMER_GROUPS = {
    "group.consumer.session.timeout.ms": str(CONSUMER_SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "200",
}
# What topics are where nodes have keys.
ENCRYPTED = "true"
SHARE_SESSION_MS = 1_000
SHARE_GROUPS = {
    "group.share.session.timeout.ms": str(SHARE_SESSION_MS),
    "group.share.heartbeat.interval.ms": "200",
}
# Replicas of dead letters and of queues: as many as of what they come from.
QUEUES = {"min.insync.replicas": "2"}
QUEUE_OPTIONS = QueueServiceOptions(coordinator=CoordinatorOptions(rewrite_records_min=60))
RETENTION_BYTES = (3_000, 8_000)
RETENTION_CHECK_MS = 150
FSYNC_INTERVAL_MS = 200
# In how many of the runs producers do not wait for syncs.
WITHOUT_SYNCS = 0.15
COMPACTION = {
    "cleanup.policy": "compact",
    "segment.bytes": "1500",
    "min.cleanable.dirty.ratio": "0.1",
}
RETAINED_SEGMENT_BYTES = 1_500
QUORUM = QuorumOptions(snapshot_facts=60, segment_bytes=6_000)
JOURNAL = JournalOptions(first_bytes=8 << 10, file_bytes=16 << 10, entry_bytes_max=2_000, full_files_max=1)
# All clients but users are nobody, and may do everything.
SECURITY = SecurityOptions(
    enabled=True,
    super_users=(str(ANONYMOUS),),
    mechanisms=(ScramMechanism.SCRAM_SHA_256.sasl_name,),
)


# Where the keys come from is up to the simulated nodes.
ENCRYPTION = EncryptionOptions()


class QueueGroup(NamedTuple):
    """Consumers of a topic's queues, and how those deliver."""

    name: str
    topic: str
    settings: QueueSettings
    # Whether its topic is written to by transactions.
    is_transactional: bool = False


_RETRIES = QueueSettings(deliveries_max=3, backoff_ms=150, backoff_ms_max=400)
WORKERS = QueueGroup("workers", JOBS, _RETRIES)
ORDERED = QueueGroup("ordered", JOBS, replace(_RETRIES, is_key_ordered=True, deliveries_max=4))
AUDITORS = QueueGroup("auditors", TRANSFERS, _RETRIES, is_transactional=True)
QUEUE_GROUPS = (WORKERS, ORDERED, AUDITORS)
SHARERS = QueueGroup("sharers", JOBS, replace(_RETRIES, lease_ms=2_000, deliveries_max=5))


@dataclass(frozen=True, slots=True)
class SimulatedClusterOptions:
    """One kind of run. Without a plan, the faults are drawn from the seed."""

    nodes: int = 3
    partitions: int = 2
    idempotent_producers: int = 2
    consumers: int = 1
    # Members of each group; those of the second group are static.
    members: int = 2
    groups: int = 2
    admins: int = 1
    # Clients that delete records from the front of partitions.
    deleters: int = 0
    # Whether the logs are compacted; then nothing is deleted from the front.
    compacted: bool = False
    # Without syncs before acknowledgements power is never cut; topics ask for them, and change their mind.
    fsync: FsyncMode = FsyncMode.EVERY
    # Clients that move partitions to other brokers.
    movers: int = 0
    # Clients that take the leaders of a partition out of it, one soon after the other: four nodes or more.
    rotators: int = 0
    # Clients that take voters out of the metadata quorum and put them back.
    voter_admins: int = 0
    # Clients that write in transactions, and those that consume, transform and produce in them.
    transactional_producers: int = 0
    transformers: int = 0
    # Members of a group that speaks the new protocol (KIP-848); every third one is static.
    consumer_members: int = 0
    # Drivers of sinks, whose tasks write in transactions of their own that are committed together.
    sinks: int = 0
    # Consumers that read what is committed from followers; then every node has a rack of its own.
    rack_consumers: int = 0
    # Consumers of each group of queues, besides those that acknowledge in transactions.
    queue_consumers: int = 0
    queue_transactors: int = 0
    # Members of a share group on the same topic.
    share_consumers: int = 0
    # Clients that pause and resume queues.
    queue_pausers: int = 0
    # Clients that have dead letters moved to another topic.
    queue_redrivers: int = 0
    # Users whose rights, passwords, API keys and quotas change, while they read and write a topic of their
    # own. Then the nodes are secured, and whoever does not log in may do everything.
    access_users: int = 0
    # How wrong the wall clocks of those who write for queues may be; those of nodes always are.
    client_skew_ms: int = 0
    # How much of each log is kept; -1: everything. Segments are smaller then.
    retention_bytes: int = -1
    # Between two batches of one producer to one partition, on average.
    pace_ms: float = 40
    faulty_ns: int = 3 * SECOND
    healing_ns: int = 60 * SECOND
    # How long a sync takes at most: slow disks leave time between a write and its sync.
    sync_max_ns: int = 2 * MILLISECOND
    # How many bytes of the quorum's log travel in one message: few, so that logs are caught up in steps.
    raft_append_bytes: int = 400
    # How old checkpoints of logs become: little, so that some are under way when a fault comes.
    checkpoint_ms: int = 300
    # Whether nodes have master keys, and encrypt what is on their disks.
    encrypted: bool = False
    # Whether a node that was stopped or cut off may give no answer that others could contradict.
    fresh: bool = True
    plan: FaultPlan | None = None
    # A run in which less is done under faults proves little, and is an error.
    acknowledged_min: int = 100
    commits_min: int = 5
    transactions_min: int = 5
    batches_min: int = 1
    queue_acks_min: int = 20
    queue_redeliveries_min: int = 3
    access_served_min: int = 10
    access_denied_min: int = 5
    access_changes_min: int = 5
    rotations_min: int = 1
    static: dict[str, str] = field(default_factory=lambda: dict(STATIC))

    @property
    def replicas(self) -> int:
        return min(self.nodes, 3)

    @property
    def has_transactions(self) -> bool:
        writers = (self.transactional_producers, self.transformers, self.sinks, self.queue_transactors)
        return any(writers)

    @property
    def queue_groups(self) -> tuple[QueueGroup, ...]:
        if not self.queue_consumers:
            return ()
        return (*QUEUE_GROUPS, *([SHARERS] if self.share_consumers else []))

    @property
    def pausable_groups(self) -> tuple[QueueGroup, ...]:
        return tuple(group for group in self.queue_groups if group.topic == JOBS)

    @property
    def topic_configs(self) -> dict[str, str]:
        """Those of the topic that all clients work with."""
        configs = {"min.insync.replicas": "2" if self.replicas > 2 else "1"}
        if self.retention_bytes >= 0:
            configs["retention.bytes"] = str(self.retention_bytes)
            configs["segment.bytes"] = str(RETAINED_SEGMENT_BYTES)
        if self.compacted:
            configs |= COMPACTION
        return configs

    def with_consumer_group(self, luck: random.Random) -> "SimulatedClusterOptions":
        """The same workload, and in some of the runs a consumer group in the place of other groups.

        Drawn from randomness of its own, so that nothing else depends on it.
        """
        if luck.random() >= CONSUMER_GROUPS_SHARE:
            return self
        return replace(self, consumer_members=luck.randint(2, 4), groups=1)

    def with_sinks(self, luck: random.Random) -> "SimulatedClusterOptions":
        """The same workload, and in some of the runs with transactions a sink in the place of a producer.

        Drawn from randomness of its own, so that nothing else depends on it.
        """
        if not self.has_transactions or luck.random() >= SINKS_SHARE:
            return self
        return replace(self, sinks=1, transactional_producers=1, rack_consumers=1)

    def with_queues(self, luck: random.Random, *, always: bool = False) -> "SimulatedClusterOptions":
        """The same workload, and in some of the runs, or in every one, queues in the place of other groups.

        Drawn from randomness of its own, so that nothing else depends on it.
        """
        if not always and (luck.random() >= QUEUES_SHARE or self.compacted):
            return self
        consumers, transactors = luck.randint(1, 3), luck.randint(0, 2)
        return replace(
            self,
            # Queues need every record.
            compacted=False,
            queue_consumers=consumers,
            queue_transactors=transactors,
            groups=1,
            members=1,
            # What is for queues may be done before a transaction of theirs is committed.
            transactional_producers=max(self.transactional_producers, min(transactors, 1)),
            transformers=0,
            partitions=min(self.partitions, 2),
            idempotent_producers=1,
            transactions_min=1,
        )

    def with_more_of_queues(self, luck: random.Random) -> "SimulatedClusterOptions":
        """What only those runs have that are asked for queues, in the place of what others do as well."""
        return replace(
            self,
            share_consumers=luck.randint(1, 3),
            queue_pausers=int(luck.random() < PAUSED_SHARE),
            queue_redrivers=int(luck.random() < REDRIVEN_SHARE),
            queue_consumers=luck.randint(1, 2),
            consumer_members=0,
            sinks=0,
            rack_consumers=0,
            pace_ms=max(self.pace_ms, 20),
        )

    def with_access(self, luck: random.Random) -> "SimulatedClusterOptions":
        """The same workload, with users in the place of other groups."""
        return replace(self, access_users=luck.randint(1, 3), groups=1, members=1, transformers=0)

    @staticmethod
    def draw(luck: random.Random) -> "SimulatedClusterOptions":
        """Another workload for every seed."""
        drawn = SimulatedClusterOptions(
            nodes=luck.choice((3, 3, 3, 3, 3, 3, 5)),
            partitions=luck.randint(1, 3),
            pace_ms=luck.choice((10, 20, 40)),
            groups=luck.randint(1, 3),
            faulty_ns=luck.choice((2, 3, 4)) * SECOND,
            sync_max_ns=luck.choice((1, 2, 10, 40)) * MILLISECOND,
            checkpoint_ms=luck.choice((60, 300, 1_000)),
            raft_append_bytes=luck.choice((200, 1_000, 256 << 10)),
            static={
                **STATIC,
                "replica.lag.time.max.ms": luck.choice(("150", "400", "1000")),
                "log.scrub.interval.ms": luck.choice(("200", "1000", "604800000")),
            },
            deleters=int(luck.random() < SHARE),
            retention_bytes=luck.choice(RETENTION_BYTES) if luck.random() < SHARE else -1,
            movers=int(luck.random() < FOUR_NODES_SHARE),
            voter_admins=int(luck.random() < FOUR_NODES_SHARE),
        )
        if luck.random() < SHARE:
            static = {**drawn.static, "log.cleaner.backoff.ms": "100"}
            drawn = replace(drawn, compacted=True, deleters=0, retention_bytes=-1, static=static)
        if luck.random() < WITHOUT_SYNCS:
            drawn = replace(drawn, fsync=luck.choice((FsyncMode.INTERVAL, FsyncMode.NONE)))
        if luck.random() < TRANSACTIONS_SHARE:
            # In the place of other groups, so that a run costs about as much as without.
            drawn = replace(drawn, transactional_producers=luck.randint(1, 2), transformers=2, groups=1)
        # A move needs somewhere to go, and a quorum without one of its voters must survive damage.
        needs_more = bool(drawn.movers or drawn.voter_admins)
        return replace(drawn, nodes=max(drawn.nodes, 4)) if needs_more else drawn


def name_of(node_id: int) -> str:
    """The host of a node."""
    return f"n{node_id}"


def rack_of(node_id: int) -> str:
    """Where a node stands, if racks matter."""
    return f"rack-{node_id}"


def node_options(options: SimulatedClusterOptions, number: int) -> NodeOptions:
    """The options of one node of the cluster."""
    voters = tuple(Voter(NodeId(n), Address(name_of(n), PEER_PORT)) for n in range(1, options.nodes + 1))
    together = options.nodes > 1
    return NodeOptions(
        data_dir="",
        node_id=NodeId(number),
        rack=rack_of(number) if options.rack_consumers else None,
        listeners=_listeners(options, number),
        security=_security(options),
        peer=Address(name_of(number), PEER_PORT) if together else None,
        voters=voters if together else (),
        fsync=options.fsync,
        fsync_interval_ms=FSYNC_INTERVAL_MS,
        retention_check_ms=RETENTION_CHECK_MS if options.retention_bytes >= 0 else 60_000,
        checkpoint_ms=options.checkpoint_ms,
        checkpoint_check_ms=options.checkpoint_ms // 2,
        # Segments are small: what production does for large ones is done for all of them.
        rebuild_bytes_max=0,
        journal=JOURNAL,
        static=_static(options),
        queues=QUEUE_OPTIONS,
        quorum=QUORUM,
        raft=RaftOptions(append_bytes_max=options.raft_append_bytes),
        # Runs last for seconds: a partition whose replica does not come back must not wait for most of one.
        sessions=BrokerSessionOptions(report_grace_ms=1_000),
    )


def _listeners(options: SimulatedClusterOptions, number: int) -> tuple[ListenerOptions, ...]:
    plain = ListenerOptions(Address(name_of(number), KAFKA_PORT))
    if not options.access_users:
        return (plain,)
    return plain, ListenerOptions(Address(name_of(number), SASL_PORT), "SASL", "SASL_PLAINTEXT")


def _security(options: SimulatedClusterOptions) -> SecurityOptions:
    security = SECURITY if options.access_users else SecurityOptions()
    return replace(security, encryption=ENCRYPTION) if options.encrypted else security


def _static(options: SimulatedClusterOptions) -> dict[str, str]:
    static = dict(options.static)
    if options.encrypted:
        static["log.encryption.at.rest"] = ENCRYPTED
    if options.consumer_members:
        static |= CONSUMER_GROUPS
    if options.share_consumers:
        static |= SHARE_GROUPS
    if options.queue_consumers and options.replicas > 2:
        static |= QUEUES
    return static
