"""Brokers that keep partitions together, on a simulated network; their controller is the test."""

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from penstock.broker.cluster.peers import Channel, PeerManager
from penstock.broker.partitions import (
    FsyncMode,
    LeaderPartition,
    LogMaintenanceOptions,
    LogStore,
    ReplicaManager,
    ReplicaManagerOptions,
)
from penstock.broker.replication import ReplicationOptions, ReplicationService
from penstock.broker.replication.protocol import ReplicationFrameKind
from penstock.core.metadata import (
    BootstrapCluster,
    BrokerEndpoint,
    Command,
    CreateTopic,
    FenceBroker,
    MetadataImage,
    MetadataMachine,
    RegisteredBroker,
    Reply,
    UnfenceBroker,
)
from penstock.core.metadata.commands import ReplicaAssignment
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    NodeId,
    Offset,
    PartitionIndex,
    Timestamp,
    TopicId,
)
from penstock.core.records import Record, check_batches, read_records, write_batch
from penstock.runtime import Address, Callback, Link, Runtime
from penstock.sim import World
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk
from penstock.storage.log import PartitionLog
from tests.unit.core.metadata.clusters import CLUSTER, perform, registration

PORT = 7000
NEWS_MS = 2
ANSWER_WITH_DATA_BYTES = 100


class Wire(PeerManager):
    """Links on which bytes may be harmed."""

    harm_next_bulk = False

    def received(self, link: Link, frame: bytes) -> None:
        is_answer = frame[0] == Channel.REPLICATION and frame[1] == ReplicationFrameKind.RESPONSE
        if self.harm_next_bulk and is_answer and len(frame) > ANSWER_WITH_DATA_BYTES:
            self.harm_next_bulk = False
            frame = frame[:-1] + bytes((frame[-1] ^ 1,))
        super().received(link, frame)


class Broker:
    """One incarnation of a node: partitions, replication and the links between."""

    def __init__(self, stage: "Stage", runtime: Runtime, disk: Disk, node_id: NodeId) -> None:
        self.stage = stage
        self.runtime = runtime
        self.node_id = node_id
        commit = GroupCommit(runtime.sync, runtime.clock.now, runtime.timers.soon)
        housekeeping = LogMaintenanceOptions(stage.fsync)
        self.partitions = ReplicaManager(
            node_id, runtime, LogStore(disk, disk, commit), ReplicaManagerOptions(stage.static, housekeeping)
        )
        self.peers = Wire(runtime, node_id, Address(stage.name_of(node_id), PORT))
        self.replication = ReplicationService(
            runtime, self.peers, self.partitions, self.submit, node_id, stage.options
        )
        self.peers.open()
        # Registered: a new broker epoch, and with it new leader epochs.
        reply = stage.perform(_registration(node_id, stage.name_of(node_id)))
        assert isinstance(reply, RegisteredBroker)
        self.broker_epoch = reply.epoch
        directory = DataDirectory.open(disk, UUID(int=node_id))
        self.partitions.open_all(stage.machine.image, directory)
        stage.brokers[node_id] = self
        self.replication.on_metadata(stage.machine.image)
        self.replication.start(reply.epoch)
        self.partitions.start_repair(reply.epoch, self.submit)
        unfence = UnfenceBroker(node_id, reply.epoch)
        self.partitions.report_replicas(reply.epoch, self.submit, lambda: self.go_live(unfence))

    def go_live(self, unfence: UnfenceBroker) -> None:
        if self.node_id not in self.stage.kept_fenced:
            self.stage.perform(unfence)

    def follow(self, image: MetadataImage) -> None:
        self.partitions.on_metadata(image)
        self.replication.on_metadata(image)

    def submit(self, command: Command, done: Callable[[Reply], None]) -> None:
        stage = self.stage
        stage.underway += 1
        stage.underway_most = max(stage.underway_most, stage.underway)

        def ended(reply: Reply) -> None:
            stage.underway -= 1
            done(reply)

        self.later(NEWS_MS, lambda: self._arrived(command, ended))

    def _arrived(self, command: Command, done: Callable[[Reply], None]) -> None:
        stage = self.stage
        stage.commands.append(command)
        reply: Reply = ApiError(ErrorKind.NOT_CONTROLLER)
        if stage.drop_commands:
            stage.drop_commands -= 1
        else:
            reply = stage.perform(command)
            if stage.drop_replies:
                stage.drop_replies -= 1
                reply = ApiError(ErrorKind.NOT_CONTROLLER)
        self.later(3 * NEWS_MS, lambda: done(reply))

    def later(self, ms: int, act: Callable[[], None]) -> None:
        self.runtime.timers.at(Instant(self.runtime.clock.now() + ms * MILLISECOND), act)

    def stop(self, done: Callback) -> None:
        self.replication.stop()
        self.peers.close()
        self.partitions.close()
        done()


