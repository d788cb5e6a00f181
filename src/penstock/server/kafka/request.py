"""One request, from its frame to its response.

Responses leave in the order of the requests, however long each takes.

    requests    1  2  3  4          each gets a PendingResponse
    responses  [✓][ ][✓][ ]         1 leaves; 3 waits for 2, and is held in memory

What is released in one turn of the loop is sent by one system call: when the turn ends, or as soon
as nothing of this connection waits any more.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from msgspec.structs import replace

from penstock.core.model import ProtocolError
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.codec import ENTRY_COUNTERS, Message, entry_counter
from penstock.core.protocol.frames import RequestHeader, response_frame, response_frame_in_steps
from penstock.core.protocol.messages.registry import Api
from penstock.observability import log
from penstock.runtime import Clock
from penstock.runtime.loop_watch import HELD_NS
from penstock.runtime.tcp import BUFFERS, Part, TcpConnection
from penstock.security import AclOperation, Authorizer, Principal, QuotaType, Resource, ResourceType, Session
from penstock.server.kafka.backend import Backend, KafkaMetrics
from penstock.server.kafka.connection_scheduler import ClientAccount
from penstock.server.kafka.errors import error_response
from penstock.server.kafka.fetch_sessions import ConnectionFetchSessions
from penstock.server.kafka.request_audit import AuditedRequest, RequestAudit
from penstock.server.kafka.response_template import (
    CORRELATION_ID_POSITION,
    Template,
    put_correlation_id,
    put_offsets,
)
from penstock.server.kafka.share_sessions import ConnectionShareSessions
from penstock.server.kafka.slice_scheduler import Room, SliceScheduler

# A response with more rows is encoded in slices.
WHOLE_ENTRIES_MAX = 1_000
# Who asks for these may be somebody else afterwards: SaslHandshake and SaslAuthenticate.
LOGIN_KEYS = (17, 36)
# After a response of this size, check whether the client reads before serving the next request.
LARGE_BYTES = 64 << 10


class PendingResponse:
    """The place of one response in its connection's order."""

    __slots__ = ("abandoned", "held_bytes", "parts")

    def __init__(self) -> None:
        self.parts: list[Part] | None = None
        self.held_bytes = 0
        # Called if the connection ends before there is a response.
        self.abandoned: Callable[[], None] | None = None


class ResponseQueue:
    """The pending responses of one connection, in order.

    Every request is put at the end of `waiting`. While `is_corked`, what is
    released is collected in `out`, so that one system call can send it all.
    """

    __slots__ = ("_flush_later", "_moved", "_tcp", "held_bytes", "is_corked", "out", "waiting")

    def __init__(
        self,
        pipe: TcpConnection,
        flush_later: Callable[["ResponseQueue"], None],
        moved: Callable[[int], None],
    ) -> None:
        """`flush_later` calls `flush` at the end of this turn of the loop.

        `moved` is called with every change of `held_bytes`: responses that wait for an earlier one.
        """
        self._tcp = pipe
        self._flush_later = flush_later
        self._moved = moved
        self.held_bytes = 0
        self.waiting: deque[PendingResponse] = deque()
        self.out: list[Part] = []
        self.is_corked = False

    def fill(self, slot: PendingResponse, parts: list[Part]) -> None:
        """Set a response, once. It leaves as soon as everything before it has left."""
        assert slot.parts is None, "a response is set once"
        slot.parts = parts
        waiting = self.waiting
        if not waiting:
            return
        if waiting[0] is not slot:
            self._hold(slot)
            return
        let_go = 0
        while waiting and waiting[0].parts is not None:
            first = waiting.popleft()
            self.out += first.parts or ()
            let_go += first.held_bytes
        if let_go:
            self._let_go(let_go)
        if not self.out or self.is_corked:
            return
        if not waiting:
            # Nothing could join it: a turn of the loop would only be waited for.
            self.flush()
        else:
            # Corked from now on, until the turn is over.
            self.is_corked = True
            self._flush_later(self)

    def _hold(self, slot: PendingResponse) -> None:
        # After a sync round most responses come here: logs are told in turn, whoever asked first.
        size = 0
        for part in slot.parts or ():
            if isinstance(part, BUFFERS):
                size += len(part)
        slot.held_bytes = size
        self.held_bytes += size
        self._moved(size)

    def _let_go(self, size: int) -> None:
        self.held_bytes -= size
        self._moved(-size)

    def flush(self) -> None:
        """Send what was released."""
        self.is_corked = False
        if self.out:
            out, self.out = self.out, []
            self._tcp.write(out)

    def abandon(self) -> None:
        """Forget every pending response: the connection has ended."""
        waiting, self.waiting = self.waiting, deque()
        for slot in waiting:
            if slot.parts is None and slot.abandoned is not None:
                slot.abandoned()
        self.out.clear()
        if self.held_bytes:
            self._let_go(self.held_bytes)


