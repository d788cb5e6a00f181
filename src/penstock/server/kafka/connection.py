"""One client's connection: frames in, responses out, in order and within limits."""

import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from penstock.core.model import MILLISECOND, Instant, PenstockError, ProtocolError
from penstock.core.protocol.frames import API_VERSIONS_KEY, RequestHeader, read_request_header
from penstock.observability import log
from penstock.runtime import Clock
from penstock.runtime.loop_watch import HELD_NS
from penstock.runtime.memory_limits import RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import TcpConnection
from penstock.security import ANONYMOUS, AclOperation, Authorizer, Principal, Session
from penstock.server.kafka.backend import Backend, KafkaMetrics
from penstock.server.kafka.connection_scheduler import ClientAccount, ConnectionScheduler
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.frame_decoder import REUSED_BYTES_MAX, FrameDecoder
from penstock.server.kafka.loop_holds import LoopHold
from penstock.server.kafka.request import Authentication, Request, RequestSteps, ResponseQueue
from penstock.server.kafka.request_audit import RequestAudit
from penstock.server.kafka.router import Router
from penstock.server.kafka.share_sessions import ShareSessionCache
from penstock.server.kafka.slice_scheduler import SliceScheduler

# Of a client id no more is kept: a request may say 32,767, and what waits keeps them.
CLIENT_ID_CHARS_MAX = 1_000
unpack_beginning = struct.Struct(">hhi").unpack_from


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection may ask of the node."""

    frame_bytes_max: int = 100 << 20
    waiting_replies_max: int = 500
    pending_bytes_max: int = 8 << 20
    idle_ms_max: int = 600_000
    stalled_ms_max: int = 60_000
    # The same, while other connections wait for memory that this one uses.
    pressed_ms_max: int = 1_000


class ConnectionOwner(Protocol):
    """What a connection needs of its listener."""

    name: str
    backend: Backend
    authorizer: Authorizer | None
    audit: RequestAudit | None
    routes: Router
    clock: Clock
    metrics: KafkaMetrics
    fetch_sessions: FetchSessionCache
    share_sessions: ShareSessionCache
    report: Callable[[Exception], None]
    limits: ConnectionLimits
    scratch: memoryview
    request_memory: RequestMemoryLimit
    response_memory: ResponseMemoryLimit
    scheduler: ConnectionScheduler
    slices: SliceScheduler

    def forget(self, connection: "KafkaConnection") -> None: ...

    def flush_soon(self, replies: ResponseQueue) -> None: ...

    def soon(self, act: Callable[[], None]) -> None: ...

    def after_ms(self, delay_ms: int, fire: Callable[[], None]) -> object: ...

    def sweep_soon(self) -> None: ...

    def judge_soon(self) -> None: ...


class KafkaConnection:
    """The Kafka protocol on one TCP connection."""

    __slots__ = (
        "__weakref__",
        "_copied_bytes",
        "_decoder",
        "_held_until_ns",
        "_holds",
        "_keeps_frame",
        "_kept_bytes",
        "_progress",
        "_routes",
        "_scheduler",
        "_seen_ns",
        "_session",
        "_sliced",
        "_turn_end_ns",
        "_waits_for_room",
        "_waits_for_turn",
        "account",
        "address_usage",
        "audit",
        "authentication",
        "authorizer",
        "backend",
        "client_software",
        "client_usage",
        "clock",
        "fetch_sessions",
        "is_open",
        "is_paused",
        "listener",
        "metrics",
        "responses",
        "share_sessions",
        "slices",
        "tcp",
    )

    def __init__(
        self,
        pipe: TcpConnection,
        door: ConnectionOwner,
        principal: Principal = ANONYMOUS,
        authentication: Authentication | None = None,
    ) -> None:
        self.tcp = pipe
        # None where clients do not log in.
        self.authentication = authentication
        self.listener = door
        self.backend = door.backend
        self.authorizer = door.authorizer
        self.audit = door.audit
        self.clock = door.clock
        # Name and version, as the client calls itself in ApiVersions.
        self.client_software = ("", "")
        self.metrics = door.metrics
        self.slices = door.slices
        address = pipe.peer.rpartition(":")[0]
        self.fetch_sessions = door.fetch_sessions.connect(address)
        self.share_sessions = door.share_sessions.connect(address)
        self._routes = door.routes.by_key
        self.responses = ResponseQueue(pipe, door.flush_soon, door.response_memory.moved)
        pipe.account(door.response_memory.moved)
        self.is_open = True
        self._decoder = FrameDecoder(door.scratch, door.limits.frame_bytes_max, door.request_memory, self)
        self._session = Session(principal, door.name, "", address, str(principal))
        self._scheduler = door.scheduler
        self.address_usage = door.scheduler.usage_of(address)
        self.client_usage = door.scheduler.usage_of(_client_of(self._session), "")
        # Who is charged for long work.
        self.account = ClientAccount(door.scheduler, self.client_usage, self.address_usage)
        # The request that is served in slices, if there is one.
        self._sliced: RequestSteps | None = None
        # Copies of frames that others' requests would overwrite: the last one, and those that are counted.
        self._copied_bytes = 0
        self._kept_bytes = 0
        self.is_paused = False
        self._held_until_ns = 0
        self._holds = 0
        self._keeps_frame = False
        self._turn_end_ns = 0
        self._waits_for_turn = False
        self._waits_for_room = False
        self._seen_ns = door.clock.now()
        self._progress = 0
        if door.response_memory.is_full:
            self._pause()
            self._await_room()

    def get_buffer(self) -> memoryview | None:
        scheduler = self._scheduler
        if scheduler.spent_ns <= scheduler.limit_ns:
            return self._decoder.target
        if scheduler.admits(self):
            return self._decoder.contended_target
        self.metrics.held_back.of("turn").count += 1
        self._pause()
        self._await_turn()
        return None

    def buffer_updated(self, count: int) -> None:
        self._turn_end_ns = 0
        assembly, replies = self._decoder, self.responses
        replies.is_corked = True
        try:
            assembly.buffer_updated(count, self._serve)
        except Exception as error:
            self._failed(error)
            return
        if not self.is_open:
            return
        if assembly.owned_bytes > REUSED_BYTES_MAX and not self._keeps_frame:
            assembly.release_buffer()
        replies.is_corked = False
        if replies.out:
            replies.flush()
        if assembly.rest is not None or assembly.is_starved:
            self._pause()
            self.resume()
        elif self._is_full():
            self._pause()
            self._await_room()

    def _failed(self, error: Exception) -> None:
        """The last line of defence: an unexpected error closes this connection."""
        if isinstance(error, ProtocolError):
            self.metrics.protocol_errors.of().count += 1
            log.warning("kafka.protocol_error", peer=self.tcp.peer, reason=str(error))
        else:
            self.metrics.failures.of().count += 1
            log.error("kafka.handler_failed", peer=self.tcp.peer, error=error)
        self.close()
        if not isinstance(error, PenstockError):
            self.listener.report(error)

    def advance(self, steps: Iterator[None]) -> bool:
        """Take the next steps of a request that is served in slices; returns whether it needs no more."""
        try:
            return self.slices.advance(steps)
        except Exception as error:
            self._failed(error)
            return True

    def keep(self, frame: memoryview) -> memoryview:
        """The frame, in a form that is valid as long as no more is read: others use the scratch buffer."""
        if frame.obj is not self.listener.scratch.obj:
            self._copied_bytes = 0
            return frame
        self._copied_bytes = len(frame)
        return memoryview(bytearray(frame))

    @property
    def address(self) -> str:
        """The client's address, without its port."""
        return self._session.host

    @property
    def is_logged_in(self) -> bool:
        """Whether its client has said who it is, or need not."""
        return self.authentication is None or self.authentication.is_over

    @property
    def session(self) -> Session:
        """Who its client is now."""
        return self._session

    @property
    def held_bytes(self) -> int:
        """Bytes of responses in memory: the client does not read them, or they wait for an earlier one."""
        return self.tcp.held_bytes + self.responses.held_bytes

    def _serve(self, frame: memoryview) -> bool:  # noqa: C901 - the hot path, straight on purpose
        """Serve one request; returns whether there is time for another one in this turn of the loop."""
        if not self.is_open:
            return False
        clock = self.clock
        began_ns = clock.now()
        self._seen_ns = began_ns
        scheduler = self._scheduler
        if not self._turn_end_ns:
            self._turn_end_ns = began_ns + scheduler.quantum_ns
        header, position = read_request_header(frame)
        api_key, version, _, client_id = header
        route = self._routes.get(api_key)
        if route is None:
            raise ProtocolError(f"API key {api_key} is not supported")
        api = route.api
        if version not in api.versions and api_key != API_VERSIONS_KEY:
            raise ProtocolError(f"{api.name} version {version} is not supported")
        authentication = self.authentication
        if authentication is not None and not authentication.admits(api_key):
            raise ProtocolError(f"{api.name} before a login, or after it has expired")
        session = self._session
        if (client_id or "") != session.client_id:
            session = self._rename(client_id or "")
        call = Request(self, api, header, session, began_ns)
        if len(frame) <= route.bytes_max:
            route.serve(call, frame, position)
        else:
            call.refuse_size(len(frame), route.bytes_max)
        if call.authorizer is not None:
            call.end_work()
        ended_ns = clock.now()
        figures = self.metrics.by_api.get(api_key) or self.metrics.figures_of(api)
        served, elapsed_ns = figures[0], ended_ns - began_ns
        served.counts[bisect_left(served.bounds, elapsed_ns)] += 1
        served.total += elapsed_ns
        scheduler.spent_ns += elapsed_ns
        usage = self.client_usage
        usage.used_ns += elapsed_ns
        self.address_usage.used_ns += elapsed_ns
        if usage is not scheduler.last_client:
            scheduler.last_client = usage
            scheduler.switches += 1
        if elapsed_ns > HELD_NS:
            self.note_hold(call, elapsed_ns)
        return ended_ns < self._turn_end_ns and self.is_open

    def note_hold(self, call: Request, elapsed_ns: int) -> None:
        """A request of this client has held the loop for so long."""
        hold = LoopHold(elapsed_ns, call.api.name, call.version, call.session.client_id, self.tcp.peer)
        self.metrics.loop_holds.note(hold, self.clock.now())

    def log_in(
        self, principal: Principal, host: str | None = None, scope: frozenset[AclOperation] | None = None
    ) -> None:
        """Serve what follows as this principal; a gateway says which host its client is, and a scope."""
        self._session = self._session._replace(
            principal=principal,
            principal_name=str(principal),
            host=self._session.host if host is None else host,
            scope=scope,
        )
        self._change_client(self._session)

    def _rename(self, client_id: str) -> Session:
        """The client says another name than before; of a long one the beginning is kept."""
        kept = client_id[:CLIENT_ID_CHARS_MAX]
        if kept != self._session.client_id:
            self._session = self._session._replace(client_id=kept)
            self._change_client(self._session)
        return self._session

    def _change_client(self, session: Session) -> None:
        """Count for another client from now on."""
        client = _client_of(session)
        self.client_usage = self._scheduler.rename(self.client_usage, client, session.client_id)
        self.account = ClientAccount(self._scheduler, self.client_usage, self.address_usage)

    def end_turn(self) -> None:
        """Serve no more requests in this turn, however little time it has taken."""
        self._turn_end_ns = 1

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` after the other connections have had their turn."""
        self.listener.soon(act)

    def pause_reads(self, *, keeps_frame: bool = False) -> None:
        """Read no more requests until `resume_reads`: one that waits for a worker is enough.

        `keeps_frame`: until then the frame that is being served is still needed.
        """
        self._holds += 1
        if keeps_frame:
            self._keeps_frame = True
            self._kept_bytes += self._copied_bytes
            self.listener.request_memory.keep(self._copied_bytes)
            self._copied_bytes = 0
        self.end_turn()
        self._pause()

    def resume_reads(self) -> None:
        self._holds -= 1
        if not self._holds and self._keeps_frame:
            self._keeps_frame = False
            self._sliced = None
            self._let_go()
            if self._decoder.owned_bytes > REUSED_BYTES_MAX:
                self.release_buffer()
        self.resume()

    def _let_go(self) -> None:
        """Nobody needs the copies of frames any more."""
        kept, self._kept_bytes = self._kept_bytes, 0
        if kept:
            self.listener.request_memory.keep(-kept)

    def slice(self, sliced: RequestSteps, frame_bytes: int) -> None:
        """Serve a request in slices, when there is room for what its frame becomes."""
        if frame_bytes:
            self._sliced = sliced
        self.slices.add(sliced, self.account, frame_bytes)

    def throttle(self, throttle_ms: int) -> None:
        """Read nothing for a while, because a quota was exceeded; responses are still sent."""
        until_ns = self.clock.now() + throttle_ms * MILLISECOND
        if until_ns <= self._held_until_ns:
            return
        self._held_until_ns = until_ns
        self.end_turn()
        self._pause()
        self.listener.after_ms(throttle_ms, self._release)

    def _release(self) -> None:
        # An earlier, shorter throttle has no effect.
        if self.clock.now() >= self._held_until_ns:
            self._held_until_ns = 0
            self.resume()

    def _is_full(self) -> bool:
        limits, backlog = self.listener.limits, self.listener.response_memory
        replies, pipe = self.responses, self.tcp
        return (
            self._held_until_ns > 0
            or self._holds > 0
            or len(replies.waiting) >= limits.waiting_replies_max
            or pipe.pending_bytes + replies.held_bytes > limits.pending_bytes_max
            # Usually no response is held.
            or (backlog.held_bytes > 0 and backlog.refuses(pipe.held_bytes + replies.held_bytes))
        )

    def _await_room(self) -> None:
        """Wait for the node's `ResponseMemoryLimit`, if that is what is full."""
        if self.listener.response_memory.is_full and not self._waits_for_room:
            self._waits_for_room = True
            self.metrics.held_back.of("answers").count += 1
            self.listener.response_memory.wait(self._room)
            self.listener.sweep_soon()

    def _room(self) -> None:
        self._waits_for_room = False
        self.resume()

    def _pause(self) -> None:
        self.is_paused = True
        self.tcp.pause()

    def resume(self) -> None:
        """Read again, unless something else pauses it; buffered bytes come first."""
        if not self.is_open or self._waits_for_turn:
            return
        if self._is_full():
            self._await_room()
        elif self._decoder.rest is None and not self._decoder.is_starved:
            self.is_paused = False
            self.tcp.resume()
        elif self._decoder.is_starved:
            self._waits_for_turn = True
            self.metrics.held_back.of("requests").count += 1
            self.listener.request_memory.wait(self._decoder, self.take_turn)
            self.listener.judge_soon()
        else:
            self._await_turn()

    def _await_turn(self) -> None:
        self._waits_for_turn = True
        self._scheduler.enqueue(self)

    def take_turn(self) -> None:
        self._waits_for_turn = False
        if not self.is_open:
            return
        if self._is_full():
            self._await_room()
            return
        decoder = self._decoder
        self.is_paused = False  # or every response of this turn would try to resume
        if decoder.rest is not None or decoder.is_starved:
            self.buffer_updated(0)
        else:
            self.tcp.read()
        if decoder.rest is None and not decoder.is_starved and not self.is_paused:
            self.resume()

    def drained(self) -> None:
        self.resume()

    def eof_received(self) -> bool:
        # Requests that wait for a response die with their client; those that were read and not
        # served yet may be records that nobody was to acknowledge.
        return self._decoder.rest is not None

    def sweep(self, now_ns: Instant, *, pressed: bool = False) -> None:
        """Close a connection that is idle or stuck; called every few seconds.

        `pressed`: the node's memory for responses is used up.
        """
        limits = self.listener.limits
        progress = self.tcp.sent_bytes + self._decoder.have_bytes
        if progress != self._progress:
            self._progress, self._seen_ns = progress, now_ns
        quiet_ms = (now_ns - self._seen_ns) // 1_000_000
        stuck = self._decoder.is_partial or self.tcp.pending_bytes > 0
        if self._is_in_the_way(pressed=pressed) and quiet_ms >= limits.pressed_ms_max:
            self.abort("in the way")
        elif quiet_ms > (limits.stalled_ms_max if stuck else limits.idle_ms_max) and not (
            self.responses.waiting and not stuck
        ):
            self.abort("stuck" if stuck else "idle")
        elif not stuck:
            self.release_buffer()

    def _is_in_the_way(self, *, pressed: bool) -> bool:
        """Whether others wait for its memory: unread responses, or a request that is not complete."""
        if pressed and self.held_bytes > 0:
            return True
        return (
            self._decoder.is_partial
            and not self._decoder.is_held_back
            and self.listener.request_memory.is_wanted
        )

    def refuses(self, size: int, beginning: memoryview) -> bool:
        """Whether a frame is too large for its API; its request is refused then."""
        api_key, version, correlation_id = unpack_beginning(beginning)
        if self.authentication is not None and not self.authentication.is_over:
            # Nothing that a login needs is so large, and nobody else's memory is for strangers.
            raise ProtocolError(f"a frame of {size:,} bytes before a login")
        route = self._routes.get(api_key)
        if route is None or size <= route.bytes_max:
            return False
        header = RequestHeader(api_key, version, correlation_id, None)
        call = Request(self, route.api, header, self._session, self.clock.now())
        call.refuse_size(size, route.bytes_max)
        return True

    def evict(self) -> None:
        self.metrics.evicted.of("requests").count += 1
        self.abort("its request arrives too slowly while others wait for the memory that it uses")

    def abort(self, reason: str) -> None:
        log.info("kafka.connection_closed", peer=self.tcp.peer, reason=reason, held_bytes=self.held_bytes)
        self.close()

    def close(self) -> None:
        self.tcp.close()

    def closed(self) -> None:
        self.is_open = False
        self._decoder.close()
        self._let_go()
        if self._sliced is not None:
            # Nobody waits for the rest; what was begun for it ends as it would for any client that leaves.
            self.slices.remove(self._sliced, self.account)
            self._sliced.abandon()
            self._sliced = None
        self._scheduler.release(self.client_usage)
        self._scheduler.release(self.address_usage)
        if self.audit is not None:
            for waiting in self.responses.waiting:
                if isinstance(waiting, Request):
                    self.audit.abandoned(waiting)
        self.responses.abandon()
        self.fetch_sessions.close()
        self.share_sessions.close()
        self.listener.response_memory.forget(self._room)
        self.listener.forget(self)

    def release_buffer(self) -> None:
        """Give back the buffer kept for the next large frame: other connections need the memory."""
        if not self._keeps_frame:
            self._decoder.release_buffer()


def _client_of(session: Session) -> str:
    """Whose client ids a client's belongs to: the principal's, or those of an address without one."""
    return session.host if session.principal == ANONYMOUS else session.principal_name
