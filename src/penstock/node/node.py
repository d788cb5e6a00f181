"""One node: its services and its listeners."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from typing import Protocol

import msgspec

from penstock.core.metadata import MetadataImage
from penstock.core.metadata.configs.broker import connection_overrides
from penstock.core.model import MILLISECOND, Instant
from penstock.node.disk_monitor import DiskMonitor, DiskMonitorOptions
from penstock.node.gateway import GatewayProcess, not_serving
from penstock.node.metrics import MetricsPage
from penstock.node.options import ListenerOptions, NodeOptions, PortReservations, local
from penstock.node.security import NodeSecurity, audit_log_of, record_rotation
from penstock.node.services import BROKER, NodeServices, NodeStorage
from penstock.observability import EventMetrics
from penstock.observability import log as events
from penstock.runtime import Address, Callback, ExecutorKind, Runtime
from penstock.runtime.descriptors import present_limits
from penstock.runtime.memory_limits import RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import (
    Acceptor,
    AcceptorOptions,
    ConnectionQuotaLimits,
    ConnectionQuotas,
    Listen,
    TcpConnection,
    TcpListener,
    TcpProtocol,
)
from penstock.security.options import TLS_PROTOCOLS
from penstock.server.gateway.options import GatewayOptions, GatewayTls
from penstock.server.http import (
    BATCHES_PREFIX,
    NO_RESOURCES,
    PRIVATE_PREFIX,
    BatchResource,
    HttpLimits,
    HttpResponse,
    HttpServer,
    Page,
    Resource,
)
from penstock.server.kafka.backend import AdvertisedListener, Backend, KafkaMetrics
from penstock.server.kafka.connection_scheduler import ConnectionScheduler
from penstock.server.kafka.fetch_sessions import FetchSessionCache, fetch_session_limits
from penstock.server.kafka.handlers import every_route
from penstock.server.kafka.listener import Listener, ListenerContext
from penstock.server.kafka.share_sessions import ShareSessionCache
from penstock.server.kafka.slice_scheduler import SliceScheduler

HTTP, METRICS, KAFKA, PEER, GRPC = "http", "metrics", "kafka", "peer", "grpc"
# Where the gateway finds the pages that the node itself serves.
PAGES = "pages"
LOOPBACK = Address("127.0.0.1", 0)
TOKEN_BYTES = 32
# How long a stop waits for running syncs, so that their responses can still leave.
FAREWELL_MS = 500
FAREWELL_LOOK_MS = 5
# How many partitions the pages about health name.
DEGRADED_MAX = 20
# What strangers are told of a disk.
DISK_PROBLEM = "disk full"
# How long a stop takes at most, checkpoints of all logs included, so that there is time to close in order.
STOP_MS = 3_500


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Where a node that is ready can be reached."""

    kafka: Mapping[str, Address]
    http: Address | None
    metrics: Address | None
    peer: Address | None = None
    grpc: Address | None = None


class ReservedAddresses(Protocol):
    """The addresses that a node may use, by what will listen there."""

    def __getitem__(self, name: str) -> Address: ...

    def close(self) -> None:
        """Release the reservations: the listeners are open."""


def socket_listener(quotas: ConnectionQuotas) -> Listen:
    """Opens listeners of this machine, on the running loop, that share the number of connections."""

    def listen(address: Address, welcome: Callable[[TcpConnection], TcpProtocol]) -> TcpListener:
        options = AcceptorOptions(descriptors_below=present_limits().clients_below)
        return Acceptor(asyncio.get_running_loop(), address, welcome, options, quotas)

    return listen


