"""Whose requests are served next: by the time that clients used, not by how often they ask.

A node has one loop. Whatever a client sends, on however many connections, the others must get their
turn within milliseconds. So the time of every request is counted for its client (an address and a
client id) and for its address; both counts halve every `PERIOD_NS`. When the requests of one turn of
the loop take longer than `TURN_NS`, or connections wait already, a readable socket is read or left
alone by what its client has used:

    little by the address          read at once, as long as the turn is not far too long
    little by the client           read at once in a turn that is not too long, else such clients take turns
    much by the client             waits for its turn; the client that used least comes first

                    ┌───────────── one turn of the loop ─────────────┐
    poll ── readable sockets of those who used little ── waiting connections, for `QUEUE_NS` ── poll …

A connection that waits is not read: its bytes stay in the kernel, and TCP slows it down. A connection
whose time is up while more of its requests are in memory waits in the same queue. Who is alone on a
node does not wait, for turns of up to `LONE_TURN_NS`.

Names cost their sender nothing, so little is kept for each: of a long one a hash, clients of an address
beyond `NAMES_MAX` share one count, and what was used is forgotten when it has become nothing. A connection
that calls itself something else takes along what it has used.

Slices of long work are charged to their clients as well (`ClientAccount`). Left out: other time that is spent
for a request after its handler has returned, such as that of reads for a long poll; what a client may make a
node do there is bounded elsewhere.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from penstock.core.model import MILLISECOND, Instant
from penstock.security.sessions import name_key

# What requests may take of one turn of the loop before it matters whose they are.
TURN_NS = 2 * MILLISECOND
# How long connections that wait are served per turn: a Produce of somebody else takes several turns.
QUEUE_NS = MILLISECOND
# The same for a client that is alone on the node.
LONE_TURN_NS = 10 * MILLISECOND
# How long a turn may become for addresses that used little.
LONG_TURN_NS = 4 * TURN_NS
# A round of the clients that used little should not take longer.
ROUND_NS = 16 * MILLISECOND
_PERIOD_SHIFT = 27
PERIOD_NS = 1 << _PERIOD_SHIFT
# Much: about a tenth of the time, of a client; a quarter of it, of an address.
CLIENT_NS = PERIOD_NS // 8
ADDRESS_NS = PERIOD_NS // 4
# Of so many turns of waiting connections, one is for clients that used much.
HEAVY_TURN = 4
# How many clients of an address, or of a principal, are told apart, and how many on a node.
NAMES_MAX = 1_000
USAGES_MAX = 20_000
# Less than this is nothing; with fewer usages than the second nobody looks for such ones.
FORGOTTEN_NS = MILLISECOND // 4
_FORGET_MIN = 256
_OTHERS = b""
# An address or principal, and a name there; None for all of an address.
UsageKey: TypeAlias = tuple[str | bytes, str | bytes | None]


class ClientUsage:
    """The loop time that requests of a client, or of an address, have used lately."""

    __slots__ = ("_period", "connections", "is_queued", "key", "tag_ns", "used_ns", "waiting")

    def __init__(self, now: Instant, key: UsageKey = ("", None)) -> None:
        self.key = key
        self.used_ns = 0
        self.connections = 0
        # Connections that wait for a turn of the client, and whether it has a place in the queue.
        self.waiting: deque[ScheduledConnection] = deque()
        self.is_queued = False
        # Where it stands in the order of clients that used much, in time used.
        self.tag_ns = 0
        self._period = now >> _PERIOD_SHIFT

    def recent_ns(self, now: Instant) -> int:
        """What was used in the present period, and less and less of what was before."""
        periods = (now >> _PERIOD_SHIFT) - self._period
        if periods > 0:
            self.used_ns >>= min(periods, 63)
            self._period += periods
        return self.used_ns


class ClientAccount:
    """A client and its address, who are charged for what is done for them later."""

    __slots__ = ("_address_usage", "_client_usage", "_scheduler", "address", "client")

    def __init__(self, scheduler: "ConnectionScheduler", client: ClientUsage, address: ClientUsage) -> None:
        self._scheduler = scheduler
        self._client_usage = client
        self._address_usage = address
        self.client = client.key
        self.address = address.key

    def charge(self, elapsed_ns: int) -> None:
        """So much time of the loop was spent for the client."""
        scheduler, usage = self._scheduler, self._client_usage
        scheduler.spent_ns += elapsed_ns
        usage.used_ns += elapsed_ns
        self._address_usage.used_ns += elapsed_ns
        if scheduler.last_client is not usage:
            scheduler.last_client = usage
            scheduler.switches += 1


class ScheduledConnection(Protocol):
    """What the scheduler needs of a connection."""

    client_usage: ClientUsage
    address_usage: ClientUsage

    def take_turn(self) -> None:
        """Serve what there is, in memory or in the socket, for as long as the scheduler's `quantum_ns`."""


