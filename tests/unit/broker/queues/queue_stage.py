"""Whole nodes without listeners in virtual time, with a topic and somebody who consumes it as a queue."""

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.broker.cluster import BrokerSessionOptions, Voter
from penstock.broker.partitions import LeaderPartition
from penstock.broker.produce import ALL_ACKS, PendingProduce, Results
from penstock.broker.queues.leader_queue import RETRIABLE
from penstock.broker.queues.peers import DeliveredRecord, ReceivedRecords, ReceiveRequest
from penstock.broker.queues.queue_view import claims_by_queue
from penstock.broker.queues.record_reader import CommittedRecords, RecordReader
from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic, ReplicaAssignment
from penstock.core.model import (
    MILLISECOND,
    SECOND,
    ApiError,
    ErrorKind,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
)
from penstock.core.queues import (
    AcknowledgeRecords,
    ClaimResults,
    DescribeQueue,
    QueueDescription,
    QueueId,
    QueueReply,
)
from penstock.core.records import Record, write_batch
from penstock.node import ListenerOptions, NodeOptions, NodeServices, NodeStorage
from penstock.runtime import Address, Callback, Runtime, Service
from penstock.server.kafka.backend import Backend
from penstock.sim import World
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk

PEER_PORT = 7000
STATIC = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "min.insync.replicas": "1",
}
GROUP = "workers"
TOPIC = "orders"
Reply = ReceivedRecords | ApiError


class QueueNode:
    """One node, across its incarnations."""

    def __init__(self, stage: "QueueStage", number: int) -> None:
        self.stage = stage
        self.node_id = NodeId(number)
        self.name = f"n{number}"
        self.backend: Backend | None = None
        self.services: NodeServices

    def __call__(self, runtime: Runtime, disk: Disk) -> Service:
        self.backend = None
        identity = self.stage.world.nodes[self.name].identity
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, identity.directory_id))
        self.services = NodeServices(runtime, storage, self.stage.options_of(self), ())
        self.services.start(self._ready)
        return self

    def _ready(self, backend: Backend) -> None:
        self.backend = backend

    def stop(self, done: Callback) -> None:
        self.services.stop_coordinators()
        self.services.close()
        done()


class QueueStage:
    """Nodes, a topic with one partition, and what consumers of it ask."""

    def __init__(self, nodes: int = 1, seed: int = 5) -> None:
        self.world = World(seed)
        numbers = range(1, nodes + 1)
        self._voters = tuple(Voter(NodeId(each), Address(f"n{each}", PEER_PORT)) for each in numbers)
        self.nodes = {each: QueueNode(self, each) for each in numbers}
        for node in self.nodes.values():
            self.world.add(node.name, node, node.node_id)
        self.world.start_all()
        self.until(lambda: all(node.backend is not None for node in self.nodes.values()))

    def options_of(self, node: QueueNode) -> NodeOptions:
        together = len(self._voters) > 1
        return NodeOptions(
            "data",
            node.node_id,
            (ListenerOptions(Address(node.name, 9092)),),
            peer=Address(node.name, PEER_PORT) if together else None,
            voters=self._voters if together else (),
            static=STATIC,
            sessions=BrokerSessionOptions(report_grace_ms=1_000),
        )

    def until(self, condition: Callable[[], bool], seconds: int = 30) -> None:
        """Let time pass until the condition holds; a test that waits in vain fails."""
        self.world.run(seconds * SECOND, lambda: condition() or bool(self.world.failures))
        assert not self.world.failures, self.world.failures
        assert condition(), "waited in vain"

    def pass_ms(self, duration_ms: int) -> None:
        self.world.run(duration_ms * MILLISECOND)
        assert not self.world.failures, self.world.failures

    def at(self, node: int = 1) -> Backend:
        backend = self.nodes[node].backend
        assert backend is not None
        return backend

    def ask(self, question: Callable[[Callable[[Any], None]], None]) -> Any:
        replies: list[Any] = []
        question(replies.append)
        self.until(lambda: bool(replies))
        (reply,) = replies
        return reply

    def create(self, name: str = TOPIC, replicas: tuple[int, ...] = (1,)) -> TopicId:
        """A topic with one partition, led by the first of these nodes."""
        assigned = ReplicaAssignment(PartitionIndex(0), tuple(map(NodeId, replicas)))
        topic = NewTopic(name, assignments=(assigned,))
        (reply,) = self.ask(lambda done: self.at(1).topics.create([topic], done))
        assert isinstance(reply, CreatedTopic), reply
        self.until(lambda: all(each.backend is None or self.knows(each.backend, name) for each in self.live))
        return reply.id

    @property
    def live(self) -> list[QueueNode]:
        return [node for node in self.nodes.values() if self.world.nodes[node.name].is_up]

    @staticmethod
    def knows(backend: Backend, topic: str) -> bool:
        placed = backend.controller.image.partition(topic, 0)
        return placed is not None and placed.leader >= 0

    def leader_of(self, topic: str, index: int = 0, *, seen_by: int = 1) -> int:
        placed = self.at(seen_by).controller.image.partition(topic, index)
        assert placed is not None
        return int(placed.leader)

    def led(self, topic: str) -> LeaderPartition:
        """The partition at its leader."""
        for node in self.live:
            found = None if node.backend is None else node.backend.partitions.find(topic, 0)
            if found is not None and found.stopped is None:
                return found
        raise AssertionError(f"nobody leads {topic}")

    def produce(self, *values: str, topic: str = TOPIC, **headers: str) -> None:
        """One batch, acknowledged by all replicas."""
        partition = self.led(topic)
        backend = next(
            node.backend for node in self.live if node.backend and node.backend.partitions.find(topic, 0)
        )
        pairs = tuple((name.replace("_", "-"), value.encode()) for name, value in headers.items())
        wall = self.nodes[backend.node.node_id].services._runtime.clock.wall()
        records = [Record(0, wall, None, value.encode(), pairs) for value in values]
        clock = self.nodes[backend.node.node_id].services._runtime.clock

        def ask(done: Callable[[Results], None]) -> None:
            request = PendingProduce(ALL_ACKS, 10_000, clock.now(), done, lambda: None, lambda: None)
            backend.produce_service.produce(request, [(partition, memoryview(write_batch(records)))])

        (result,) = self.ask(ask)
        assert not isinstance(result, ApiError), result

    def unfinished(self, queue: QueueId) -> list[int]:
        """The records of a queue as its coordinator has them, without asking it."""
        for node in self.live:
            service = node.services._queues
            for coordinator in service if service is not None else ():
                found = coordinator.machine.queues.get(queue)
                if found is not None and coordinator.partition.stopped is None:
                    return sorted(found.entries)
        raise AssertionError("nobody has the queue")

    def committed(self, topic: str) -> list[Record]:
        """Every record of the topic that a read_committed consumer sees."""
        partition = self.led(topic)
        found, position = list[Record](), partition.log.start
        while position < partition.log.last_stable_offset:
            part = self._read(partition, position)
            found += part.records
            position = part.end
        return found

    def _read(self, partition: LeaderPartition, position: Offset) -> CommittedRecords:
        node = next(
            node for node in self.live if node.backend and node.backend.partitions.find(*partition.name)
        )
        reader = RecordReader(node.services._runtime)
        found = self.ask(lambda done: reader.read(partition, position, done))
        assert isinstance(found, CommittedRecords), found
        return found