class Stage:
    """A few machines and the metadata that they share."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        seed: int = 1,
        fsync: FsyncMode = FsyncMode.EVERY,
        options: ReplicationOptions | None = None,
    ) -> None:
        self.world = World(seed)
        self.fsync = fsync
        self.options = options or ReplicationOptions()
        self.static: dict[str, str] = {"replica.lag.time.max.ms": "3000"}
        self.machine = MetadataMachine()
        self.brokers: dict[NodeId, Broker] = {}
        self.commands: list[Command] = []
        # How many commands do not reach the controller, and how many replies do not reach the broker.
        self.drop_commands = 0
        self.drop_replies = 0
        # Commands without a reply so far, and the most there were.
        self.underway = self.underway_most = 0
        # Who is not unfenced though its logs are open.
        self.kept_fenced: set[NodeId] = set()
        # How long the metadata takes to those who are slow.
        self.news_ms: dict[NodeId, int] = {}
        perform(self.machine, BootstrapCluster(CLUSTER))
        for number in range(1, brokers + 1):
            self.world.add(self.name_of(NodeId(number)), self._program(NodeId(number)))
        self.world.start_all()
        self.run(200)

    @staticmethod
    def name_of(node_id: NodeId) -> str:
        return f"n{node_id}"

    def _program(self, node_id: NodeId) -> Callable[[Runtime, Disk], Broker]:
        return lambda runtime, disk: Broker(self, runtime, disk, node_id)

    def perform(self, command: Command) -> Reply:
        """Decide, and let every broker apply it a little later."""
        before = self.machine.image
        reply = perform(self.machine, command)
        image = self.machine.image
        if image is not before:
            for broker in list(self.brokers.values()):
                if self.world.nodes[self.name_of(broker.node_id)].is_up:
                    delay_ms = self.news_ms.get(broker.node_id, NEWS_MS)
                    broker.later(delay_ms, self._teller(broker, image))
        return reply

    @staticmethod
    def _teller(broker: Broker, image: MetadataImage) -> Callable[[], None]:
        return lambda: broker.follow(image)

    def create(self, *replicas: int, partitions: int = 1, **configs: str) -> None:
        """Topic "t" with these replicas, the first one leading."""
        self.create_another("t", *replicas, partitions=partitions, **configs)

    def create_another(self, topic: str, *replicas: int, partitions: int = 1, **configs: str) -> None:
        nodes = tuple(NodeId(node) for node in replicas)
        topic_id = TopicId(UUID(int=ord(topic)))
        assignments = tuple(ReplicaAssignment(PartitionIndex(index), nodes) for index in range(partitions))
        pairs = tuple((key.replace("_", "."), value) for key, value in configs.items())
        reply = self.perform(CreateTopic(topic, topic_id, assignments=assignments, configs=pairs))
        assert not isinstance(reply, ApiError), reply
        self.run(500)

    def run(self, ms: int) -> None:
        self.world.run(ms * MILLISECOND)
        assert self.world.failures == []

    def isr(self, index: int = 0) -> list[int]:
        state = self.machine.image.partition("t", index)
        assert state is not None
        return list(state.isr)

    def leader(self, index: int = 0) -> LeaderPartition:
        return self.leader_of("t", index)

    def leader_of(self, topic: str, index: int = 0) -> LeaderPartition:
        state = self.machine.image.partition(topic, index)
        assert state is not None
        found = self.brokers[state.leader].partitions.find(topic, index)
        assert found is not None
        return found

    def log(self, node: int, index: int = 0, topic: str = "t") -> PartitionLog:
        found = self.brokers[NodeId(node)].partitions.find_log(topic, index)
        assert found is not None
        return found.log

    def ends(self, *nodes: int, index: int = 0, topic: str = "t") -> list[int]:
        return [self.log(node, index, topic).end for node in nodes]

    def append(self, *values: str, index: int = 0) -> None:
        """One batch at the leader."""
        append(self.leader(index), *values)

    def append_as_producer(self, producer_id: int, *values: str) -> None:
        """One batch of an idempotent producer."""
        append(self.leader(), *values, producer_id=producer_id)

    def append_with_hole(self, offset: int, value: str) -> None:
        """What compaction leaves: a batch that does not stand right behind the one before."""
        partition = self.leader()
        record = Record(0, 1_000, None, value.encode())
        batch = write_batch([record], base_offset=offset, leader_epoch=partition.leader_epoch)
        partition.log.append_replica(batch, check_batches(batch), Timestamp(1_000))
        partition.log.sync(partition.synced)

    def send_raw(self, sender: int, receiver: int, frame: bytes) -> None:
        assert self.brokers[NodeId(sender)].peers.send(Channel.REPLICATION, NodeId(receiver), frame)

    def values(self, node: int, index: int = 0) -> list[str]:
        return values_of(self.log(node, index))

    def kill(self, node: int, *, power: bool = False) -> None:
        """The node dies, and the controller notices at once."""
        machine = self.world.nodes[self.name_of(NodeId(node))]
        if power:
            machine.cut_power()
        else:
            machine.kill()
        self.fence(node)

    def fence(self, node: int) -> None:
        known = self.machine.image.broker(node)
        assert known is not None
        self.perform(FenceBroker(NodeId(node), known.epoch))

    def unfence(self, node: int) -> None:
        self.perform(UnfenceBroker(NodeId(node), self.brokers[NodeId(node)].broker_epoch))

    def start(self, node: int) -> None:
        self.world.nodes[self.name_of(NodeId(node))].start()

    def start_all(self) -> None:
        self.world.start_all()


def append(partition: LeaderPartition, *values: str, producer_id: int = -1) -> None:
    records = [Record(0, 1_000, None, value.encode()) for value in values]
    numbered = producer_id >= 0
    batch = write_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if numbered else -1,
        base_sequence=0 if numbered else -1,
    )
    partition.append(batch, check_batches(batch), Timestamp(1_000))


def values_of(log: PartitionLog) -> list[str]:
    """Every record, from the log start to the log end."""
    found, position = list[str](), log.start
    while position < log.end:
        content = log.read(position, 1 << 20).to_bytes()
        for header in check_batches(content, compacted=True):
            batch, content = content[: header.size_bytes], content[header.size_bytes :]
            found += [(record.value or b"").decode() for record in read_records(batch)]
            position = Offset(header.next_offset)
    return found


def _registration(node_id: NodeId, host: str) -> Command:
    listeners = (BrokerEndpoint("PLAINTEXT", host, 9092), BrokerEndpoint("PEER", host, PORT))
    return replace(registration(node_id, fenced=True), listeners=listeners, rack=f"rack-{node_id}")
