"""The echo client: numbered requests, a window of them underway, retries until answered."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.model import MILLISECOND, Instant, ProtocolError
from penstock.observability import log
from penstock.runtime import Address, Callback, Ending, Identity, Link, Runtime, Timer
from penstock.simulation.echo.messages import ANSWER, REQUEST, read_message, write_message

RETRY_MS = 300
RECONNECT_MS = 50


@dataclass(slots=True)
class EchoHistory:
    """What clients did and saw; it outlives them, and is what the checker judges."""

    sent: dict[bytes, bytes] = field(default_factory=dict)
    answered: dict[bytes, bytes] = field(default_factory=dict)
    answers: int = 0

    def saw_answer(self, request_id: bytes, payload: bytes) -> None:
        self.answers += 1
        self.answered.setdefault(request_id, payload)


@dataclass(frozen=True, slots=True)
class Load:
    """How many requests, how many underway at a time, and the pause between answer and next request."""

    count: int
    window: int
    think_ms: int = 0


class EchoClient:
    """Sends its load of requests to a server and keeps asking until each is answered.

    A restarted client starts over with ids of its own: the first bytes of an id are drawn
    anew in every life.
    """

    def __init__(
        self,
        runtime: Runtime,
        server: Address,
        history: EchoHistory,
        load: Load,
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._server = server
        self._history = history
        self._load = load
        self._finished = finished
        self._prefix = runtime.entropy.bytes(8)
        self._number = 0
        self._underway: dict[bytes, Timer] = {}
        self._reconnect: Timer | None = None
        self._is_open = False
        self._stopping = False
        self._link = runtime.transport.connect(server, self)

    def opened(self, link: Link, peer: Identity) -> None:
        log.debug("echo.opened", node=peer.node_id)
        self._link = link
        self._is_open = True
        for request_id in list(self._underway):
            self._ask(request_id)
        self._fill_window()

    def drained(self, link: Link) -> None:
        """A request that was turned away is sent again by its timer."""

    def closed(self, link: Link, ending: Ending) -> None:
        log.debug("echo.closed", ending=ending.name)
        self._is_open = False
        if not self._stopping and link is self._link:
            self._reconnect = self._after(RECONNECT_MS, self._connect)

    def _connect(self) -> None:
        self._link = self._runtime.transport.connect(self._server, self)

    def _fill_window(self) -> None:
        while (
            len(self._underway) < self._load.window and self._number < self._load.count and not self._stopping
        ):
            self._number += 1
            request_id = self._prefix + self._number.to_bytes(8, "big")
            self._history.sent[request_id] = b"request %d" % self._number
            self._ask(request_id)

    def _ask(self, request_id: bytes) -> None:
        """Send a request (again), and set the timer for the next try."""
        if (old := self._underway.get(request_id)) is not None:
            old.cancel()
        # Jitter, or all requests of a window would be repeated in the same moment for ever.
        wait_ms = RETRY_MS + self._runtime.entropy.bytes(1)[0]
        self._underway[request_id] = self._after(wait_ms, lambda: self._ask(request_id))
        if self._is_open:
            self._link.send(write_message(REQUEST, request_id, self._history.sent[request_id]))

    def received(self, link: Link, frame: bytes) -> None:
        try:
            kind, request_id, payload = read_message(frame)
        except ProtocolError:
            link.close()
            return
        if kind != ANSWER:
            return
        self._history.saw_answer(request_id, payload)
        timer = self._underway.pop(request_id, None)
        if timer is None:
            return  # a second answer to the same request
        timer.cancel()
        if self._load.think_ms:
            self._after(self._load.think_ms, self._fill_window)
        else:
            self._fill_window()
        if self._number == self._load.count and not self._underway:
            self._finished()

    def _after(self, delay_ms: int, fire: Callback) -> Timer:
        return self._runtime.timers.at(Instant(self._runtime.clock.now() + delay_ms * MILLISECOND), fire)

    def stop(self, done: Callback) -> None:
        self._stopping = True
        for timer in self._underway.values():
            timer.cancel()
        if self._reconnect is not None:
            self._reconnect.cancel()
        self._link.close()
        self._runtime.timers.soon(done)
