"""The Kafka listener of a whole node, in virtual time: frames go in, frames come out."""

import struct
from collections.abc import Callable, Iterator
from typing import TypeVar
from uuid import UUID

import pytest

from penstock.broker.cluster import BrokerSessionOptions
from penstock.core.metadata import (
    SUPPORTED_FEATURES,
    BrokerEndpoint,
    Command,
    RegisterBroker,
    RegisteredBroker,
    Reply,
    UnfenceBroker,
)
from penstock.core.model import SECOND, NodeId
from penstock.core.protocol import Message, RequestHeader, request_frame
from penstock.core.protocol.frames import read_response_header
from penstock.core.protocol.messages.registry import APIS
from penstock.node import ListenerOptions, NodeOptions, NodeServices, NodeStorage
from penstock.node.security import NodeSecurity, audit_log_of
from penstock.runtime import Address, Callback, Runtime, Service
from penstock.runtime.memory_limits import RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import Part
from penstock.security import AclOperation, Authorizer, Principal, QuotaType, Resource, ResourceType, Session
from penstock.security.audit import AuditLog
from penstock.security.options import SecurityOptions
from penstock.server.kafka.backend import AdvertisedListener, Backend, KafkaMetrics
from penstock.server.kafka.connection import KafkaConnection
from penstock.server.kafka.connection_scheduler import ConnectionScheduler
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.listener import Listener, ListenerContext, ListenerSecurity
from penstock.server.kafka.request_audit import RequestAudit
from penstock.server.kafka.slice_scheduler import SliceScheduler
from penstock.sim import World
from penstock.storage.data_directory import DataDirectory
from penstock.storage.disk import Disk

M = TypeVar("M", bound=Message)
LOCAL = ("127.0.0.1", 19092)
# Other brokers are registered by tests, and never heard of again.
SESSION_MS = 600_000


class Keeper:
    """Lets everyone do everything but what is in `denied`, and keeps account of the costs."""

    def __init__(self) -> None:
        self.denied: set[tuple[AclOperation, str]] = set()
        self.charged: list[tuple[QuotaType, int]] = []
        self.throttle_ms = 0
        # Of a client's quota; None is everything.
        self.left: int | None = None
        # Who has connected, and how long the next ones wait.
        self.hosts: list[str] = []
        self.connection_wait_ms = 0

    def authorize(self, session: Session, operation: AclOperation, resource: Resource) -> bool:
        return (operation, resource.name) not in self.denied

    def rights_key(self, session: Session) -> None:
        """Nothing is kept by it."""

    def authorize_any(self, session: Session, operation: AclOperation, kind: ResourceType) -> bool:
        return (operation, f"any {kind.name.lower()}") not in self.denied

    def quota_left(self, session: Session, cost: QuotaType) -> int | None:
        return self.left

    def charge_connection(self, host: str) -> int:
        self.hosts.append(host)
        return self.connection_wait_ms

    def charge(self, session: Session, cost: QuotaType, amount: int) -> int:
        self.charged.append((cost, amount))
        return self.throttle_ms

    def charged_of(self, cost: QuotaType) -> list[int]:
        return [amount for charged, amount in self.charged if charged is cost]


class MemoryPipe:
    """A connection whose bytes stay here."""

    pending_bytes = held_bytes = 0
    sent_bytes = 0

    def __init__(self, local: tuple[str, int], host: str) -> None:
        self.local = local
        self.peer = f"{host}:50000"
        self.written = bytearray()
        self.is_closed = self.is_paused = False

    def account(self, moved: Callable[[int], None]) -> None:
        pass

    def write(self, parts: list[Part]) -> None:
        for part in parts:
            self.written += part if isinstance(part, bytes | bytearray | memoryview) else part.read()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def read(self) -> None:
        raise AssertionError("there is no socket")

    def close(self) -> None:
        self.is_closed = True


class Client:
    """One client's connection to the node."""

    def __init__(
        self, door: Listener, run: Callable[[], None], local: tuple[str, int], host: str = "127.0.0.1"
    ) -> None:
        self.tcp = MemoryPipe(local, host)
        self._connection = door.accept(self.tcp)
        self._run = run

    def send(self, request: Message, version: int) -> None:
        api_key = request.__schema__.api_key
        assert api_key is not None
        for _ in self.feed(request_frame(APIS[api_key], RequestHeader(api_key, version, 7, "test"), request)):
            pass

    def feed(self, frame: bytearray) -> Iterator[None]:
        """Let a frame arrive, as much at a time as the connection has room for."""
        while frame:
            buffer = self._connection.get_buffer()
            assert buffer is not None
            count = min(len(buffer), len(frame))
            buffer[:count] = frame[:count]
            del frame[:count]
            self._connection.buffer_updated(count)
            yield

    @property
    def has_answer(self) -> bool:
        return bool(self.tcp.written)

    def receive(self, answer: type[M], version: int) -> M:
        assert self.tcp.written or not self.tcp.is_closed, "the node hung up"
        (size,) = struct.unpack_from(">i", self.tcp.written)
        frame = bytes(self.tcp.written[4 : 4 + size])
        del self.tcp.written[: 4 + size]
        api_key = answer.__schema__.api_key
        assert api_key is not None
        correlation_id, position = read_response_header(APIS[api_key], version, frame)
        assert correlation_id == 7
        return answer.decode(frame, version, position)

    def log_in(self, principal: Principal) -> None:
        """Be somebody, whatever the listener asks for."""
        connection = self._connection
        assert isinstance(connection, KafkaConnection)
        connection.log_in(principal)

    def leave(self) -> None:
        """The connection is over."""
        self._connection.closed()

    def ask(self, request: Message, answer: type[M], version: int) -> M:
        self.send(request, version)
        self._run()
        return self.receive(answer, version)


