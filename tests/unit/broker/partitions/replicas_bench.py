"""Three brokers' logs and one metadata machine, without a network: the test carries records over."""

from collections.abc import Mapping
from uuid import UUID

from penstock.broker.partitions import (
    FollowerPartition,
    FsyncMode,
    LeaderPartition,
    LogMaintenanceOptions,
    LogStore,
    ReplicaManager,
    ReplicaManagerOptions,
)
from penstock.core.metadata import (
    AlterPartition,
    Command,
    ControllerConfig,
    CreateTopic,
    FenceBroker,
    IsrMember,
    MetadataImage,
    ReplicaAssignment,
    Reply,
    UnfenceBroker,
)
from penstock.core.metadata import Partition as PartitionState
from penstock.core.metadata.configs import NO_CONFIGS
from penstock.core.model import ApiError, NodeId, Offset, PartitionIndex, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.commit import GroupCommit
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import CrashableDisk
from penstock.storage.journal import CommitJournal, JournalOptions, JournalPlace
from tests.support.key_vaults import vault_of
from tests.support.manual_runtime import HandSyncs, HandTimers, hand_runtime, settle
from tests.unit.core.metadata.clusters import broker_of, cluster, perform

TOPIC_ID = TopicId(UUID(int=77))
ALL = (1, 2, 3)
# Brokers have keys; what they encrypt is for their settings to say.
VAULT = vault_of()


class Broker:
    """The logs of one node."""

    def __init__(
        self,
        number: int,
        timers: HandTimers,
        fsync: FsyncMode,
        disk: CrashableDisk,
        static: Mapping[str, str] = NO_CONFIGS,
        *,
        journal: bool = False,
    ) -> None:
        self.node_id = NodeId(number)
        self.syncs = HandSyncs()
        self.disk = disk
        self.timers = timers
        self.directory = DataDirectory.open(disk, UUID(int=number))
        runtime = hand_runtime(timers, self.syncs)
        self.journal = _open_journal(disk, number) if journal else None
        self.commit = GroupCommit(self.syncs, journal=self.journal)
        self.partitions = ReplicaManager(
            self.node_id,
            runtime,
            LogStore(disk, disk, self.commit, self.journal, VAULT),
            ReplicaManagerOptions(static=static, maintenance=LogMaintenanceOptions(fsync)),
        )
        self.told = 0
        self.partitions.on_roles_change(self._count)

    def _count(self) -> None:
        self.told += 1

    def settle(self) -> None:
        settle(self.timers, self.syncs)

    @property
    def led(self) -> LeaderPartition:
        partition = self.partitions.find("orders", 0)
        assert partition is not None, f"broker {self.node_id} does not lead"
        return partition

    @property
    def followed(self) -> FollowerPartition:
        followed = self.partitions.find_followed(TOPIC_ID, 0)
        assert followed is not None, f"broker {self.node_id} does not follow"
        return followed


def _open_journal(disk: CrashableDisk, salt: int) -> CommitJournal:
    place = JournalPlace(disk, disk, lambda: salt)
    return CommitJournal.open(place, JournalOptions(first_bytes=4096, file_bytes=4096))


