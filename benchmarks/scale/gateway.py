"""Metadata answers as clients get them: a whole node whose metadata is that of a large cluster.

The node runs in virtual time, so that other brokers can exist on paper; what is measured is CPU time
from the last byte of a request to the last byte of its answer.
"""

from uuid import UUID

from benchmarks.scale.shape import Shape, cpu_ms
from penstock.broker.cluster import BrokerSessionOptions
from penstock.core.metadata import RegisteredBroker, Reply, UnfenceBroker
from penstock.core.metadata.commands import Command
from penstock.core.model import SECOND, ApiError, NodeId
from penstock.core.protocol import Message, RequestHeader, request_frame
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.registry import APIS
from penstock.node import ListenerOptions, NodeOptions, NodeServices, NodeStorage
from penstock.runtime import Address, Callback, Runtime
from penstock.runtime.memory_limits import RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import Part
from penstock.server.kafka.backend import AdvertisedListener, Backend, KafkaMetrics
from penstock.server.kafka.connection import KafkaConnection
from penstock.server.kafka.connection_scheduler import ConnectionScheduler
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.listener import Listener, ListenerContext
from penstock.server.kafka.slice_scheduler import SliceScheduler
from penstock.sim import World
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk

METADATA, VERSION = 3, 12
CHUNK = 50


class Sink:
    """A connection that forgets what is written, except how much it was."""

    peer = "127.0.0.1:50000"
    local = ("127.0.0.1", 9092)
    pending_bytes = held_bytes = sent_bytes = 0
    is_closed = is_paused = False

    def __init__(self) -> None:
        self.written = 0

    def account(self, _moved: object) -> None:
        """Nobody reads, and nothing is kept."""

    def write(self, parts: list[Part]) -> None:
        self.written += sum(len(part) for part in parts if isinstance(part, bytes | bytearray | memoryview))

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def read(self) -> None:
        raise AssertionError("there is no socket")

    def close(self) -> None:
        self.is_closed = True


class LargeNode:
    """Node 1 of a large cluster."""

    def __init__(self) -> None:
        self.world = World(5)
        self._listener = AdvertisedListener("PLAINTEXT", "PLAINTEXT", Address("n1", 9092))
        self.backend: Backend
        self.world.add("n1", self._program, 1).start()
        self.run()

    def _program(self, runtime: Runtime, disk: Disk) -> "LargeNode":
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, UUID(int=4)))
        options = NodeOptions(
            "data",
            NodeId(1),
            (ListenerOptions(Address("n1", 9092)),),
            sessions=BrokerSessionOptions(session_ms=1_000_000_000),
        )
        self._runtime = runtime
        self.backstage = NodeServices(runtime, storage, options, (self._listener,))
        self.backstage.start(self._ready)
        return self

    def _ready(self, backend: Backend) -> None:
        self.backend = backend

    def stop(self, done: Callback) -> None:
        self.backstage.close()
        done()

    def run(self, seconds: int = 5) -> None:
        self.world.run(seconds * SECOND)
        assert self.world.failures == []

    def submit(self, *commands: Command) -> list[Reply]:
        replies: list[Reply] = []
        for command in commands:
            self.backend.controller.submit(command, replies.append)
        self.run()
        assert not any(isinstance(reply, ApiError) for reply in replies), replies
        return replies

    def connection(self) -> tuple[KafkaConnection, Sink]:
        runtime = self._runtime
        serving = ListenerContext(
            backend=self.backend,
            authorizer=None,
            routes=every_route(),
            runtime=runtime,
            metrics=KafkaMetrics(),
            fetch_sessions=FetchSessionCache(runtime.clock, runtime.entropy),
            request_memory=RequestMemoryLimit(runtime.timers.soon),
            response_memory=ResponseMemoryLimit(runtime.timers.soon),
            scheduler=ConnectionScheduler(runtime.timers.soon, runtime.clock.now),
            slices=SliceScheduler(runtime.clock.now, runtime.timers.soon),
            report=_fail,
        )
        sink = Sink()
        return KafkaConnection(sink, Listener("PLAINTEXT", serving)), sink


def _fail(error: Exception) -> None:
    raise error


def run(shape: Shape) -> dict[str, float]:
    node = LargeNode()
    cluster_id = node.backend.node.cluster_id
    others = range(2, shape.brokers + 1)
    replies = node.submit(*(shape.registration(number, cluster_id, has_peer_port=False) for number in others))
    epochs = [reply.epoch for reply in replies if isinstance(reply, RegisteredBroker)]
    node.submit(*(UnfenceBroker(NodeId(n), epoch) for n, epoch in zip(others, epochs, strict=True)))
    commands = list(shape.creations())
    for start in range(0, len(commands), CHUNK):
        node.submit(*commands[start : start + CHUNK])
    node.run(30)
    every = _frame(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    one = _frame(MetadataRequest(topics=(MetadataRequestTopic(name="topic-00000"),)))
    first_ms, size = _ask(node, every)
    again_ms, _ = min(_ask(node, every) for _ in range(5))
    topic_ms, topic_size = min(_ask(node, one) for _ in range(20))
    return {
        "logs_here": float(len(node.backend.partitions)),
        "everything_mb": size / 1e6,
        "everything_first_ms": first_ms,
        "everything_again_ms": again_ms,
        "one_topic_kb": topic_size / 1e3,
        "one_topic_ms": topic_ms,
    }


def _frame(request: Message) -> bytearray:
    return request_frame(APIS[METADATA], RequestHeader(METADATA, VERSION, 7, "scale"), request)


def _ask(node: LargeNode, frame: bytearray) -> tuple[float, int]:
    connection, sink = node.connection()

    def ask() -> None:
        buffer = connection.get_buffer()
        assert buffer is not None
        buffer[: len(frame)] = frame
        connection.buffer_updated(len(frame))

    taken_ms, _ = cpu_ms(ask)
    assert sink.written, "no answer yet"
    return taken_ms, sink.written