class ConnectionScheduler:
    """The turns of a node's connections. `soon` calls back after the loop has looked at its sockets.

    Every request adds its time to `spent_ns`; while that is below `limit_ns`, nobody has to ask. Who has to
    ask reads little at a time.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        now: Callable[[], Instant],
        is_pressed: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_pressed`: whether so little memory is left that little should be read at a time."""
        self._is_pressed = is_pressed
        self._soon = soon
        self._now = now
        self.spent_ns = 0
        self.limit_ns = TURN_NS
        self.quantum_ns = TURN_NS
        # Whose request was served last, and how often that has changed in this period and the last one.
        self.last_client: ClientUsage | None = None
        self.switches = 0
        self._switches_before = 0
        self._period = now() >> _PERIOD_SHIFT
        self._usages: dict[UsageKey, ClientUsage] = {}
        # How many names of each address or principal are told apart.
        self._names: Counter[str | bytes] = Counter()
        self._forgot_in = self._period
        self._turn_set = False
        self._serving: ScheduledConnection | None = None
        self._light: deque[ClientUsage] = deque()
        self._heavy: list[tuple[int, int, ClientUsage]] = []
        self._sequence = 0
        self._turns = 0
        # Where the client stands that was served last of those who used much.
        self._virtual_ns = 0

    @property
    def waiting(self) -> int:
        """How many connections wait for their turn."""
        return sum(len(usage.waiting) for usage in self._usages.values())

    def usage_of(self, address: str, client_id: str | None = None) -> ClientUsage:
        """What a client has used, or all of an address; `release` it when the connection has ended."""
        key = name_key(address), None if client_id is None else name_key(client_id)
        usage = self._usages.get(key)
        if usage is None:
            usage = self._add(key)
        usage.connections += 1
        return usage

    def _add(self, key: UsageKey) -> ClientUsage:
        address, name = key
        if len(self._usages) >= _FORGET_MIN and self._forgot_in != self._now() >> _PERIOD_SHIFT:
            self.forget()
        if name is not None:
            if self._names[address] >= NAMES_MAX or len(self._usages) >= USAGES_MAX:
                key = address, _OTHERS
                if key in self._usages:
                    return self._usages[key]
            self._names[address] += 1
        usage = self._usages[key] = ClientUsage(self._now(), key)
        return usage

    def release(self, usage: ClientUsage) -> None:
        """A connection has ended; what it used counts on, for those that come after it."""
        usage.connections -= 1

    def rename(self, before: ClientUsage, address: str, client_id: str) -> ClientUsage:
        """Count a connection for another client; a new name does not make up for what was used."""
        now, usage = self._now(), self.usage_of(address, client_id)
        usage.used_ns = max(usage.recent_ns(now), before.recent_ns(now))
        usage.tag_ns = max(usage.tag_ns, before.tag_ns)
        self.release(before)
        if not before.connections:
            # Nobody is called that any more, and what was used counts under the new name.
            self._drop(before)
        return usage

    def forget(self) -> None:
        """Drop the usages of those who have no connection and used nothing lately."""
        now = self._now()
        self._forgot_in = now >> _PERIOD_SHIFT
        for usage in list(self._usages.values()):
            if not usage.connections and usage.recent_ns(now) < FORGOTTEN_NS:
                self._drop(usage)

    def _drop(self, usage: ClientUsage) -> None:
        address, name = usage.key
        del self._usages[usage.key]
        if name is not None:
            self._names[address] -= 1
            if not self._names[address]:
                del self._names[address]

    def press(self) -> None:
        """Memory is short: from now on everybody has to ask, and reads little."""
        self.limit_ns = -1

    def admits(self, connection: ScheduledConnection) -> bool:
        """Whether a readable connection is read now; to be asked when `spent_ns` is above `limit_ns`."""
        if connection is self._serving:
            return True
        if not self._turn_set:
            # These may be the requests of many short turns: from here on, it is one.
            self._turn_set = True
            self._soon(self._turn)
            return True
        now = self._now()
        if connection.address_usage.recent_ns(now) <= ADDRESS_NS and self.spent_ns <= LONG_TURN_NS:
            return True
        if connection.client_usage.recent_ns(now) <= CLIENT_NS:
            return self.spent_ns <= 2 * TURN_NS
        is_alone = not self._light and not self._heavy and self._is_lone(now)
        return is_alone and self.spent_ns <= LONE_TURN_NS

    def _is_lone(self, now: Instant) -> bool:
        """Whether all requests have come from one client lately."""
        period = now >> _PERIOD_SHIFT
        if period != self._period:
            self._switches_before = self.switches if period == self._period + 1 else 0
            self._period, self.switches = period, 0
        return self.switches + self._switches_before <= 1

    def enqueue(self, connection: ScheduledConnection) -> None:
        """Call the connection's `take_turn` when it is its turn."""
        self.limit_ns = -1
        usage = connection.client_usage
        usage.waiting.append(connection)
        if not usage.is_queued:
            self._queue(usage)
        if not self._turn_set:
            self._turn_set = True
            self._soon(self._turn)

    def _queue(self, usage: ClientUsage) -> None:
        usage.is_queued = True
        if usage.recent_ns(self._now()) <= CLIENT_NS:
            self._light.append(usage)
            return
        # Who comes back after a rest starts where the others are: nobody saves turns up.
        usage.tag_ns = max(usage.tag_ns, self._virtual_ns)
        self._sequence += 1
        heapq.heappush(self._heavy, (usage.tag_ns, self._sequence, usage))

    def _turn(self) -> None:
        """Serve connections that wait, for a while; the rest after the next look at the sockets."""
        now = self._now
        end_ns = now() + QUEUE_NS
        while self._light or self._heavy:
            self._turns += 1
            if self._light and (not self._heavy or self._turns % HEAVY_TURN):
                self.quantum_ns = min(QUEUE_NS, ROUND_NS // len(self._light))
                usage = self._light.popleft()
            else:
                self.quantum_ns = QUEUE_NS
                usage = heapq.heappop(self._heavy)[2]
                self._virtual_ns = usage.tag_ns
            self._serve(usage)
            if now() >= end_ns:
                break
        self._serving = None
        self.spent_ns = 0
        self.quantum_ns = TURN_NS
        if self._light or self._heavy:
            self._soon(self._turn)
        else:
            self._turn_set = False
            self.limit_ns = -1 if self._is_pressed() else TURN_NS

    def _serve(self, usage: ClientUsage) -> None:
        """Give one connection of a client its turn."""
        self._serving = connection = usage.waiting.popleft()
        spent_ns = self.spent_ns
        connection.take_turn()
        usage.tag_ns += self.spent_ns - spent_ns
        if connection.client_usage is not usage:
            # It has called itself something else meanwhile.
            connection.client_usage.tag_ns = max(connection.client_usage.tag_ns, usage.tag_ns)
        usage.is_queued = False
        if usage.waiting:
            self._queue(usage)
