"""What waits for clients, in an order that is fair between them: addresses take turns, and clients of each.

Everybody has had so much (time, bytes), and who has had least comes first. Who comes later begins where the
others are, so nobody saves up, and nobody waits for longer than it takes to serve the others as much.

    address A  had 7    client a  had 3    [x] [x]
                        client b  had 4    [x]
    address B  had 9    client c  had 9    [x] [x] [x]         next: a's first, then b's first or c's
"""

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

# With fewer shares nobody looks for those that can be forgotten.
_FORGET_MIN = 64


class Account(Protocol):
    """A client, who uses what others want as well."""

    @property
    def client(self) -> Hashable: ...

    @property
    def address(self) -> Hashable: ...

    def charge(self, elapsed_ns: int) -> None:
        """So much time of the loop was spent for it."""


A = TypeVar("A", bound=Account)
T = TypeVar("T")


class _Share:
    """What somebody has had, and whether it has a place in its line or is being served."""

    __slots__ = ("had", "is_queued", "size")

    def __init__(self) -> None:
        self.had = 0
        self.size = 0
        self.is_queued = False


S = TypeVar("S", bound=_Share)


class _Line(Generic[S]):
    """Shares in the order of what they have had."""

    __slots__ = ("_heap", "_now", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, S]] = []
        self._sequence = 0
        # What the one who was served last had had by then.
        self._now = 0

    def enter(self, share: S) -> None:
        if not share.is_queued and share.size:
            share.is_queued = True
            share.had = max(share.had, self._now)
            self._sequence += 1
            heapq.heappush(self._heap, (share.had, self._sequence, share))

    def first(self) -> S:
        while not self._heap[0][2].size:
            heapq.heappop(self._heap)[2].is_queued = False
        return self._heap[0][2]

    def serve(self) -> S:
        """The first one; it counts as queued until it is `served`."""
        share = self.first()
        heapq.heappop(self._heap)
        self._now = share.had
        return share

    def served(self, share: S, amount: int) -> None:
        share.had += amount
        share.is_queued = False
        self.enter(share)


class _Client(_Share, Generic[T, A]):
    __slots__ = ("items",)

    def __init__(self) -> None:
        super().__init__()
        self.items: OrderedDict[T, A] = OrderedDict()


class _Address(_Share, Generic[T, A]):
    __slots__ = ("clients", "line")

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[Hashable, _Client[T, A]] = {}
        self.line: _Line[_Client[T, A]] = _Line()


class FairQueue(Generic[T, A]):
    """Items in the order in which they are served. After each `pop` comes `settle`."""

    def __init__(self) -> None:
        self._size = 0
        self._serving: tuple[_Address[T, A], _Client[T, A]] | None = None
        self._forget_all()

    def _forget_all(self) -> None:
        self._addresses: dict[Hashable, _Address[T, A]] = {}
        self._line: _Line[_Address[T, A]] = _Line()

    def __len__(self) -> int:
        return self._size

    def push(self, account: A, item: T) -> None:
        """Add an item behind the others of its client."""
        address = self._addresses.get(account.address)
        if address is None:
            _forget_some(self._addresses)
            address = self._addresses[account.address] = _Address()
        client = address.clients.get(account.client)
        if client is None:
            _forget_some(address.clients)
            client = address.clients[account.client] = _Client()
        client.items[item] = account
        self._count(address, client, 1)
        address.line.enter(client)
        self._line.enter(address)

    def remove(self, account: A, item: T) -> None:
        """Nobody waits for it any more."""
        address = self._addresses.get(account.address)
        client = None if address is None else address.clients.get(account.client)
        if address is not None and client is not None and client.items.pop(item, None) is not None:
            self._count(address, client, -1)

    @property
    def first(self) -> T:
        """The item that `pop` would return."""
        return next(iter(self._line.first().line.first().items))

    def pop(self) -> tuple[T, A]:
        """Take out the first item."""
        address = self._line.serve()
        client = address.line.serve()
        found = client.items.popitem(last=False)
        self._count(address, client, -1)
        self._serving = address, client
        return found

    def settle(self, amount: int) -> None:
        """Count what the item that was taken out has cost."""
        assert self._serving is not None, "an item is taken out first"
        (address, client), self._serving = self._serving, None
        address.line.served(client, amount)
        self._line.served(address, amount)
        if not self._size:
            # There is nobody to whom anybody could owe anything.
            self._forget_all()

    def _count(self, address: _Address[T, A], client: _Client[T, A], change: int) -> None:
        client.size += change
        address.size += change
        self._size += change


def _forget_some(shares: dict[Hashable, S]) -> None:
    """Forget those who wait for nothing, now and then: as many as have been added since the last time."""
    count = len(shares)
    if count >= _FORGET_MIN and not count & (count - 1):
        for key in [key for key, share in shares.items() if not share.is_queued]:
            del shares[key]
