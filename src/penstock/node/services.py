"""Every service of a node, without its listeners."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from penstock.broker.access import AccessService
from penstock.broker.audit_topic import AuditTopic
from penstock.broker.cluster import BrokerRegistration, ClusterMember, ClusterOptions, QuorumStore
from penstock.broker.cluster.live_brokers_barrier import LiveBrokersBarrier
from penstock.broker.configs import ConfigService
from penstock.broker.coordinator.delay_metrics import DelayMetrics
from penstock.broker.coordinator.delays import DelayService
from penstock.broker.coordinator.group_metrics import GroupMetrics
from penstock.broker.coordinator.groups import GroupService, options_of_node
from penstock.broker.coordinator.queue_metrics import QueueMetrics
from penstock.broker.coordinator.queues import QueueService, QueueServicePorts
from penstock.broker.coordinator.transaction_metrics import TransactionMetrics
from penstock.broker.coordinator.transactions import (
    TransactionPorts,
    TransactionService,
    transaction_options_of,
)
from penstock.broker.creation_rate import CreationLimits
from penstock.broker.delays.delay_view import DelayView
from penstock.broker.delays.peers import DelayPeers
from penstock.broker.delays.publisher import DelayPublisher
from penstock.broker.delete_records import RecordDeletionService
from penstock.broker.encryption import EncryptedStore, KeyRotation, KeyRotationOptions, MasterKeyAdmin
from penstock.broker.fetch import FetchService, waiting_fetch_limits
from penstock.broker.list_offsets import OffsetLookup
from penstock.broker.partitions import (
    FsyncMode,
    LogMaintenanceOptions,
    LogStore,
    ReplicaManager,
    ReplicaManagerOptions,
)
from penstock.broker.produce import ProduceMetrics, ProduceService
from penstock.broker.producer_ids import ProducerIdManager
from penstock.broker.queues.consumed_cleanup import ConsumedCleanup
from penstock.broker.queues.dead_letters import DeadLetterMover, TransactionalAppender
from penstock.broker.queues.group_settings import GroupQueueSettings
from penstock.broker.queues.member_releases import ShareMemberReleases
from penstock.broker.queues.peers import QueuePeers, QueuePorts
from penstock.broker.queues.queue_admin import QueueAdmin
from penstock.broker.queues.queue_view import QueueView
from penstock.broker.queues.record_reader import RecordReader
from penstock.broker.queues.redrive import Redriver
from penstock.broker.queues.transactional_commits import TransactionalQueueCommits
from penstock.broker.read_replicas import ReadReplicaSelector
from penstock.broker.replication import ReplicationService
from penstock.broker.telemetry import TelemetryMetrics, TelemetryService
from penstock.broker.topics import TopicService
from penstock.broker.transactions.batch_commit import BatchCommitService
from penstock.broker.transactions.coordinator_commands import TransactionalCommands
from penstock.broker.transactions.late_transactions import LateTransactionMetrics, LateTransactions
from penstock.broker.transactions.marker_sender import LeaderMarkerSender
from penstock.broker.transactions.markers import MarkerWriter
from penstock.broker.transactions.offset_commits import TransactionalOffsetCommits
from penstock.broker.transactions.peers import TransactionPeers
from penstock.broker.transactions.verification import TransactionVerification
from penstock.broker.worker_share import WorkerShare
from penstock.core.metadata import BrokerEndpoint, ControllerConfig, MetadataImage, broker_setting
from penstock.core.model import MILLISECOND, BrokerEpoch, Instant, NodeId
from penstock.node.options import NodeOptions, reachable
from penstock.observability import log as events
from penstock.runtime import Callback, ExecutorKind, Runtime
from penstock.runtime.sliced_work import SlicedWork, Slices
from penstock.security.key_uses import ApiKeyUses
from penstock.server.kafka.backend import AdvertisedListener, Backend, NodeInfo
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk
from penstock.storage.journal import CommitJournal, JournalFile, JournalOptions, JournalPlace
from penstock.storage.log import RecoveryReport
from penstock.storage.sealing import KeyVault

BROKER, CONTROLLER = "broker", "controller"
# What opening logs takes of a turn of the loop: there are no clients yet.
START_TURN_NS = 20 * MILLISECOND
# How long clients are not let in while logs are missing that the metadata places here.
LOGS_READY_MS = 1_000


@dataclass(frozen=True, slots=True)
class NodeStorage:
    """A data directory that is locked; `side_disk` is a view of it for work off the loop.

    With a `vault` it is encrypted, and the keys were checked.
    """

    disk: Disk
    side_disk: Disk
    directory: DataDirectory
    vault: KeyVault | None = None


class NodeServices:
    """Composes the services and brings them up and down in order."""

    def __init__(
        self,
        runtime: Runtime,
        storage: NodeStorage,
        options: NodeOptions,
        listeners: tuple[AdvertisedListener, ...],
    ) -> None:
        self._runtime = runtime
        self._workers = WorkerShare(runtime)
        self._storage = storage
        self._options = options
        self._listeners = listeners
        self._ready: Callable[[Backend], None]
        self._without_broker: Callback | None = None
        self._is_open = False
        self._is_closing = False
        self._opening_work = SlicedWork(runtime.clock.now, runtime.timers.soon, START_TURN_NS)
        # All that is done for clients over several turns of the loop.
        self.long_work = SlicedWork(runtime.clock.now, runtime.timers.soon)
        self.produce_metrics = ProduceMetrics()
        self.group_metrics = GroupMetrics()
        self.telemetry_metrics = TelemetryMetrics()
        self.transaction_metrics = TransactionMetrics()
        self.late_transaction_metrics = LateTransactionMetrics()
        self.queue_metrics = QueueMetrics()
        self.delay_metrics = DelayMetrics()
        self.key_uses = ApiKeyUses(runtime.clock)
        self._groups: GroupService | None = None
        self._transactions: TransactionService | None = None
        self._queues: QueueService | None = None
        self._queue_view: QueueView | None = None
        self._delays: DelayService | None = None
        self.journal = _open_journal(runtime, storage, options.journal)
        self.commit = GroupCommit(runtime.sync, runtime.clock.now, runtime.timers.when_idle, self.journal)
        store = QuorumStore(
            storage.disk,
            storage.side_disk,
            self.commit,
            self.journal,
            storage.vault,
            storage.directory.directory_id,
            storage.directory.may_quorum_be_plain,
        )
        self.member = ClusterMember(runtime, store, storage.directory, self._cluster_options())
        self.quorum = self.member.quorum
        self.controller = self.member.controller
        self.membership = self.member.membership
        self._live_brokers = LiveBrokersBarrier(runtime, self.member.rpc, self.controller, options.node_id)
        self._transaction_peers = TransactionPeers(self.member.rpc, options.node_id)
        self.batch_commit = BatchCommitService(self.member.rpc, options.node_id)
        self._queue_peers = QueuePeers(self.member.rpc, options.node_id)
        self._delay_peers = DelayPeers(self.member.rpc, options.node_id)
        self._offset_lookup = OffsetLookup(runtime, self.member.lease, self._workers)
        self._record_deletion = RecordDeletionService(runtime, self._offset_lookup)
        self.partitions = self._build_partitions()
        self.audit_topic = AuditTopic(
            runtime, self.controller, self.partitions, self.member.rpc, options.node_id
        )
        self.key_rotation = self._build_key_rotation()
        self._master_keys = MasterKeyAdmin(
            self.member.rpc, options.node_id, self.key_rotation, self._known_nodes
        )
        self.replication = ReplicationService(
            runtime, self.member.peers, self.partitions, self.controller.submit, options.node_id
        )

    def _cluster_options(self) -> ClusterOptions:
        options = self._options
        registration = BrokerRegistration(
            options.node_id,
            tuple(_registered(listener) for listener in self._listeners),
            options.rack,
            synced=options.fsync is FsyncMode.EVERY,
        )
        return ClusterOptions(
            registration,
            options.peer,
            options.voters,
            is_broker=BROKER in options.roles,
            is_controller=CONTROLLER in options.roles,
            advertised=reachable,
            around=ControllerConfig(options.static),
            quorum=options.quorum,
            sessions=options.sessions,
            raft=options.raft,
        )

    def _build_partitions(self) -> ReplicaManager:
        options, storage = self._options, self._storage
        return ReplicaManager(
            options.node_id,
            self._runtime,
            LogStore(storage.disk, storage.side_disk, self.commit, self.journal, storage.vault),
            ReplicaManagerOptions(
                static=options.static,
                maintenance=LogMaintenanceOptions(
                    options.fsync,
                    options.fsync_interval_ms,
                    options.retention_check_ms,
                    options.checkpoint_check_ms,
                ),
                time_index_interval_ms=options.time_index_interval_ms,
                checkpoint_ms=options.checkpoint_ms,
                rebuild_bytes_max=options.rebuild_bytes_max,
            ),
            self.member.lease,
            self.long_work,
        )

    def _build_key_rotation(self) -> KeyRotation | None:
        storage, encryption = self._storage, self._options.security.encryption
        if storage.vault is None or encryption is None:
            return None
        store = EncryptedStore(
            storage.vault, storage.directory, storage.side_disk, lambda: self.quorum.snapshot_seal
        )
        options = KeyRotationOptions(
            encryption.service, encryption.rotation_interval_ms, encryption.reseal_bytes_per_second
        )
        return KeyRotation(
            self._runtime, store, lambda: [self.quorum.scrubbed_log, *self.partitions], options
        )

    def _known_nodes(self) -> list[NodeId]:
        """The brokers, and whoever else takes part in the quorum."""
        members = [member.node_id for member in self.quorum.raft.configuration.members]
        return sorted({*members, *(broker.node_id for broker in self.controller.image.brokers.values())})

    def start(self, ready: Callable[[Backend], None], without_broker: Callback | None = None) -> None:
        """Recover, join the cluster and open the logs; `ready` is called when clients can be served.

        A node that is no broker serves none: `without_broker` is called when it has joined.
        """
        self._ready = ready
        self._without_broker = without_broker
        self.member.start(self._joined)

    def _joined(self, epoch: BrokerEpoch | None) -> None:
        image = self.controller.image
        quorum = self.member.quorum
        self.partitions.scrubber.on_pass(quorum.verify_files)
        self.partitions.scrubber.add(quorum.scrubbed_log)
        if self._storage.vault is not None:
            # What was recovered is encrypted by now.
            self._storage.directory.quorum_sealed(self._storage.vault)
        if epoch is None:
            self.partitions.start_scrub()
            self._start_key_rotation()
            events.info("node.joined", cluster_id=image.cluster_id)
            self.journal.logs_opened()
            if self._without_broker is not None:
                self._without_broker()
            return
        # Not earlier: only under the new broker epoch does the metadata say what this node leads.
        reports: list[RecoveryReport] = []
        slices = self.partitions.open_in_slices(image, self._storage.directory, reports)
        if next(slices, self) is self:
            self._opened(epoch, image, reports)
        else:
            self._opening_work.run(self._open_the_rest(slices, partial(self._opened, epoch, image, reports)))

    def _open_the_rest(self, slices: Slices, then: Callback) -> Slices:
        """Open thousands of logs while the node is heard of, unless it stops meanwhile."""
        for _ in slices:
            yield
            if self._is_closing:
                return
        then()

    def _opened(self, epoch: BrokerEpoch, image: MetadataImage, reports: list[RecoveryReport]) -> None:
        controller = self.controller
        self._is_open = True
        controller.subscribe(self.partitions.on_metadata)
        controller.subscribe(self.replication.on_metadata)
        if controller.image is not image:
            # What was decided while the logs were opened.
            image = controller.image
            self.partitions.on_metadata(image)
        self.partitions.start_repair(epoch, controller.submit)
        self._start_key_rotation()
        self.replication.start(epoch)
        self.replication.on_metadata(image)
        events.info(
            "node.joined",
            cluster_id=image.cluster_id,
            broker_epoch=epoch,
            logs=len(reports),
            bytes_read=sum(report.bytes_read for report in reports),
        )
        # Before the broker is unfenced: whoever is elected must be compared with what it has.
        self.partitions.report_replicas(epoch, controller.submit, lambda: self._go_live(epoch))

    def _start_key_rotation(self) -> None:
        if self.key_rotation is not None:
            self.key_rotation.start()

    def _go_live(self, epoch: BrokerEpoch) -> None:
        self.member.go_live(lambda: self._await_logs(lambda: self._ready(self._backend(epoch))))

    def _await_logs(self, ready: Callback) -> None:
        """Call `ready` when every log exists, or after a moment.

        Before a crash some may have been promised and not made. If it was thousands, clients of the others do
        not wait for them: this node is elected by now.
        """
        is_told = False

        def tell() -> None:
            nonlocal is_told
            if not is_told and not self._is_closing:
                is_told = True
                timer.cancel()
                ready()

        deadline = Instant(self._runtime.clock.now() + LOGS_READY_MS * MILLISECOND)
        timer = self._runtime.timers.at(deadline, tell)
        self.partitions.on_logs_ready(tell)

    def number(self, key: str) -> int:
        """A broker setting of this node, as it is now."""
        value = broker_setting(self.controller.image, key, self._options.node_id, self._options.static)
        assert isinstance(value, int), key
        return value

    def _backend(self, epoch: BrokerEpoch) -> Backend:
        runtime, options, controller = self._runtime, self._options, self.controller
        assert controller.image.cluster_id is not None
        creation = CreationLimits(
            self.number("auto.create.topics.per.second"), self.number("auto.create.topics.burst")
        )
        work = self.long_work
        topics = TopicService(runtime, controller, self.partitions, options.static, creation, work)
        verification = TransactionVerification(runtime.timers, self._transaction_peers)
        groups = self._take_groups(topics)
        queues = self._take_queues(topics)
        delays = self._take_delays(topics)
        markers = MarkerWriter(self.partitions, runtime, verification, groups, queues, delays)
        producer_ids = ProducerIdManager(controller, options.node_id, epoch)
        transactions = self._take_transactions(topics, producer_ids, markers)
        produce_service = ProduceService(
            self.partitions, runtime.clock, self.produce_metrics, self._workers, verification
        )
        self.audit_topic.serve(topics, produce_service)
        queue_view = self._take_queue_view(topics, queues, transactions, produce_service, verification)
        return Backend(
            node=NodeInfo(
                options.node_id,
                controller.image.cluster_id,
                self._listeners,
                options.rack,
                options.data_dir,
            ),
            controller=controller,
            peers=self.member.peers,
            partitions=self.partitions,
            topics=topics,
            groups=groups,
            configs=ConfigService(runtime, controller, options.node_id, options.static, work),
            access=AccessService(runtime, controller, self.key_uses, self._live_brokers.wait, work),
            master_keys=self._master_keys,
            is_secured=options.security.enabled,
            transactions=transactions,
            queues=queue_view,
            queue_admin=self._take_queue_admin(queues, queue_view),
            redriver=self._take_redriver(),
            delays=self._take_delay_view(delays, verification),
            batch_commit=self.batch_commit,
            producer_ids=producer_ids,
            produce_service=produce_service,
            transactional_offsets=TransactionalOffsetCommits(groups, verification),
            markers=markers,
            fetch_service=FetchService(
                runtime,
                self.member.lease,
                waiting_fetch_limits(self.number("max.waiting.fetch.partitions")),
                work,
            ),
            offset_lookup=self._offset_lookup,
            record_deletion=self._record_deletion,
            quorum=self.member.voters,
            read_replicas=ReadReplicaSelector(controller, self.partitions, options.node_id, options.static),
            telemetry=TelemetryService(runtime, controller, self.telemetry_metrics),
        )

    def _take_groups(self, topics: TopicService) -> GroupService:
        options, controller = self._options, self.controller
        releases = ShareMemberReleases(self._runtime, self._queue_peers)
        self._groups = groups = GroupService(
            options.node_id,
            self._runtime,
            self.partitions,
            topics,
            replace(options_of_node(controller.image, options.node_id, options.static), releases=releases),
            self.group_metrics,
        )
        releases.may_be_member = groups.may_be_share_member
        for follower in (releases.on_metadata, groups.on_metadata):
            follower(controller.image)
            # After the partitions, which open the logs that coordinators read.
            controller.subscribe(follower)
        self.partitions.on_roles_change(groups.roles_changed)
        return groups

    def _take_transactions(
        self, topics: TopicService, producer_ids: ProducerIdManager, markers: MarkerWriter
    ) -> TransactionService:
        options, controller, metrics = self._options, self.controller, self.transaction_metrics
        limits = transaction_options_of(controller.image, options.node_id, options.static)
        sender = LeaderMarkerSender(self._runtime, self._transaction_peers, metrics.marker_retries.of())
        self._transactions = transactions = TransactionService(
            options.node_id,
            self._runtime,
            self.partitions,
            topics,
            TransactionPorts(producer_ids.next, sender, metrics),
            limits,
        )
        timeout_ms_max = limits.machine.timeout_ms_max
        LateTransactions(
            self._runtime, self.partitions, timeout_ms_max, self.late_transaction_metrics
        ).start()
        self._transaction_peers.serve(transactions, markers)
        self.batch_commit.serve(transactions)
        for follower in (sender.on_metadata, transactions.on_metadata):
            follower(controller.image)
            controller.subscribe(follower)
        self.partitions.on_roles_change(transactions.roles_changed)
        return transactions

    def _take_queues(self, topics: TopicService) -> QueueService:
        controller = self.controller
        self._queues = queues = QueueService(
            self._options.node_id,
            self._runtime,
            self.partitions,
            topics,
            QueueServicePorts(self._queue_peers, self.queue_metrics),
            self._options.queues,
        )
        for follower in (self._queue_peers.on_metadata, queues.on_metadata):
            follower(controller.image)
            controller.subscribe(follower)
        self.partitions.on_roles_change(queues.roles_changed)
        return queues

    def _take_queue_view(
        self,
        topics: TopicService,
        queues: QueueService,
        transactions: TransactionService,
        produce_service: ProduceService,
        verification: TransactionVerification,
    ) -> QueueView:
        runtime, peers, controller = self._runtime, self._queue_peers, self.controller
        reader = RecordReader(runtime, self._workers)
        mover = DeadLetterMover(runtime, peers, reader, topics, self.partitions.options, self.queue_metrics)
        settings = GroupQueueSettings(self._options.node_id, self._options.static)
        self._queue_view = view = QueueView(runtime, self.partitions, peers, reader, mover, settings)
        for follower in (settings.on_metadata, mover.on_metadata, view.on_metadata):
            follower(controller.image)
            controller.subscribe(follower)
        peers.serve(
            QueuePorts(
                queues,
                TransactionalQueueCommits(queues, verification),
                view,
                transactions,
                TransactionalAppender(self.partitions, produce_service, runtime.clock),
            )
        )
        return view

    def _take_queue_admin(self, queues: QueueService, view: QueueView) -> QueueAdmin:
        reader = RecordReader(self._runtime, self._workers)
        admin = QueueAdmin(self.member.rpc, self._options.node_id, self._queue_peers, queues, view, reader)
        admin.on_metadata(self.controller.image)
        self.controller.subscribe(admin.on_metadata)
        cleanup = ConsumedCleanup(
            self._runtime, self._options.node_id, self.partitions, admin, self._record_deletion
        )
        cleanup.on_metadata(self.controller.image)
        self.controller.subscribe(cleanup.on_metadata)
        return admin

    def _take_redriver(self) -> Redriver:
        redriver = Redriver(self._options.node_id, self._runtime, self._queue_peers, self.partitions.options)
        redriver.on_metadata(self.controller.image)
        self.controller.subscribe(redriver.on_metadata)
        return redriver

    def _take_delays(self, topics: TopicService) -> DelayService:
        controller = self.controller
        self._delays = delays = DelayService(
            self._options.node_id, self._runtime, self.partitions, topics, self.delay_metrics
        )
        delays.on_metadata(controller.image)
        controller.subscribe(delays.on_metadata)
        self.partitions.on_roles_change(delays.roles_changed)
        return delays

    def _take_delay_view(self, delays: DelayService, verification: TransactionVerification) -> DelayView:
        """After the queues, whose peers append in transactions."""
        runtime, controller, options_of = self._runtime, self.controller, self.partitions.options
        publisher = DelayPublisher(
            runtime,
            delays,
            self._queue_peers,
            TransactionalCommands(verification),
            self.partitions,
            self.delay_metrics,
        )
        view = DelayView(runtime, delays, self._delay_peers, options_of)
        for follower in (publisher.on_metadata, view.on_metadata):
            follower(controller.image)
            controller.subscribe(follower)
        delays.serve(publisher)
        self._delay_peers.serve(delays)
        return view

    def begin_controlled_shutdown(self, done: Callback) -> None:
        """Hand leaderships over to other nodes, while clients are still served. Takes bounded time."""
        self._is_closing = True
        self.member.begin_controlled_shutdown(done)

    def stop_coordinators(self) -> None:
        """Stop the coordinators: their pending commands get NOT_COORDINATOR."""
        if self._groups is not None:
            self._groups.stop()
        if self._transactions is not None:
            self._transactions.stop()
        if self._queue_view is not None:
            self._queue_view.stop()
        if self._queues is not None:
            self._queues.stop()
        if self._delays is not None:
            self._delays.stop()

    def prepare_close(self, done: Callback) -> None:
        """Bring the logs to a state from which they can be closed at once; takes a while with many."""
        self._is_closing = True
        self._stop_key_rotation()
        self.replication.stop()
        self.partitions.checkpoint_all(done)

    def _stop_key_rotation(self) -> None:
        if self.key_rotation is not None:
            self.key_rotation.stop()

    def close(self) -> None:
        """Make everything durable, close it and mark the stop as clean. Blocks on the disk."""
        self._is_closing = True
        self._stop_key_rotation()
        self.replication.stop()
        are_closed = self.partitions.close()
        self.member.close()
        self.journal.close()
        # A log whose disk failed has lost something: the next start must not trust it.
        clean = self.membership.epoch if self._is_open and are_closed else None
        self._storage.directory.close(clean)

    def abandon(self) -> None:
        """Leave without waiting for the logs: what was acknowledged is durable, but the stop is not clean."""
        self.member.close()
        self._storage.directory.close()


def _open_journal(runtime: Runtime, storage: NodeStorage, options: JournalOptions) -> CommitJournal:
    """Read the journal before any log is opened. Blocks."""
    directory = storage.directory

    def salt() -> int:
        return int.from_bytes(runtime.entropy.bytes(4), "little")

    def spawn(
        work: Callable[[], JournalFile],
        done: Callable[[JournalFile], None],
        failed: Callable[[Exception], None],
    ) -> None:
        runtime.spawn.spawn(work, done, failed, ExecutorKind.DISK)

    journal = CommitJournal.open(
        JournalPlace(storage.disk, storage.side_disk, salt, spawn, runtime.clock.now),
        options,
        expected=directory.has_journal and directory.last_clean_epoch is None,
        noted=directory.journal_run,
    )
    # Before anything is written to it.
    directory.note_journal(journal.run)
    return journal


def _registered(listener: AdvertisedListener) -> BrokerEndpoint:
    host, port = listener.advertised or reachable(listener.bound)
    return BrokerEndpoint(listener.name, host, port, listener.security)