class ReplicasBench:
    """Brokers 1 to 3, and the topic `orders` with one partition."""

    def __init__(
        self,
        fsync: FsyncMode = FsyncMode.EVERY,
        static: Mapping[str, str] = NO_CONFIGS,
        *,
        journal: bool = False,
    ) -> None:
        self.timers = HandTimers()
        self.fsync = fsync
        self.static = static
        self.journal = journal
        self.machine = cluster(3, ControllerConfig({"log.encryption.at.rest": "false"}))
        self.brokers = {number: self._broker(number, CrashableDisk()) for number in ALL}
        for broker in self.brokers.values():
            broker.partitions.open_all(self.image, broker.directory)

    def _broker(self, number: int, disk: CrashableDisk) -> Broker:
        return Broker(number, self.timers, self.fsync, disk, self.static, journal=self.journal)

    def __getitem__(self, number: int) -> Broker:
        return self.brokers[number]

    @property
    def image(self) -> MetadataImage:
        return self.machine.image

    @property
    def state(self) -> PartitionState:
        state = self.image.partition("orders", 0)
        assert state is not None
        return state

    def perform(self, command: Command) -> Reply:
        """Have the controller decide, and every node apply it."""
        reply = perform(self.machine, command)
        self.follow()
        return reply

    def follow(self) -> None:
        for broker in self.brokers.values():
            broker.partitions.on_metadata(self.image)
            broker.settle()

    def create(self, *replicas: int, **configs: str) -> "ReplicasBench":
        values = tuple((key.replace("_", "."), value) for key, value in configs.items())
        placed = ReplicaAssignment(PartitionIndex(0), tuple(map(NodeId, replicas or ALL)))
        reply = self.perform(CreateTopic("orders", TOPIC_ID, assignments=(placed,), configs=values))
        assert not isinstance(reply, ApiError), reply
        return self

    def change_isr(self, *members: int) -> Reply:
        """What the leader would propose."""
        state = self.state
        isr = tuple(IsrMember(NodeId(node), broker_of(self.machine, node).epoch) for node in members)
        leader = broker_of(self.machine, state.leader)
        command = AlterPartition(
            state.leader,
            leader.epoch,
            TOPIC_ID,
            PartitionIndex(0),
            state.leader_epoch,
            state.partition_epoch,
            isr,
        )
        return self.perform(command)

    def fence(self, number: int) -> None:
        self.perform(FenceBroker(NodeId(number), broker_of(self.machine, number).epoch))

    def unfence(self, number: int) -> None:
        self.perform(UnfenceBroker(NodeId(number), broker_of(self.machine, number).epoch))

    def restart(self, number: int, *, is_settled: bool = True) -> Broker:
        """A new incarnation of a node on what its disk holds; it has no metadata yet."""
        disk = self.brokers[number].disk.copy()
        broker = self.brokers[number] = self._broker(number, disk)
        broker.partitions.open_all(self.image, broker.directory)
        if is_settled:
            broker.settle()
        return broker

    def copy(self, follower: int) -> None:
        """Bring a follower to the leader's log end, and tell the leader what it has synced."""
        leader, copier = self.brokers[self.state.leader], self.brokers[follower]
        source, target = leader.led.log, copier.followed
        while target.log.end < source.end:
            content = source.read(target.log.end, 1 << 20).to_bytes()
            target.append(content, check_batches(memoryview(content)))
        copier.settle()
        self.tell(follower)

    def tell(self, follower: int) -> None:
        leader, copier = self.brokers[self.state.leader], self.brokers[follower].followed
        epoch = broker_of(self.machine, follower).epoch
        leader.led.follower_fetched(NodeId(follower), epoch, copier.log.end, copier.synced)
        copier.advance_high_watermark(leader.led.high_watermark)


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **fields: int) -> bytearray:
    return write_batch([Record(0, timestamp, b"key", value) for value in values or (b"v",)], **fields)  # type: ignore[arg-type]


class Producer:
    """Appends to a leader, and keeps the results."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.acknowledged: list[int] = []
        self.synced: list[int] = []
        self.errors: list[ApiError] = []

    def append(self, *values: bytes, timeout_ms: int | None = None) -> Offset:
        """Append, and settle what is due, syncs too unless they are held."""
        partition, content = self._broker.led, batch(*values)
        appended = partition.append(content, check_batches(content), self._broker.timers.wall())
        end = Offset(appended.last_offset + 1)

        def acknowledged(error: ApiError | None) -> None:
            if error is None:
                self.acknowledged.append(end)
            else:
                self.errors.append(error)

        def synced(error: ApiError | None) -> None:
            if error is None:
                self.synced.append(end)

        if partition.when_acknowledged(end, acknowledged, timeout_ms):
            acknowledged(None)
        if partition.when_synced(end, synced):
            synced(None)
        self._broker.settle()
        return end
