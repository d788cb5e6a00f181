"""What clients make a node keep, bounded per node and per client; who holds the most gives way.

Entries (a fetch session, a fetch that waits) have a weight, in a unit of their owner. A client is an address:
connections are cheap. There is room while number and weight of all entries are within the node's limit and
the weight of the client's own within its part of it. Else somebody loses an entry, or the new one is refused:

    another client holds more than this one would     its oldest entry is evicted
    nobody does                                       the oldest of this client's own entries that is
                                                      heavier than the new one, or idle, is evicted
    there is none                                     the new entry is refused

So one that asks for little always finds room beside one that asks for much, also at the same address. What a
refusal or an eviction means is the owner's business: nothing that a client relies on may depend on it.
"""

from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

from penstock.core.values import dataclass

E = TypeVar("E")
# Of a client's own entries, that many of the oldest are looked at.
CANDIDATES_MAX = 64


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """How many entries a node keeps, and how heavy they may be together and of one client."""

    entries_max: int
    weight_max: int
    client_weight_max: int


def _never(_: object) -> bool:
    return False


class ClientShares(Generic[E]):
    """The entries of one kind. `evict` ends one that was removed here; `is_idle` says who may go first."""

    def __init__(
        self, limits: ShareLimits, evict: Callable[[E], None], is_idle: Callable[[E], bool] = _never
    ) -> None:
        self.limits = limits
        self._evict = evict
        self._is_idle = is_idle
        self._weight = 0
        self._count = 0
        self.evictions = 0
        self.refusals = 0
        # By client; the entries of each in the order of their last use, with their weights.
        self._entries: dict[str, dict[E, int]] = {}
        self._weights: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def weight(self) -> int:
        return self._weight

    def add(self, client: str, entry: E, weight: int) -> bool:
        """Return whether the entry is kept; others may have been evicted for it."""
        limits = self.limits
        own = self._weights.get(client, 0)
        if (
            self._count >= limits.entries_max
            or self._weight + weight > limits.weight_max
            or own + weight > limits.client_weight_max
        ) and not self._make_room(client, weight, weight, None):
            self.refusals += 1
            return False
        entries = self._entries.get(client)
        if entries is None:
            entries = self._entries[client] = {}
        entries[entry] = weight
        self._weights[client] = self._weights.get(client, 0) + weight
        self._weight += weight
        self._count += 1
        return True

    def touch(self, client: str, entry: E) -> None:
        """The entry was used: it is the youngest now."""
        entries = self._entries[client]
        if len(entries) > 1:
            entries[entry] = entries.pop(entry)

    def resize(self, client: str, entry: E, weight: int) -> bool:
        """Change the weight of an entry; if there is no room for it, the entry is removed."""
        more = weight - self._entries[client][entry]
        limits = self.limits
        if (
            more > 0
            and (
                self._weight + more > limits.weight_max
                or self._weights[client] + more > limits.client_weight_max
            )
            and not self._make_room(client, more, weight, entry)
        ):
            self.refusals += 1
            self.remove(client, entry)
            return False
        self._entries[client][entry] = weight
        self._weights[client] += more
        self._weight += more
        return True

    def remove(self, client: str, entry: E) -> None:
        """Forget an entry, if it is still there."""
        entries = self._entries.get(client)
        if entries is None:
            return
        weight = entries.pop(entry, None)
        if weight is None:
            return
        self._count -= 1
        self._weight -= weight
        if entries:
            self._weights[client] -= weight
        else:
            del self._entries[client], self._weights[client]

    def _make_room(self, client: str, more: int, weight: int, grown: E | None) -> bool:
        """Evict until `more` fits, for an entry that has `weight` then."""
        limits = self.limits
        if weight > limits.client_weight_max or weight > limits.weight_max or limits.entries_max < 1:
            return False
        new = 0 if grown is not None else 1
        while True:
            own = self._weights.get(client, 0) + more
            if self._weight + more > limits.weight_max:
                holder = max(self._weights, key=self._weights.__getitem__)
                gives_way = self._weights[holder] > own
            elif self._count + new > limits.entries_max:
                holder = max(self._entries, key=self._entry_count)
                gives_way = len(self._entries[holder]) > self._entry_count(client) + new
            elif own > limits.client_weight_max:
                holder, gives_way = client, False
            else:
                return True
            if holder != client and gives_way:
                victim = next(iter(self._entries[holder]))
            else:
                holder = client
                found = self._own_victim(client, weight, grown)
                if found is None:
                    return False
                victim = found
            self.remove(holder, victim)
            self.evictions += 1
            self._evict(victim)

    def _entry_count(self, client: str) -> int:
        return len(self._entries.get(client, ()))

    def _own_victim(self, client: str, weight: int, grown: E | None) -> E | None:
        entries = self._entries.get(client)
        if entries is None:
            return None
        for entry, other in islice(entries.items(), CANDIDATES_MAX):
            if entry is not grown and (other > weight or self._is_idle(entry)):
                return entry
        return None