class Authentication(Protocol):
    """The login of a connection."""

    @property
    def mechanisms(self) -> tuple[str, ...]: ...

    @property
    def is_over(self) -> bool:
        """Whether the client has logged in once."""

    @property
    def is_current(self) -> bool:
        """Whether what the client logged in by still counts."""

    def within_login(self, wait_ms: int) -> int:
        """For how long a request may wait that wants to wait for so long."""

    def admits(self, api_key: int) -> bool:
        """Whether a request may be served now."""

    def shake_hands(self, mechanism: str, host: str) -> ErrorCode:
        """Agree on a mechanism with a client at this address."""

    def authenticate(self, content: bytes, call: "Request") -> None:
        """Take a message of the mechanism, and reply to it."""


class RequestConnection(Protocol):
    """What a request needs of its connection."""

    authentication: Authentication | None
    backend: Backend
    authorizer: Authorizer | None
    audit: RequestAudit | None
    share_sessions: ConnectionShareSessions
    fetch_sessions: ConnectionFetchSessions
    clock: Clock
    client_software: tuple[str, str]
    metrics: KafkaMetrics
    tcp: TcpConnection
    responses: ResponseQueue
    is_open: bool
    is_paused: bool
    slices: SliceScheduler
    account: ClientAccount

    def slice(self, sliced: "RequestSteps", frame_bytes: int) -> None: ...

    def keep(self, frame: memoryview) -> memoryview: ...

    def advance(self, steps: Iterator[None]) -> bool: ...

    def note_hold(self, call: "Request", elapsed_ns: int) -> None: ...

    @property
    def session(self) -> Session: ...

    @property
    def is_logged_in(self) -> bool: ...

    def log_in(
        self, principal: Principal, host: str | None = None, scope: frozenset[AclOperation] | None = None
    ) -> None: ...

    def end_turn(self) -> None: ...

    def soon(self, act: Callable[[], None]) -> None: ...

    def pause_reads(self, *, keeps_frame: bool = False) -> None: ...

    def resume_reads(self) -> None: ...

    def throttle(self, throttle_ms: int) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Request(PendingResponse):
    """What a handler knows of the request it serves, and its place in the response queue."""

    __slots__ = (
        "api",
        "audited",
        "authorizer",
        "backend",
        "began_ns",
        "connection",
        "correlation_id",
        "holds_reads",
        "room",
        "session",
        "throttle_ms",
        "version",
        "working_since_ns",
    )

    # For what a large frame becomes; there is none, and no such attribute, unless reads are held.
    room: Room | None

    def __init__(
        self, connection: RequestConnection, api: Api, header: RequestHeader, session: Session, began_ns: int
    ) -> None:
        # The fields of `PendingResponse`, without calling its constructor.
        self.parts = None
        self.held_bytes = 0
        self.abandoned = None
        self.connection = connection
        self.throttle_ms = 0
        # Whether its client is not read before there is a response.
        self.holds_reads = False
        self.backend = connection.backend
        # None if every client may do everything.
        self.authorizer = connection.authorizer
        # Set for what is recorded once it is answered.
        self.audited: AuditedRequest | None = None
        self.api = api
        self.version = header[1]
        self.correlation_id = header[2]
        self.session = session
        # Since when the loop works for it, as far as that is not charged; 0 while it waits.
        self.began_ns = self.working_since_ns = began_ns
        connection.responses.waiting.append(self)

    @property
    def local(self) -> tuple[str, int]:
        """The address the client connected to: how this node is known to it."""
        return self.connection.tcp.local

    @property
    def is_open(self) -> bool:
        """Whether anybody waits for the answer still."""
        return self.connection.is_open

    @property
    def is_login_current(self) -> bool:
        """Whether what the client logged in by still counts; looked at when a request has waited."""
        authentication = self.connection.authentication
        return authentication is None or authentication.is_current

    def within_login(self, wait_ms: int) -> int:
        """So long as a request wants to wait for records, but not for longer than the login counts."""
        authentication = self.connection.authentication
        return wait_ms if authentication is None else authentication.within_login(wait_ms)

    def authorize(self, operation: AclOperation, resource: Resource) -> bool:
        """Whether the client may do this; the decision is recorded, if any are."""
        gate = self.authorizer
        if gate is None:
            return True
        allowed = gate.authorize(self.session, operation, resource)
        audit = self.connection.audit
        if audit is not None:
            audit.decided(self, operation, resource, allowed)
        return allowed

    def permits(self, operation: AclOperation, resource: Resource) -> bool:
        """Whether the client may do this, where it has not asked: what a listing shows, what else counts."""
        gate = self.authorizer
        return gate is None or gate.authorize(self.session, operation, resource)

    def decide(self, operation: AclOperation, resource: Resource, *, allowed: bool) -> bool:
        """Record a decision that any of several rights leads to, and return it."""
        audit = self.connection.audit
        if audit is not None:
            audit.decided(self, operation, resource, allowed)
        return allowed

    def authorize_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there is a resource of the kind that the client may do this to."""
        gate = self.authorizer
        return gate is None or gate.authorize_any(self.session, operation, kind)

    def charge(self, cost: QuotaType, amount: int) -> int:
        """Charge the client's quota; returns for how long it is throttled, which the response says."""
        gate = self.authorizer
        if gate is None:
            return 0
        throttle_ms = gate.charge(self.session, cost, amount)
        if throttle_ms > self.throttle_ms:
            self.throttle_ms = throttle_ms
            if self.connection.is_open:
                self.connection.throttle(throttle_ms)
        return self.throttle_ms

    def quota_left(self, cost: QuotaType) -> int | None:
        """How much the client may have at once: nothing while it owes; None if it has no limit."""
        gate = self.authorizer
        return None if gate is None else gate.quota_left(self.session, cost)

    def charge_time(self) -> int:
        """Charge for the time that the loop has worked for the request, but not for the time it waited."""
        if self.authorizer is None:
            return 0
        since_ns = self.working_since_ns
        if not since_ns:
            return self.throttle_ms
        self.working_since_ns = now_ns = self.connection.clock.now()
        return self.charge(QuotaType.REQUEST_NS, now_ns - since_ns)

    def end_work(self) -> None:
        """The loop goes on to something else: charge for what it has done since the last time.

        Handlers charge before they reply, so that the response says how long its client is throttled.
        """
        connection = self.connection
        if connection.is_logged_in and self.api.key not in LOGIN_KEYS:
            self.charge_time()
        self.working_since_ns = 0

    def reply(self, response: Message) -> None:
        """Answer with a message. One that cannot be written costs the connection, not the node."""
        if self.throttle_ms:
            response = with_throttle(response, self.throttle_ms)
        if self.audited is not None and self.connection.audit is not None:
            self.connection.audit.replied(self, response)
        kind = type(response)
        if (ENTRY_COUNTERS.get(kind) or entry_counter(kind))(response, WHOLE_ENTRIES_MAX):
            self.run(self._reply_in_steps(response))
            return
        try:
            frame = response_frame(self.api, self.version, self.correlation_id, response)
        except ProtocolError as error:
            self._not_encoded(error)
            return
        if len(frame) > LARGE_BYTES:
            self.connection.end_turn()
        self.reply_parts([frame])

    def _reply_in_steps(self, response: Message) -> Iterator[None]:
        try:
            frame = yield from response_frame_in_steps(self.api, self.version, self.correlation_id, response)
        except ProtocolError as error:
            self._not_encoded(error)
            return
        self.connection.end_turn()
        self.reply_parts([frame])

    def _not_encoded(self, error: ProtocolError) -> None:
        log.error("kafka.response_not_encoded", api=self.api.name, version=self.version, reason=str(error))
        self.close()

    def run(
        self,
        steps: Iterator[None],
        *,
        frame_bytes: int = 0,
        is_large: bool = False,
        is_long_poll: bool = False,
    ) -> None:
        """Serve the request in steps: now as far as one slice goes, and the rest in later turns.

        Its client is not read meanwhile, and not before there is a response unless that may wait for
        others. What becomes of `frame_bytes` of its frame needs room before there is a second slice, of a
        large request before the first one.
        """
        connection = self.connection
        slices = connection.slices
        is_first = not self.holds_reads
        if is_large:
            self._hold_reads()
            self.room = slices.claim(connection.account, frame_bytes)
            is_first = self.room is not None and slices.is_idle
        if is_first and slices.advance(steps):
            return
        self._hold_reads()
        wanted_bytes = frame_bytes if self.room is None else 0
        connection.slice(RequestSteps(self, steps, is_long_poll=is_long_poll), wanted_bytes)

    def _hold_reads(self) -> None:
        if not self.holds_reads:
            self.holds_reads = True
            self.room = None
            self.connection.pause_reads(keeps_frame=True)

    def release_reads(self) -> None:
        """Read the client again, if this request has kept it from that."""
        self.give_back_room()
        if self.holds_reads:
            self.holds_reads = False
            self.connection.resume_reads()

    def give_back_room(self) -> None:
        """What the request has become is gone, or counted elsewhere: it waits for other clients."""
        if self.holds_reads and self.room is not None:
            self.room.give_back()
            self.room = None

    def refuse_size(self, size: int, bytes_max: int) -> None:
        self.refuse(f"it has {size:,} bytes, and {bytes_max:,} are allowed")

    def refuse(self, limit: str) -> None:
        """The request exceeds a limit: say so in the response, or close the connection if it cannot."""
        name, peer = self.api.name, self.connection.tcp.peer
        log.warning("kafka.request_too_large", api=name, version=self.version, peer=peer, limit=limit)
        self.connection.metrics.protocol_errors.of().count += 1
        code, message = ErrorCode.INVALID_REQUEST, f"the {name} request is too large: {limit}"
        is_known = self.version in self.api.versions
        response = error_response(self.api, self.version, code, message) if is_known else None
        if response is None:
            self.close()
        else:
            self.reply(response)

    def reply_template(self, template: Template, first: int, second: int, third: int) -> None:
        """Answer with a copy of a response that has these offsets."""
        frame = bytearray(template[0])
        put_correlation_id(frame, CORRELATION_ID_POSITION, self.correlation_id)
        put_offsets(frame, template[1], first, second, third)
        self.reply_parts([frame])

    def reply_parts(self, parts: list[Part]) -> None:
        """Answer with a whole frame, its size included, in pieces."""
        connection, api = self.connection, self.api
        connection.responses.fill(self, parts)
        metrics = connection.metrics
        figures = metrics.by_api.get(api.key) or metrics.figures_of(api)
        answered, elapsed_ns = figures[1], connection.clock.now() - self.began_ns
        answered.counts[bisect_left(answered.bounds, elapsed_ns)] += 1
        answered.total += elapsed_ns
        if connection.is_paused:
            self.release_reads()
            connection.resume()

    def pause_reads(self) -> None:
        """Read no more of this client until `let_go`: what it sends next would have to be kept, too."""
        self.connection.pause_reads()

    def resume_reads(self) -> None:
        self.connection.resume_reads()

    def on_abandoned(self, cancel: Callable[[], None], *, keeps_room: bool = False) -> None:
        """Call `cancel` if the client disconnects before there is a response.

        That waits for others, and what the request keeps meanwhile is bounded elsewhere, unless it
        `keeps_room`.
        """
        if self.parts is None:
            self.abandoned = cancel
            if self.holds_reads and not keeps_room:
                self.give_back_room()

    def no_reply(self) -> None:
        """The client expects no response (Produce with acks 0)."""
        self.reply_parts([])

    def close(self) -> None:
        """Close the connection: for what a client cannot be told in an answer."""
        self.connection.close()


