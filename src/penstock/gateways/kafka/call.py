"""One request, from its frame to its answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.core.model import ProtocolError
from penstock.core.wire.headers import RequestHeader, response_frame
from penstock.core.wire.kafka.registry import Api
from penstock.core.wire.message import Message
from penstock.gateways.kafka.replies import Slot
from penstock.observability import log
from penstock.runtime.pipes import Part
from penstock.security import Cost, Operation, Resource, Session

if TYPE_CHECKING:
    from penstock.gateways.kafka.connection import Connection
    from penstock.gateways.kafka.fetch_sessions import FetchSessions

# An answer of which there should not be many before anybody looks whether the client reads them.
LARGE_BYTES = 64 << 10


class Call:
    """What a handler knows of the request it serves, and where the answer goes."""

    __slots__ = (
        "_connection",
        "_slot",
        "_throttle_ms",
        "api",
        "backend",
        "began_ns",
        "correlation_id",
        "gate",
        "session",
        "version",
    )

    def __init__(
        self, connection: "Connection", api: Api, header: RequestHeader, session: Session, began_ns: int
    ) -> None:
        self._connection = connection
        self.backend = connection.door.backend
        # Whoever watches what clients do; None if everybody may do everything.
        self.gate = connection.door.gate
        self._slot: Slot | None = connection.replies.open()
        self.api = api
        self.version = header.api_version
        self.correlation_id = header.correlation_id
        self.session = session
        self.began_ns = began_ns
        self._throttle_ms = 0

    @property
    def fetch_sessions(self) -> "FetchSessions":
        return self._connection.door.fetch_sessions

    @property
    def local(self) -> tuple[str, int]:
        """The address the client connected to: how this node is known to it."""
        return self._connection.pipe.local

    @property
    def is_open(self) -> bool:
        """Whether anybody waits for the answer still."""
        return self._connection.is_open

    def authorize(self, operation: Operation, resource: Resource) -> bool:
        gate = self.gate
        return gate is None or gate.authorize(self.session, operation, resource)

    def charge(self, cost: Cost, amount: int) -> int:
        """Charge the client; if it is to be held back, it is, and its answer says how long."""
        gate = self.gate
        if gate is None:
            return 0
        throttle_ms = gate.charge(self.session, cost, amount)
        if throttle_ms > self._throttle_ms:
            self._throttle_ms = throttle_ms
            self._connection.hold_back(throttle_ms)
        return self._throttle_ms

    def charge_time(self) -> int:
        """Charge for the time that the request has taken so far."""
        return self.charge(Cost.REQUEST_NS, self._connection.door.clock.now() - self.began_ns)

    def reply(self, response: Message) -> None:
        """Answer with a message. One that cannot be written costs the connection, not the node."""
        if self._throttle_ms:
            response = with_throttle(response, self._throttle_ms)
        try:
            frame = response_frame(self.api, self.version, self.correlation_id, response)
        except ProtocolError as error:
            log.error("kafka.answer_not_written", api=self.api.name, version=self.version, reason=str(error))
            self.hang_up()
            return
        if len(frame) > LARGE_BYTES:
            self._connection.end_turn()
        self.reply_parts([frame])

    def reply_parts(self, parts: list[Part]) -> None:
        """Answer with a whole frame, its size included, in pieces."""
        slot, self._slot = self._slot, None
        assert slot is not None, "an answer is given once"
        slot.fill(parts)
        self._connection.answered(self)

    def hold(self) -> None:
        """Read no more of this client until `let_go`: what it sends next would have to be kept, too."""
        self._connection.hold()

    def let_go(self) -> None:
        self._connection.let_go()

    def when_abandoned(self, cancel: Callable[[], None]) -> None:
        """Call `cancel` if the client leaves before there is an answer, so that nothing is kept for it."""
        if self._slot is not None:
            self._slot.abandoned = cancel

    def no_reply(self) -> None:
        """The client expects no answer (Produce with acks 0)."""
        self.reply_parts([])

    def hang_up(self) -> None:
        """Close the connection: for what a client cannot be told in an answer."""
        self._connection.close()


def with_throttle(response: Message, throttle_ms: int) -> Message:
    """The same answer, saying for how long the client is held back, if it has a place for that."""
    if not hasattr(response, "throttle_time_ms"):
        return response
    return replace(response, throttle_time_ms=throttle_ms)  # type: ignore[type-var]  # a struct at run time
