"""How fast clients may have topics created by asking for them.

A topic costs a node directories, files and memory for as long as it exists, and a name costs a client a few
bytes: a request of 200 KB could ask for 20,000. A bucket of the node and one of the client's address hold
what may be created at once, and fill up at a rate; a client gets half of what the node may do.
"""

from penstock.core.model import SECOND, Instant
from penstock.core.values import dataclass

# Clients whose bucket is remembered; one that was not used for longest is full again.
CLIENTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class CreationLimits:
    """Topics per second, and how many may come at once."""

    per_second: int = 20
    burst: int = 200


class TokenBucket:
    """Holds up to `burst` tokens, and gets so many per second."""

    __slots__ = ("_burst", "_left", "_per_second", "_seen_at")

    def __init__(self, per_second: float, burst: float, now: Instant) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._seen_at = now

    def has_one(self, now: Instant) -> bool:
        gained = (now - self._seen_at) * self._per_second / SECOND
        self._left = min(self._burst, self._left + gained)
        self._seen_at = now
        return self._left >= 1

    def take(self) -> None:
        self._left -= 1


class CreationRate:
    """The buckets of a node and its clients."""

    def __init__(self, limits: CreationLimits, now: Instant) -> None:
        self._limits = limits
        self._node = TokenBucket(limits.per_second, limits.burst, now)
        self._clients: dict[str, TokenBucket] = {}
        self.refusals = 0

    def admit(self, client: str, now: Instant) -> bool:
        """Whether this client may have one more topic created now."""
        own = self._clients.pop(client, None)
        if own is None:
            if len(self._clients) >= CLIENTS_MAX:
                del self._clients[next(iter(self._clients))]
            own = TokenBucket(self._limits.per_second / 2, max(1, self._limits.burst / 2), now)
        self._clients[client] = own
        # Both fill up first: a client that is refused must not cost the others anything.
        if own.has_one(now) and self._node.has_one(now):
            own.take()
            self._node.take()
            return True
        self.refusals += 1
        return False