class Node:
    """The service that a process runs; `listen` opens its Kafka listeners, on sockets by default."""

    def __init__(
        self,
        runtime: Runtime,
        storage: NodeStorage,
        options: NodeOptions,
        reserved: ReservedAddresses,
        ready: Callable[["Node"], None],
        listen: Listen | None = None,
    ) -> None:
        self._runtime = runtime
        self._quotas = ConnectionQuotas()
        self._listen = listen or socket_listener(self._quotas)
        self._options = options
        self._reserved = reserved
        self._ready = ready
        self._kafka: list[Listener] = []
        self._metrics = KafkaMetrics()
        self._http: dict[str, HttpServer] = {}
        self.gateway: GatewayProcess | None = None
        self._stopping = False
        self.is_ready = False
        self._is_reported = False
        self.is_closed = False
        self.backend: Backend | None = None
        listeners = tuple(_listener(listener, reserved) for listener in _doors(options))
        if options.peer is not None:
            options = replace(options, peer=reserved[PEER])
        self.backstage = self._compose(storage, options, listeners)
        self._audit_log = audit_log_of(runtime, options, self.backstage.audit_topic)
        self._security = NodeSecurity(runtime, options.security, self.backstage.key_uses, self._audit_log)
        if self.backstage.key_rotation is not None and self._security.node_audit is not None:
            self.backstage.key_rotation.on_due_rotation = partial(record_rotation, self._security.node_audit)
        space = DiskMonitorOptions(options.data_dir, options.disk_free_bytes_min)
        self._disk_monitor = DiskMonitor(runtime, storage.side_disk, space)
        self.addresses = NodeAddresses(
            {listener.name: listener.bound for listener in listeners},
            reserved[HTTP] if options.http else None,
            reserved[METRICS] if options.metrics else None,
            reserved[PEER] if options.peer else None,
            reserved[GRPC] if options.grpc else None,
        )

    def _compose(
        self, storage: NodeStorage, options: NodeOptions, listeners: tuple[AdvertisedListener, ...]
    ) -> NodeServices:
        return NodeServices(self._runtime, storage, options, listeners)

    def start(self) -> None:
        """Recover and join the cluster; the listeners open when clients can be served.

        Health and metrics are served at once: joining may wait for other nodes.
        """
        self._disk_monitor.start()
        self._security.follow(self.backstage.controller)
        self._open_http(self._metrics)
        if self.gateway is not None:
            # It takes as long to start as the node itself: both at once.
            self.gateway.start(self._report_readiness)
        self.backstage.start(self._open_doors, self._open_no_door)

    def _open_doors(self, backend: Backend) -> None:
        if self._stopping:
            return
        self.backend = backend
        metrics = self._metrics
        security = self._security
        soon, now = self._runtime.timers.soon, self._runtime.clock.now
        request_memory = RequestMemoryLimit(soon, self._options.in_flight_bytes_max // 2)
        scheduler = ConnectionScheduler(soon, now, lambda: request_memory.is_pressed)
        request_memory.on_pressed = scheduler.press
        serving = ListenerContext(
            backend=backend,
            authorizer=security.authorizer,
            is_gateway=self._is_gateway,
            audit=security.audit,
            routes=every_route(),
            runtime=self._runtime,
            metrics=metrics,
            fetch_sessions=FetchSessionCache(
                self._runtime.clock,
                self._runtime.entropy,
                fetch_session_limits(
                    self.backstage.number("max.incremental.fetch.session.cache.slots"),
                    self.backstage.number("max.incremental.fetch.session.cache.partitions"),
                ),
            ),
            share_sessions=ShareSessionCache(self.backstage.number("group.share.max.share.sessions")),
            request_memory=request_memory,
            response_memory=ResponseMemoryLimit(soon, self._options.in_flight_bytes_max // 2),
            scheduler=scheduler,
            slices=SliceScheduler(now, soon, self.backstage.long_work),
            report=self._report,
            limits=replace(
                self._options.connections,
                frame_bytes_max=self.backstage.number("socket.request.max.bytes"),
                idle_ms_max=self.backstage.number("connections.max.idle.ms"),
            ),
        )
        self._limit_connections(self.backstage.controller.image)
        self.backstage.controller.subscribe(self._limit_connections)
        metrics.refused_connections.read(lambda: self._quotas.refused)
        metrics.in_flight_bytes.read(
            lambda: request_memory.claimed_bytes + request_memory.kept_bytes, "requests"
        )
        metrics.in_flight_bytes.read(lambda: serving.response_memory.held_bytes, "answers")
        metrics.read_shares("fetch session", serving.fetch_sessions.shares)
        metrics.read_shares("share session", serving.share_sessions.shares)
        metrics.read_shares("waiting fetch", backend.fetch_service.waiting)
        metrics.kept_entries.read(lambda: backend.groups.positions, "committed offset")
        maintenance = backend.partitions.maintenance
        metrics.kept_entries.read(lambda: maintenance.producers, "producer")
        metrics.lost_entries.read(lambda: maintenance.evicted_producers, "producer")
        for listener in backend.node.listeners:
            door = Listener(listener.name, serving, security.listener(listener.security))
            door.listen(listener.bound, self._listen)
            self._kafka.append(door)
        security.start(backend, self._kafka)
        self._opened()

    def _is_gateway(self, connection: TcpConnection) -> bool:
        """Whether a new connection is that of this node's gateway."""
        if self.gateway is None:
            return False
        host, _, port = connection.peer.rpartition(":")
        is_near = host == connection.local[0] or ip_address(host).is_loopback
        return is_near and self.gateway.connects_from(int(port))

    def _limit_connections(self, _image: MetadataImage) -> None:
        """Take over the number of connections that the broker's settings allow."""
        number = self.backstage.number
        self._quotas.limits = ConnectionQuotaLimits(
            number("max.connections"),
            number("max.connections.per.ip"),
            connection_overrides(self._options.static.get("max.connections.per.ip.overrides", "")),
            number("max.connection.creation.rate"),
        )

    def _open_no_door(self) -> None:
        """Report readiness without listeners: a node that is no broker serves no clients."""
        if not self._stopping:
            self._opened()

    def _opened(self) -> None:
        # What nobody needed so far takes a while to load: do it off the loop, before somebody asks.
        self._runtime.spawn.spawn(_load_the_rest, _ignore, _ignore, ExecutorKind.DISK)
        self._reserved.close()
        self.is_ready = True
        self._report_readiness()

    def _report_readiness(self) -> None:
        """Say so once, when every address is served; the Kafka clients' are from the first moment."""
        if self._is_reported or not self.is_ready or self._stopping:
            return
        if self.gateway is None or self.gateway.is_settled:
            self._is_reported = True
            self._ready(self)

    def _open_http(self, kafka: KafkaMetrics) -> None:
        behind = self.backstage
        declared = [kafka, behind.produce_metrics, behind.group_metrics, behind.replication.metrics]
        declared.append(behind.transaction_metrics)
        declared.append(behind.late_transaction_metrics)
        declared.append(behind.queue_metrics)
        declared.append(behind.delay_metrics)
        declared += [behind.partitions.scrubber.metrics, behind.journal.metrics, behind.telemetry_metrics]
        declared.append(self._disk_monitor.metrics)
        if behind.key_rotation is not None:
            declared.append(behind.key_rotation.metrics)
        if self._audit_log is not None:
            declared.append(self._audit_log.metrics)
        declared.append(EventMetrics())
        page = MetricsPage(behind.partitions, declared, self._runtime.clock, behind.long_work.run)
        page.on_metadata(self.backstage.controller.image)
        self.backstage.controller.subscribe(page.on_metadata)
        pages: dict[str, Page] = {"/health": self._health, "/ready": self._readiness}
        if self.addresses.http is not None:
            resources = {BATCHES_PREFIX: BatchResource(behind.batch_commit.commit)}
            served: dict[str, Page] = {**pages, "/metrics": page}
            gateway = self._options.gateway if self.addresses.kafka else None
            other = None if gateway is None else not_serving
            public = self._open_page(HTTP, self.addresses.http, served, resources, other)
            if gateway is not None:
                token = self._runtime.entropy.bytes(TOKEN_BYTES).hex()
                logins = {PRIVATE_PREFIX: self._security.gateway_logins(token)}
                self._open_page(PAGES, LOOPBACK, served, {**resources, **logins})
                chosen = self._gateway_options(gateway)
                self.gateway = GatewayProcess(self._runtime, public, chosen, token)
        if self.addresses.metrics is not None:
            self._open_page(METRICS, self.addresses.metrics, {"/metrics": page, **pages})

    def _open_page(
        self,
        name: str,
        address: Address,
        pages: dict[str, Page],
        resources: Mapping[str, Resource] = NO_RESOURCES,
        other: Page | None = None,
    ) -> HttpServer:
        tls, limits = self._security.tls, HttpLimits()
        if name == PAGES:
            # All its connections are those of the gateway.
            tls, limits = None, replace(limits, address_connections_max=limits.connections_max)
        gate = self._security.http_gate
        open_pages: dict[str, Page] = {
            "/health": partial(self._health, names=False),
            "/ready": partial(self._readiness, names=False),
        }
        door = self._http[name] = HttpServer(
            self._runtime, pages, limits, resources, other, gate, tls, open_pages
        )
        door.open(asyncio.get_running_loop(), address)
        return door

    def _gateway_options(self, options: GatewayOptions) -> GatewayOptions:
        kafka, listener = next(iter(self.addresses.kafka.values())), _doors(self._options)[0]
        security = self._options.security
        return msgspec.structs.replace(
            options,
            bootstrap=local(kafka),
            pages=self._http[PAGES].address,
            grpc=self.addresses.grpc,
            is_secured=security.enabled,
            has_kafka_tls=listener.security in TLS_PROTOCOLS,
            tls=None if security.tls is None else GatewayTls.of(security.tls),
        )

    def _health(self, *, names: bool = True) -> HttpResponse:
        """The liveness page, with what keeps the node from being ready, and what it cannot serve.

        Without `names` it says of what kind that is, and of how many partitions.
        """
        return _status(200, "ok", self._trouble(names=names), self._degraded(names=names))

    def _readiness(self, *, names: bool = True) -> HttpResponse:
        """The readiness page: whether clients should be sent here.

        A node that cannot use some of its logs serves the others: it is ready, and names or counts them.
        """
        if self._stopping:
            return _status(503, "stopping")
        if not self.is_ready:
            return _status(503, "starting")
        trouble, degraded = self._trouble(names=names), self._degraded(names=names)
        if trouble is not None:
            return _status(503, "not ready", trouble, degraded)
        return _status(200, "ready", degraded=degraded)

    def _trouble(self, *, names: bool) -> str | None:
        """What keeps this node from being ready, if anything."""
        if self.backstage.controller.leader is None:
            return "no controller"
        if self.backend is not None and self.backstage.member.is_fenced:
            return "fenced"
        problem = self._disk_monitor.problem
        return problem if names or problem is None else DISK_PROBLEM

    def _degraded(self, *, names: bool) -> list[str] | int:
        """The partitions that cannot be served, or not in whole: the first of them, or how many they are."""
        partitions = self.backstage.partitions
        found = [f"{name}: offline: {reason}" for name, reason in partitions.offline().items()]
        found += [f"{name}: damaged: {reason}" for name, reason in partitions.damaged().items()]
        if not names:
            return len(found)
        if len(found) > DEGRADED_MAX:
            found[DEGRADED_MAX:] = [f"and {len(found) - DEGRADED_MAX} more"]
        return found

    def _report(self, error: Exception) -> None:
        """Report an unexpected error of a handler; a failed assert means a broken state and ends the node."""
        if isinstance(error, AssertionError):

            def end() -> None:
                raise error

            self._runtime.timers.soon(end)

    def stop(self, done: Callback) -> None:
        """Hand over to other nodes, accept no clients, send pending responses, and close the logs."""
        self._stopping = True
        self._disk_monitor.stop()
        if self.gateway is None:
            self._shut_down(done)
        else:
            # Its clients are told to go elsewhere while this node can still serve what is under way.
            self.gateway.stop(lambda: self._shut_down(done))

    def _shut_down(self, done: Callback) -> None:
        until = Instant(self._runtime.clock.now() + STOP_MS * MILLISECOND)
        self.backstage.begin_controlled_shutdown(lambda: self._shut(until, done))

    def _shut(self, until: Instant, done: Callback) -> None:
        for door in self._kafka:
            door.stop_accepting()
        self.backstage.stop_coordinators()
        answered = Instant(self._runtime.clock.now() + FAREWELL_MS * MILLISECOND)
        self._await_syncs(answered, lambda: self._close(until, done))

    def _await_syncs(self, until: Instant, then: Callback) -> None:
        now = self._runtime.clock.now()
        if self.backstage.commit.is_idle or now >= until:
            self._runtime.timers.soon(then)
            return
        look = Instant(now + FAREWELL_LOOK_MS * MILLISECOND)
        self._runtime.timers.at(look, lambda: self._await_syncs(until, then))

    def _close(self, until: Instant, done: Callback) -> None:
        for door in self._kafka:
            door.close()

        def overdue() -> None:
            events.warning("node.logs_not_closed", partitions=len(self.backstage.partitions))
            self._leave(self.backstage.abandon, done)

        deadline = self._runtime.timers.at(until, overdue)

        def settled() -> None:
            deadline.cancel()
            if not self.is_closed:
                self._leave(self.backstage.close, done)

        if self._audit_log is None:
            self.backstage.prepare_close(settled)
        else:
            self._audit_log.stop(lambda: self.backstage.prepare_close(settled))

    def _leave(self, last: Callback, done: Callback) -> None:
        last()
        for page in self._http.values():
            page.close()
        self.is_closed = True
        done()


class NodeProgram:
    """What the runtime runs; `node` is set once it does."""

    def __init__(
        self,
        storage: NodeStorage,
        options: NodeOptions,
        reserved: PortReservations,
        ready: Callable[[Node], None],
    ) -> None:
        self._storage = storage
        self._options = options
        self._reserved = reserved
        self._ready = ready
        self.node: Node | None = None

    def __call__(self, runtime: Runtime) -> Node:
        self.node = Node(runtime, self._storage, self._options, self._reserved, self._ready)
        self.node.start()
        return self.node


def build(
    storage: NodeStorage, options: NodeOptions, reserved: PortReservations, ready: Callable[[Node], None]
) -> NodeProgram:
    """The program of a node whose directory is locked and whose addresses are reserved."""
    return NodeProgram(storage, options, reserved, ready)


def reserve(options: NodeOptions) -> PortReservations:
    """Reserve every address; AddressUnavailable names the first that cannot be used."""
    wanted = {f"{KAFKA} {listener.name}": listener.bind for listener in _doors(options)}
    if options.http is not None:
        wanted[HTTP] = options.http
    if options.metrics is not None:
        wanted[METRICS] = options.metrics
    if options.peer is not None:
        wanted[PEER] = options.peer
    if options.grpc is not None:
        wanted[GRPC] = options.grpc
    return PortReservations(wanted)


def _doors(options: NodeOptions) -> tuple[ListenerOptions, ...]:
    """The Kafka listeners; only brokers have any."""
    return options.listeners if BROKER in options.roles else ()


def _listener(options: ListenerOptions, reserved: ReservedAddresses) -> AdvertisedListener:
    bound = reserved[f"{KAFKA} {options.name}"]
    advertised = options.advertised
    if advertised is not None and advertised.port == 0:
        advertised = Address(advertised.host, bound.port)
    return AdvertisedListener(options.name, options.security, bound, advertised)


def _status(
    code: int, status: str, reason: str | None = None, degraded: Sequence[str] | int = 0
) -> HttpResponse:
    content: dict[str, object] = {"status": status}
    if reason is not None:
        content["reason"] = reason
    if degraded:
        content["degraded"] = degraded
    return HttpResponse(code, msgspec.json.encode(content) + b"\n", "application/json")


def _load_the_rest() -> None:
    """Load the handlers that no request has asked for yet, and what the metrics page needs; blocks."""
    every_route().load()
    MetricsPage.prepare()


def _ignore(_: object) -> None:
    """Do nothing: an error shows when the page is requested."""
