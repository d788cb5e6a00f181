"""One link that is wanted: dialled, and dialled again whenever it is over."""

from collections.abc import Callable

from penstock.core.model import MILLISECOND, Instant, NodeId
from penstock.runtime import Address, Buffer, CloseReason, Link, LinkHandler, NodeIdentity, Runtime, Timer
from penstock.services.peering.channels import Channel, Line

REDIAL_MS = 50
REDIAL_MS_MAX = 500
# A link that ends sooner than this was no link: calling at once would be calling in circles.
LASTING_MS = 200
# An attempt that takes longer than this waits for packets that were lost.
STALLED_MS = 250
_FIRST_BYTE = {channel: bytes((channel,)) for channel in Channel}


class Dialling:
    """Keeps one line to one node."""

    def __init__(self, runtime: Runtime, node: NodeId, line: Line, handler: LinkHandler) -> None:
        self._runtime = runtime
        self._handler = handler
        self._timer: Timer | None = None
        self._since = Instant(0)
        self._failures = 0
        self._turned_away: dict[Channel, None] = {}
        self.node = node
        self.line = line
        self.address: Address | None = None
        self.link: Link | None = None
        self.identity: NodeIdentity | None = None

    def dial(self, address: Address, took: Callable[["Dialling", Link], None]) -> None:
        """Start an attempt; `took` hears of its link."""
        assert self.link is None
        self.call_off()
        self.address = address
        self._since = self._runtime.clock.now()
        self.link = self._runtime.transport.connect(address, self._handler)
        took(self, self.link)

    def call_off(self) -> None:
        """No further attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def send(self, channel: Channel, parts: tuple[Buffer, ...]) -> bool:
        link = self.link
        if self.identity is not None and link is not None and link.send(_FIRST_BYTE[channel], *parts):
            return True
        self._turned_away[channel] = None
        return False

    def opened(self, identity: NodeIdentity) -> None:
        self.identity = identity
        self._since = self._runtime.clock.now()

    def take_turned_away(self) -> tuple[Channel, ...]:
        """The channels on which a frame was turned away since this was asked last."""
        channels, self._turned_away = tuple(self._turned_away), {}
        return channels

    def closed(self, ending: CloseReason) -> tuple[bool, bool]:
        """The link is over; says whether it was open, and whether to dial again at once."""
        lasted_ns = self._runtime.clock.now() - self._since
        was_open = self.identity is not None
        self.link = self.identity = None
        if was_open:
            self._failures = 0
        return was_open, was_open and ending is CloseReason.ENDED and lasted_ns >= LASTING_MS * MILLISECOND

    def dial_later(self, redial: Callable[["Dialling"], None]) -> None:
        """Dial again after a pause, a longer one each time."""
        pause_ms = min(REDIAL_MS << min(self._failures, 8), REDIAL_MS_MAX)
        self._failures += 1
        # Jitter, so that two nodes that start together do not call each other in step for ever.
        jitter_ms = pause_ms * self._runtime.entropy.bytes(1)[0] // 512
        deadline = Instant(self._runtime.clock.now() + (pause_ms + jitter_ms) * MILLISECOND)
        self._timer = self._runtime.timers.at(deadline, lambda: redial(self))

    @property
    def is_waiting(self) -> bool:
        """Whether nothing happens before the next attempt."""
        return self._timer is not None

    @property
    def is_stalled(self) -> bool:
        """Whether an attempt has taken so long that a new one would be quicker."""
        stalled_ns = self._runtime.clock.now() - self._since
        return self.link is not None and self.identity is None and stalled_ns > STALLED_MS * MILLISECOND