class QueueConsumer:
    """Consumes the topic's only partition as a queue, through one node."""

    def __init__(self, stage: QueueStage, topic_id: TopicId, *, node: int = 1, name: str = "c1") -> None:
        self.stage = stage
        self.queue = QueueId(GROUP, topic_id, PartitionIndex(0))
        self.node = node
        self.name = name

    def request(self, replies: list[Reply], records_max: int = 10, **fields: Any) -> None:
        request = ReceiveRequest(queue=self.queue, consumer=self.name, records_max=records_max, **fields)
        self.stage.at(self.node).queues.receive(request, replies.append)

    def receive(self, records_max: int = 10, **fields: Any) -> list[DeliveredRecord]:
        replies: list[Reply] = []
        self.request(replies, records_max, **fields)
        self.stage.until(lambda: bool(replies), 90)
        (reply,) = replies
        assert isinstance(reply, ReceivedRecords), reply
        return list(reply.records)

    def submit(self, command: type[Any], transactional_id: str | None = None, **fields: Any) -> QueueReply:
        def ask(done: Callable[[QueueReply], None]) -> None:
            queues = self.stage.at(self.node).queues
            queues.submit(command(on_reply=done, queue=self.queue, **fields), transactional_id)

        for _ in range(100):
            reply: QueueReply = self.stage.ask(ask)
            if not isinstance(reply, ApiError) or reply.kind not in RETRIABLE:
                break
            self.stage.pass_ms(100)
        return reply

    def settle(
        self, received: list[DeliveredRecord], command: type[Any] = AcknowledgeRecords, **fields: Any
    ) -> list[ErrorKind | None]:
        claims = claims_by_queue(GROUP, [each.receipt for each in received])
        assert isinstance(claims, dict), claims
        reply = self.submit(command, claims=claims[self.queue], **fields)
        assert isinstance(reply, ClaimResults), reply
        return list(reply.errors)

    def describe(self) -> QueueDescription:
        reply = self.submit(DescribeQueue)
        assert isinstance(reply, QueueDescription), reply
        return reply


def values(received: list[DeliveredRecord]) -> list[str]:
    return [(each.record.value or b"").decode() for each in received]


def consumer_of(stage: QueueStage, **fields: Any) -> QueueConsumer:
    return partial(QueueConsumer, stage, stage.create())(**fields)
