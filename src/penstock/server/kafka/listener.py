"""One Kafka listener: its address, its connections, and what they share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ssl import SSLContext
from typing import Protocol, TypeVar

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime import Address, Runtime, Timer
from penstock.runtime.memory_limits import JUDGE_MS, RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import Acceptor, AcceptorOptions, Listen, TcpConnection, TcpListener, TcpProtocol
from penstock.runtime.tls import TlsConnection, TlsSessions
from penstock.security import ANONYMOUS, Authorizer, Principal
from penstock.security.authenticator import Authenticator
from penstock.server.kafka.authentication import ConnectionAuthentication
from penstock.server.kafka.backend import Backend, KafkaMetrics
from penstock.server.kafka.connection import ConnectionLimits, KafkaConnection
from penstock.server.kafka.connection_scheduler import ConnectionScheduler
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.frame_decoder import SCRATCH_BYTES
from penstock.server.kafka.request import ResponseQueue
from penstock.server.kafka.request_audit import TLS_API, RequestAudit
from penstock.server.kafka.router import Router
from penstock.server.kafka.share_sessions import ShareSessionCache
from penstock.server.kafka.slice_scheduler import SliceScheduler

SWEEP_MS = 5_000
# How many connections are looked at per turn of the loop: all of them may be idle, and be closed.
SWEPT_PER_TURN = 100
# How long a client may take to log in, and how many may be at it.
LOGIN_MS = 30_000
NEWCOMERS_MAX = 1_000
# How often to sweep while connections wait for memory.
PRESSED_SWEEP_MS = 500


@dataclass(frozen=True, slots=True)
class ListenerContext:
    """What the listeners of a node share. Without an authorizer every client may do everything.

    `report` is called with unexpected errors.
    """

    backend: Backend
    authorizer: Authorizer | None
    routes: Router
    runtime: Runtime
    metrics: KafkaMetrics
    fetch_sessions: FetchSessionCache
    request_memory: RequestMemoryLimit
    response_memory: ResponseMemoryLimit
    scheduler: ConnectionScheduler
    slices: SliceScheduler
    report: Callable[[Exception], None]
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    share_sessions: ShareSessionCache = field(default_factory=ShareSessionCache)
    # Without it nothing is recorded.
    audit: RequestAudit | None = None
    # Whether a new connection is that of the node's own gateway, which has many callers: it is not counted as
    # one of its address.
    is_gateway: Callable[[TcpConnection], bool] = lambda _: False


class ListenerTls(Protocol):
    """The certificate that new connections are shown, and who the owners of theirs are."""

    @property
    def current(self) -> SSLContext: ...

    def principal_of(self, certificate: bytes | None) -> Principal: ...


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """How the clients of one listener are protected, and how they say who they are."""

    # Their connections are encrypted.
    tls: ListenerTls | None = None
    # They log in; `may_log_in`: only gateways do, and everyone else is who its certificate says.
    authenticator: Authenticator | None = None
    may_log_in: bool = False
    # After how long they do so again; 0 is never.
    reauthenticate_ms: int = 0


class Newcomer(Protocol):
    """A connection of somebody who has not said who it is."""

    @property
    def is_logged_in(self) -> bool: ...

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


N = TypeVar("N", bound=Newcomer)


class Newcomers:
    """The connections of a listener that have not completed their handshake or login, the oldest first.

    Strangers have few places: whoever needs longest for a login that takes milliseconds gives way.
    """

    def __init__(self) -> None:
        # With the timer that ends their time, which would keep them in memory after they are gone.
        self._waiting: dict[Newcomer, Timer | None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, newcomer: N, timer: Timer | None = None) -> N:
        self._waiting[newcomer] = timer
        while len(self._waiting) > NEWCOMERS_MAX:
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            if oldest.is_open and not oldest.is_logged_in:
                oldest.close()
        return newcomer

    def remove(self, newcomer: Newcomer) -> bool:
        """It is somebody, or gone; returns whether it was one of them."""
        if newcomer not in self._waiting:
            return False
        timer = self._waiting.pop(newcomer)
        if timer is not None:
            timer.cancel()
        return True


class Listener:
    """Accepts Kafka clients at one address, on the node's loop."""

    def __init__(
        self, name: str, serving: ListenerContext, security: ListenerSecurity = ListenerSecurity()
    ) -> None:
        self.name = name
        self._security = security
        self.backend = serving.backend
        self.authorizer = serving.authorizer
        self.audit = serving.audit
        self._is_gateway = serving.is_gateway
        self.routes = serving.routes
        self.clock = serving.runtime.clock
        self.metrics = serving.metrics
        self.fetch_sessions = serving.fetch_sessions
        self.share_sessions = serving.share_sessions
        self.report = serving.report
        self.limits = serving.limits
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.request_memory = serving.request_memory
        self.request_memory.on_exhausted(self._spare)
        self.response_memory = serving.response_memory
        self.scheduler = serving.scheduler
        self.slices = serving.slices
        self._timers = serving.runtime.timers
        self._tls_sessions = TlsSessions(self.clock, self._timers)
        self._to_flush: list[ResponseQueue] = []
        self._connections: dict[KafkaConnection, None] = {}
        self._newcomers = Newcomers()
        self._acceptor: TcpListener | None = None
        self._sweeper: Timer | None = None
        self._is_pressed = False
        self._judge_set = False

    def open(
        self, loop: asyncio.AbstractEventLoop, address: Address, options: AcceptorOptions | None = None
    ) -> Address:
        """Listen on a socket; returns the address with the actual port."""
        return self.listen(address, lambda bind, welcome: Acceptor(loop, bind, welcome, options))

    def listen(self, address: Address, listen: Listen) -> Address:
        """Serve the clients of a listener: of a socket, or of a simulated network."""
        self._acceptor = listen(address, self.accept)
        self.metrics.connections.read(lambda: len(self._connections), self.name)
        self._sweep_later()
        return self._acceptor.address

    @property
    def connections(self) -> int:
        return len(self._connections)

    def accept(self, pipe: TcpConnection) -> TcpProtocol:
        """Serve a new client, once its connection is encrypted if it is to be."""
        tls, wait_ms = self._security.tls, 0
        if self.authorizer is not None and not self._is_gateway(pipe):
            # Before anything is done for it: a handshake costs more than most requests.
            wait_ms = self.authorizer.charge_connection(pipe.peer.rpartition(":")[0])
        if tls is None:
            connection = self._welcome(pipe, ANONYMOUS)
            if wait_ms:
                connection.throttle(wait_ms)
            return connection

        def welcome(encrypted: TlsConnection) -> TcpProtocol:
            self._newcomers.remove(encrypted)
            return self._welcome(encrypted, tls.principal_of(encrypted.certificate))

        stranger = TlsConnection(pipe, tls.current, welcome, self._tls_sessions)
        stranger.on_closed = partial(self._newcomers.remove, stranger)
        if wait_ms:
            stranger.delay_handshake(wait_ms)
        return self._newcomers.add(stranger)

    def _welcome(self, pipe: TcpConnection, principal: Principal) -> KafkaConnection:
        security = self._security
        authentication = None
        if security.authenticator is not None:
            authentication = ConnectionAuthentication(
                security.authenticator,
                self.clock,
                security.reauthenticate_ms,
                self.after_ms,
                is_optional=security.may_log_in,
            )
            if not security.may_log_in:
                # Who logs in is who it logs in as, whatever its certificate says.
                principal = ANONYMOUS
        connection = KafkaConnection(pipe, self, principal, authentication)
        self._connections[connection] = None
        if authentication is not None:
            timer = self.after_ms(LOGIN_MS, partial(self._check_login, connection))
            self._newcomers.add(connection, timer)
        if self.audit is not None and principal != ANONYMOUS:
            self.audit.logged_in(connection.session, TLS_API)
        return connection

    def _check_login(self, connection: KafkaConnection) -> None:
        """A client that is nobody after so long gives its place to others."""
        if self._newcomers.remove(connection) and connection.is_open and not connection.is_logged_in:
            connection.abort("no login")

    def set_authorizer(self, authorizer: Authorizer | None) -> None:
        """Judge requests from now on by this authorizer; None allows everything."""
        self.authorizer = authorizer
        for connection in self._connections:
            connection.authorizer = authorizer

    def forget(self, connection: KafkaConnection) -> None:
        self._connections.pop(connection, None)
        self._newcomers.remove(connection)

    def flush_soon(self, replies: ResponseQueue) -> None:
        """Send a connection's responses at the end of this turn of the loop."""
        if not self._to_flush:
            self._timers.soon(self._flush_all)
        self._to_flush.append(replies)

    def _flush_all(self) -> None:
        waiting, self._to_flush = self._to_flush, []
        for replies in waiting:
            replies.flush()

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` after the other connections have had their turn."""
        self._timers.soon(act)

    def _spare(self) -> None:
        for connection in self._connections:
            connection.release_buffer()

    def after_ms(self, delay_ms: int, fire: Callable[[], None]) -> Timer:
        return self._timers.at(Instant(self.clock.now() + delay_ms * MILLISECOND), fire)

    def sweep_soon(self) -> None:
        """Sweep soon: connections wait for memory that others use."""
        if self._sweeper is not None and not self._is_pressed:
            self._sweeper.cancel()
            self._sweep_later()

    def judge_soon(self) -> None:
        """Look at the pace of incomplete requests from now on: connections wait for their memory."""
        if not self._judge_set:
            self._judge_set = True
            self._judge()

    def _judge(self) -> None:
        self.request_memory.judge(self.clock.now())
        self._judge_set = self.request_memory.is_wanted
        if self._judge_set:
            self.after_ms(JUDGE_MS, self._judge)

    def _sweep_later(self) -> None:
        self._is_pressed = self.response_memory.is_full
        self._sweeper = self.after_ms(PRESSED_SWEEP_MS if self._is_pressed else SWEEP_MS, self._sweep)

    def _sweep(self) -> None:
        self._is_pressed = False
        self.sweep()

    def sweep(self) -> None:
        """Close connections that are idle, stuck, or block others."""
        self._sweep_some(list(self._connections))

    def _sweep_some(self, unswept: list[KafkaConnection]) -> None:
        now, pressed = self.clock.now(), self.response_memory.is_full
        for connection in unswept[-SWEPT_PER_TURN:]:
            if connection.is_open:
                connection.sweep(now, pressed=pressed)
        del unswept[-SWEPT_PER_TURN:]
        if unswept:
            self.soon(partial(self._sweep_some, unswept))
            return
        self._make_room()
        self.scheduler.forget()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweep_later()

    def _make_room(self) -> None:
        """Close the connection that holds the most: nobody is read while the response memory is used up."""
        if self.response_memory.is_full and self._connections:
            largest = max(self._connections, key=_held_bytes)
            if largest.held_bytes:
                largest.abort(
                    "it holds the most unread responses while the node's response memory is used up"
                )

    def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop_accepting()

    def close(self) -> None:
        """Close the listener and all its connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        if self._acceptor is not None:
            self._acceptor.close()


def _held_bytes(connection: KafkaConnection) -> int:
    return connection.held_bytes