class Stage:
    """One node in a world of its own, and its Kafka listener."""

    def __init__(
        self,
        static: dict[str, str] | None = None,
        advertised: Address | None = None,
        security: SecurityOptions | None = None,
        *,
        is_guarded: bool = True,
    ) -> None:
        """With `security`, clients log in, and access rules decide what they may do; unguarded, all may."""
        self.world = World(5)
        self.authorizer = Keeper()
        self.options = NodeOptions(
            "data",
            NodeId(1),
            (ListenerOptions(Address("node", 9092)),),
            static={"num.partitions": "2", **(static or {})},
            sessions=BrokerSessionOptions(session_ms=SESSION_MS),
            security=security or SecurityOptions(),
        )
        self._is_secured = security is not None
        self._is_guarded = is_guarded
        self.audit_log: AuditLog | None = None
        self.audit: RequestAudit | None = None
        self._listener_security = ListenerSecurity()
        self._listener = AdvertisedListener("PLAINTEXT", "PLAINTEXT", Address("node", 9092), advertised)
        self.backend: Backend
        self.reported: list[Exception] = []
        self.world.add("node", self._program).start()
        self.run()

    def _program(self, runtime: Runtime, disk: Disk) -> Service:
        storage = NodeStorage(disk, disk, DataDirectory.open(disk, UUID(int=4)))
        self.backstage = NodeServices(runtime, storage, self.options, (self._listener,))
        self.backstage.start(lambda backend: self._ready(runtime, backend))
        return self

    def _ready(self, runtime: Runtime, backend: Backend) -> None:
        self.backend = backend
        authorizer: Authorizer | None = self.authorizer if self._is_guarded else None
        if self._is_secured:
            self.audit_log = audit_log_of(runtime, self.options, self.backstage.audit_topic)
            security = NodeSecurity(runtime, self.options.security, backend.access.key_uses, self.audit_log)
            authorizer, self.audit = security.authorizer, security.audit
            self._listener_security = security.listener("SASL_PLAINTEXT")
            security.follow(backend.controller)
            security.start(backend, ())
        self._fetch_server = ListenerContext(
            backend=backend,
            authorizer=authorizer,
            routes=every_route(),
            runtime=runtime,
            metrics=KafkaMetrics(),
            fetch_sessions=FetchSessionCache(runtime.clock, runtime.entropy),
            request_memory=RequestMemoryLimit(runtime.timers.soon),
            response_memory=ResponseMemoryLimit(runtime.timers.soon),
            scheduler=ConnectionScheduler(runtime.timers.soon, runtime.clock.now),
            slices=SliceScheduler(runtime.clock.now, runtime.timers.soon, self.backstage.long_work),
            report=self.reported.append,
            audit=self.audit,
        )

    def stop(self, done: Callback) -> None:
        self.backstage.close()
        done()

    def run(self, duration_ns: int = 6 * SECOND) -> None:
        self.world.run(duration_ns)
        assert self.world.failures == []

    @property
    def claimed_bytes(self) -> int:
        """Of the memory for requests that are not complete."""
        return self._fetch_server.request_memory.claimed_bytes

    @property
    def room_bytes(self) -> int:
        """Of the frames of large requests that are decoded and have no response."""
        return self._fetch_server.slices.held_bytes

    def client(
        self,
        local: tuple[str, int] = LOCAL,
        listener: str = "PLAINTEXT",
        security: ListenerSecurity | None = None,
        host: str = "127.0.0.1",
    ) -> Client:
        """`security` is for a listener that asks for other logins than this node's do."""
        chosen = security or self._listener_security
        return Client(Listener(listener, self._fetch_server, chosen), self.run, local, host)

    def ask(self, request: Message, answer: type[M], version: int) -> M:
        """Ask on a connection of its own."""
        return self.client().ask(request, answer, version)

    def submit(self, command: Command) -> Reply:
        """Tell the controller something that no client could."""
        replies: list[Reply] = []
        self.backend.controller.submit(command, replies.append)
        self.run()
        return replies[0]

    def add_broker(self, node_id: int, *listeners: BrokerEndpoint, fenced: bool = False) -> None:
        """Another broker joins the cluster, as far as the metadata knows."""
        cluster_id = self.backend.node.cluster_id
        registered = self.submit(
            RegisterBroker(
                cluster_id,
                NodeId(node_id),
                UUID(int=100 + node_id),
                listeners,
                f"rack-{node_id}",
                SUPPORTED_FEATURES,
                # It is never heard of again.
                session_ms=SESSION_MS,
            )
        )
        assert isinstance(registered, RegisteredBroker)
        if not fenced:
            self.submit(UnfenceBroker(NodeId(node_id), registered.epoch))


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def stage_with() -> type[Stage]:
    """For tests whose node has settings of its own."""
    return Stage
