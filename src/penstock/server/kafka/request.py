"""One request, from its frame to its response."""

from bisect import bisect_left
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from penstock.core.model import ProtocolError
from penstock.core.protocol.codec import Message
from penstock.core.protocol.frames import RequestHeader, response_frame
from penstock.core.protocol.messages.registry import Api
from penstock.observability import log
from penstock.runtime import Clock
from penstock.runtime.tcp import Part, TcpConnection
from penstock.security import AclOperation, Authorizer, QuotaType, Resource, Session
from penstock.server.kafka.backend import Backend, KafkaMetrics
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.response_queue import PendingResponse, ResponseQueue
from penstock.server.kafka.response_template import (
    CORRELATION_ID_POSITION,
    Template,
    put_correlation_id,
    put_offsets,
)

# After a response of this size, check whether the client reads before serving the next request.
LARGE_BYTES = 64 << 10


class RequestConnection(Protocol):
    """What a request needs of its connection."""

    backend: Backend
    gate: Authorizer | None
    fetch_sessions: FetchSessionCache
    clock: Clock
    metrics: KafkaMetrics
    pipe: TcpConnection
    replies: ResponseQueue
    is_open: bool
    is_paused: bool

    def end_turn(self) -> None: ...

    def pause_reads(self) -> None: ...

    def resume_reads(self) -> None: ...

    def throttle(self, throttle_ms: int) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Request(PendingResponse):
    """What a handler knows of the request it serves, and its place in the response queue."""

    __slots__ = (
        "api",
        "backend",
        "began_ns",
        "connection",
        "correlation_id",
        "gate",
        "session",
        "throttle_ms",
        "version",
    )

    def __init__(
        self, connection: RequestConnection, api: Api, header: RequestHeader, session: Session, began_ns: int
    ) -> None:
        # The fields of `PendingResponse`, without calling its constructor.
        self.parts = None
        self.held_bytes = 0
        self.abandoned = None
        self.connection = connection
        self.throttle_ms = 0
        self.backend = connection.backend
        # None if every client may do everything.
        self.gate = connection.gate
        self.api = api
        self.version = header[1]
        self.correlation_id = header[2]
        self.session = session
        self.began_ns = began_ns
        connection.replies.waiting.append(self)

    @property
    def local(self) -> tuple[str, int]:
        """The address the client connected to: how this node is known to it."""
        return self.connection.pipe.local

    @property
    def is_open(self) -> bool:
        """Whether anybody waits for the answer still."""
        return self.connection.is_open

    def authorize(self, operation: AclOperation, resource: Resource) -> bool:
        gate = self.gate
        return gate is None or gate.authorize(self.session, operation, resource)

    def charge(self, cost: QuotaType, amount: int) -> int:
        """Charge the client's quota; returns for how long it is throttled, which the response says."""
        gate = self.gate
        if gate is None:
            return 0
        throttle_ms = gate.charge(self.session, cost, amount)
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            self.connection.throttle(throttle_ms)
        return self.throttle_ms

    def charge_time(self) -> int:
        """Charge for the time that the request has taken so far."""
        return self.charge(QuotaType.REQUEST_NS, self.connection.clock.now() - self.began_ns)

    def reply(self, response: Message) -> None:
        """Answer with a message. One that cannot be written costs the connection, not the node."""
        if self.throttle_ms:
            response = with_throttle(response, self.throttle_ms)
        try:
            frame = response_frame(self.api, self.version, self.correlation_id, response)
        except ProtocolError as error:
            log.error(
                "kafka.response_not_encoded", api=self.api.name, version=self.version, reason=str(error)
            )
            self.close()
            return
        if len(frame) > LARGE_BYTES:
            self.connection.end_turn()
        self.reply_parts([frame])

    def reply_template(self, template: Template, first: int, second: int, third: int) -> None:
        """Answer with a copy of a response that has these offsets."""
        frame = bytearray(template[0])
        put_correlation_id(frame, CORRELATION_ID_POSITION, self.correlation_id)
        put_offsets(frame, template[1], first, second, third)
        self.reply_parts([frame])

    def reply_parts(self, parts: list[Part]) -> None:
        """Answer with a whole frame, its size included, in pieces."""
        connection, api = self.connection, self.api
        connection.replies.fill(self, parts)
        metrics = connection.metrics
        figures = metrics.by_api.get(api.key) or metrics.figures_of(api)
        answered, elapsed_ns = figures[1], connection.clock.now() - self.began_ns
        answered.counts[bisect_left(answered.bounds, elapsed_ns)] += 1
        answered.total += elapsed_ns
        if connection.is_paused:
            connection.resume()

    def pause_reads(self) -> None:
        """Read no more of this client until `let_go`: what it sends next would have to be kept, too."""
        self.connection.pause_reads()

    def resume_reads(self) -> None:
        self.connection.resume_reads()

    def on_abandoned(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` if the client disconnects before there is a response."""
        if self.parts is None:
            self.abandoned = cancel

    def no_reply(self) -> None:
        """The client expects no response (Produce with acks 0)."""
        self.reply_parts([])

    def close(self) -> None:
        """Close the connection: for what a client cannot be told in an answer."""
        self.connection.close()


def with_throttle(response: Message, throttle_ms: int) -> Message:
    """The same response with the throttle time, if it has a field for that."""
    if not hasattr(response, "throttle_time_ms"):
        return response
    return replace(response, throttle_time_ms=throttle_ms)  # type: ignore[type-var]  # a struct at run time