class ParkedReply:
    """The reply to a request that is kept until others have come, or until a time is over.

    Its client may be gone by then, and takes its connection with it: what is kept is this.
    """

    __slots__ = ("_call", "_reply")

    def __init__(self, call: Request, reply: Callable[[Request, Any], None]) -> None:
        self._call: Request | None = call
        self._reply: Callable[[Request, Any], None] | None = reply
        call.abandoned = self._drop
        if call.holds_reads:
            call.give_back_room()

    def __call__(self, reply: Any) -> None:
        call, answer = self._call, self._reply
        self._call = self._reply = None
        if call is not None and answer is not None:
            answer(call, reply)

    def _drop(self) -> None:
        self._call = self._reply = None


class RequestSteps:
    """What is left of a request that is served in slices."""

    __slots__ = ("_call", "_is_long_poll", "_is_running", "_steps")

    def __init__(self, call: Request, steps: Iterator[None], *, is_long_poll: bool) -> None:
        self._call = call
        self._steps: Iterator[None] | None = steps
        self._is_long_poll = is_long_poll
        self._is_running = False

    def admitted(self, room: Room) -> None:
        self._call.room = room

    def abandon(self) -> None:
        """The client is gone: nothing of the rest is done."""
        steps = self._steps
        if not self._is_running and steps is not None:
            self._steps = None
            if isinstance(steps, Generator):
                steps.close()
            self._call.give_back_room()

    def advance(self) -> bool:
        connection, steps = self._call.connection, self._steps
        if steps is None:
            return True
        self._is_running = True
        call = self._call
        call.working_since_ns = began_ns = connection.clock.now()
        is_over = connection.advance(steps)
        elapsed_ns = connection.clock.now() - began_ns
        self._is_running = False
        if call.authorizer is not None:
            call.end_work()
        if elapsed_ns > HELD_NS:
            connection.note_hold(self._call, elapsed_ns)
        if not connection.is_open:
            self.abandon()
            return True
        if is_over:
            self._steps = None
            if self._is_long_poll:
                self._call.release_reads()
        return is_over


def with_throttle(response: Message, throttle_ms: int) -> Message:
    """The same response with the throttle time, if it has a field for that."""
    if not hasattr(response, "throttle_time_ms"):
        return response
    return replace(response, throttle_time_ms=throttle_ms)  # type: ignore[type-var]  # a struct at run time
