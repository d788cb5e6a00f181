"""One client's connection: frames in, responses out, in order and within limits."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.core.model import MILLISECOND, Instant, PenstockError, ProtocolError, TopicPartition
from penstock.core.protocol.frames import API_VERSIONS_KEY, read_request_header
from penstock.observability import log
from penstock.runtime import Clock
from penstock.runtime.memory_limits import RequestMemoryLimit, ResponseMemoryLimit
from penstock.runtime.tcp import TcpConnection
from penstock.security import ANONYMOUS, Authorizer, Session
from penstock.server.kafka.backend import Backend, KafkaMetrics
from penstock.server.kafka.fetch_sessions import FetchSessionCache
from penstock.server.kafka.frame_decoder import REUSED_BYTES_MAX, FrameDecoder
from penstock.server.kafka.request import Request, ResponseQueue
from penstock.server.kafka.router import Router
from penstock.server.kafka.share_sessions import ShareSession

# Requests that arrived together are served for this long; then other connections have their turn.
TURN_NS = 5 * MILLISECOND


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
    routes: Router
    clock: Clock
    metrics: KafkaMetrics
    fetch_sessions: FetchSessionCache
    report: Callable[[Exception], None]
    limits: ConnectionLimits
    scratch: memoryview
    request_memory: RequestMemoryLimit
    response_memory: ResponseMemoryLimit

    def forget(self, connection: "KafkaConnection") -> None: ...

    def flush_soon(self, replies: ResponseQueue) -> None: ...

    def soon(self, act: Callable[[], None]) -> None: ...

    def after_ms(self, delay_ms: int, fire: Callable[[], None]) -> object: ...

    def sweep_soon(self) -> None: ...


class KafkaConnection:
    """The Kafka protocol on one TCP connection."""

    __slots__ = (
        "_decoder",
        "_held_until_ns",
        "_holds",
        "_progress",
        "_routes",
        "_seen_ns",
        "_session",
        "_turn_end_ns",
        "_waits_for_room",
        "_waits_for_turn",
        "authorizer",
        "backend",
        "client_software",
        "clock",
        "fetch_sessions",
        "is_open",
        "is_paused",
        "listener",
        "metrics",
        "responses",
        "served_offsets",
        "share_sessions",
        "tcp",
    )

    def __init__(self, pipe: TcpConnection, door: ConnectionOwner) -> None:
        self.tcp = pipe
        self.listener = door
        self.backend = door.backend
        self.authorizer = door.authorizer
        self.clock = door.clock
        # Name and version, as the client calls itself in ApiVersions.
        self.client_software = ("", "")
        self.metrics = door.metrics
        self.fetch_sessions = door.fetch_sessions
        # The offset of the last fetch that was sent records, of each partition, and how often it came again.
        self.served_offsets: dict[TopicPartition, tuple[int, int]] = {}
        self.share_sessions: dict[tuple[str, str], ShareSession] = {}
        self._routes = door.routes.by_key
        self.responses = ResponseQueue(pipe, door.flush_soon, door.response_memory.moved)
        pipe.account(door.response_memory.moved)
        self.is_open = True
        self._decoder = FrameDecoder(door.scratch, door.limits.frame_bytes_max, door.request_memory)
        self._session = Session(ANONYMOUS, door.name, "", pipe.peer.rpartition(":")[0])
        self.is_paused = False
        self._held_until_ns = 0
        self._holds = 0
        self._turn_end_ns = 0
        self._waits_for_turn = False
        self._waits_for_room = False
        self._seen_ns = door.clock.now()
        self._progress = 0
        if door.response_memory.is_full:
            self._pause()
            self._await_room()

    def get_buffer(self) -> memoryview:
        return self._decoder.target

    def buffer_updated(self, count: int) -> None:  # noqa: C901 - the hot path, straight on purpose
        self._turn_end_ns = 0
        assembly, replies = self._decoder, self.responses
        replies.is_corked = True
        try:
            assembly.buffer_updated(count, self._serve)
        except ProtocolError as error:
            self.metrics.protocol_errors.of().count += 1
            log.warning("kafka.protocol_error", peer=self.tcp.peer, reason=str(error))
            self.close()
            return
        except Exception as error:
            # The last line of defence: an unexpected error closes this connection.
            log.error("kafka.handler_failed", peer=self.tcp.peer, error=error)
            self.metrics.failures.of().count += 1
            self.close()
            if not isinstance(error, PenstockError):
                self.listener.report(error)
            return
        if not self.is_open:
            return
        if assembly.owned_bytes > REUSED_BYTES_MAX:
            assembly.release_buffer()
        replies.is_corked = False
        if replies.out:
            replies.flush()
        if assembly.rest is not None:
            self._pause()
            self.resume()
        elif self._is_full():
            self._pause()
            self._await_room()

    @property
    def held_bytes(self) -> int:
        """Bytes of responses in memory: the client does not read them, or they wait for an earlier one."""
        return self.tcp.held_bytes + self.responses.held_bytes

    def _serve(self, frame: memoryview) -> bool:
        """Serve one request; returns whether there is time for another one in this turn of the loop."""
        if not self.is_open:
            return False
        clock = self.clock
        began_ns = clock.now()
        self._seen_ns = began_ns
        if not self._turn_end_ns:
            self._turn_end_ns = began_ns + TURN_NS
        header, position = read_request_header(frame)
        api_key, version, _, client_id = header
        route = self._routes.get(api_key)
        if route is None:
            raise ProtocolError(f"API key {api_key} is not supported")
        api = route.api
        if version not in api.versions and api_key != API_VERSIONS_KEY:
            raise ProtocolError(f"{api.name} version {version} is not supported")
        session = self._session
        if (client_id or "") != session.client_id:
            session = self._session = session._replace(client_id=client_id or "")
        route.serve(Request(self, api, header, session, began_ns), frame, position)
        ended_ns = clock.now()
        figures = self.metrics.by_api.get(api_key) or self.metrics.figures_of(api)
        served, elapsed_ns = figures[0], ended_ns - began_ns
        served.counts[bisect_left(served.bounds, elapsed_ns)] += 1
        served.total += elapsed_ns
        return ended_ns < self._turn_end_ns and self.is_open

    def end_turn(self) -> None:
        """Serve no more requests in this turn, however little time it has taken."""
        self._turn_end_ns = 1

    def soon(self, act: Callable[[], None]) -> None:
        """Call `act` after the other connections have had their turn."""
        self.listener.soon(act)

    def pause_reads(self) -> None:
        """Read no more requests until `resume_reads`: one that waits for a worker is enough."""
        self._holds += 1
        self.end_turn()
        self._pause()

    def resume_reads(self) -> None:
        self._holds -= 1
        self.resume()

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
        if not self.is_open:
            return
        if self._is_full():
            self._await_room()
        elif self._decoder.rest is None:
            self.is_paused = False
            self.tcp.resume()
        elif not self._waits_for_turn:
            self._waits_for_turn = True
            if self._decoder.is_starved:
                self.metrics.held_back.of("requests").count += 1
                self.listener.request_memory.wait(self._take_turn)
            else:
                self.listener.soon(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        if not self.is_open:
            return
        if self._is_full():
            self._await_room()
        else:
            self.is_paused = False  # or every response of this turn would try to resume
            self.buffer_updated(0)
            if self._decoder.rest is None:
                self.resume()

    def drained(self) -> None:
        self.resume()

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
            self._decoder.release_buffer()

    def _is_in_the_way(self, *, pressed: bool) -> bool:
        """Whether others wait for its memory: unread responses, or a request that is not complete."""
        if pressed and self.held_bytes > 0:
            return True
        return self._decoder.is_partial and self.listener.request_memory.is_wanted

    def abort(self, reason: str) -> None:
        log.info("kafka.connection_closed", peer=self.tcp.peer, reason=reason, held_bytes=self.held_bytes)
        self.close()

    def close(self) -> None:
        self.tcp.close()

    def closed(self) -> None:
        self.is_open = False
        self._decoder.close()
        self.responses.abandon()
        self.listener.response_memory.forget(self._room)
        self.listener.forget(self)

    def release_buffer(self) -> None:
        """Give back the buffer kept for the next large frame: other connections need the memory."""
        self._decoder.release_buffer()
