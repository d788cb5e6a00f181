"""Long requests in slices: a millisecond or two in each turn of the loop, whoever asked for them.

A request for a hundred thousand partitions is legal, and takes a second. It is served in steps: its
handler is a generator that yields after every row. A slice is as many steps as fit into `SLICE_NS`, and no
more than `SLICE_STEPS_MAX`. Slices are part of the long work of the node (`runtime.sliced_work`): all of it
together has a few milliseconds of each turn, clients take turns, and each is charged what it uses.

    turns of the loop   │ sockets, small requests │ slice of A │ sockets … │ slice of B │ sockets … │
    admitted            A B C D    a slice each, in turn
    waiting             E F G …    not decoded: their frames are all that they hold

What a large request becomes takes several times the bytes of its frame. It is decoded when there is room for
it, and keeps its room until it has a response, or waits for other clients (what it keeps then is bounded
elsewhere). An address may use half of the room, and large frames three quarters of that, so that those of a
few kilobytes do not wait behind them. Nothing that has room waits for more of it: so all of it comes back.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Protocol

from penstock.core.model import MILLISECOND, Instant
from penstock.runtime.fair_queue import Account, FairQueue
from penstock.runtime.sliced_work import SlicedWork, Slices

SLICE_NS: Final = MILLISECOND
SLICE_STEPS_MAX: Final = 50
# Frames of requests that are decoded and have no response yet, of all clients and of one address.
ROOM_BYTES: Final = 32 << 20
ADDRESS_BYTES: Final = ROOM_BYTES // 2
# Larger ones may use three quarters of either.
SMALL_BYTES: Final = 128 << 10
# How many are admitted in one turn of the loop.
ADMITTED_PER_TURN: Final = 32


class Room:
    """The room of one request. It is given back once, at the latest when nothing of the request is left."""

    __slots__ = ("_account", "_size", "_slices")

    def __init__(self, slices: "SliceScheduler", account: Account, size: int) -> None:
        self._slices = slices
        self._account = account
        self._size = size

    def give_back(self) -> None:
        size, self._size = self._size, 0
        if size:
            self._slices.give_back(self._account, size)

    def __del__(self) -> None:
        self.give_back()


class SlicedRequest(Protocol):
    """A request that takes several slices."""

    def advance(self) -> bool:
        """Do one slice of it; returns whether that was the last one."""

    def admitted(self, room: Room) -> None:
        """There is room for it: its slices come next."""


class _WaitingRequests:
    """Requests that wait for room: addresses in turn, and of each whoever has had least."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[Hashable, FairQueue[SlicedRequest, Account]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_address)

    def add(self, account: Account, work: SlicedRequest) -> None:
        queue = self._by_address.get(account.address)
        if queue is None:
            queue = self._by_address[account.address] = FairQueue()
        queue.push(account, work)

    def remove(self, account: Account, work: SlicedRequest) -> None:
        queue = self._by_address.get(account.address)
        if queue is not None:
            queue.remove(account, work)
            if not queue:
                del self._by_address[account.address]

    @property
    def first(self) -> tuple[Hashable, SlicedRequest]:
        address, queue = next(iter(self._by_address.items()))
        return address, queue.first

    def skip(self) -> None:
        """The next address is first."""
        self._by_address.move_to_end(next(iter(self._by_address)))

    def take(self, size: int) -> tuple[SlicedRequest, Account]:
        """Take out the first one, which costs so many bytes."""
        address, queue = next(iter(self._by_address.items()))
        found = queue.pop()
        queue.settle(size)
        if queue:
            self._by_address.move_to_end(address)
        else:
            del self._by_address[address]
        return found

    def __len__(self) -> int:
        """How many addresses wait."""
        return len(self._by_address)


class SliceScheduler:
    """The long requests of a node."""

    def __init__(
        self,
        now: Callable[[], Instant],
        soon: Callable[[Callable[[], None]], object],
        work: SlicedWork | None = None,
    ) -> None:
        self._now = now
        # Its length is what waits: one that has nothing to do is no other one.
        self._work = SlicedWork(now, soon) if work is None else work
        self._soon = soon
        self._admit_set = False
        self._held_bytes = 0
        self._held_by: dict[Hashable, int] = {}
        # Requests that wait for room: small ones do not wait behind large ones.
        self._small = _WaitingRequests()
        self._large = _WaitingRequests()
        # The bytes of their frames.
        self._sizes: dict[SlicedRequest, int] = {}

    @property
    def is_idle(self) -> bool:
        """Whether a request would have a slice at once."""
        return not self._work

    @property
    def waiting(self) -> int:
        """How many requests wait for room."""
        return len(self._sizes)

    @property
    def held_bytes(self) -> int:
        """The frames of requests that are decoded."""
        return self._held_bytes

    def add(self, work: SlicedRequest, account: Account, frame_bytes: int = 0) -> None:
        """Do the work, beginning with the next turn of the loop or when there is room for it."""
        if not frame_bytes:
            self._work.run(_slices(work), account)
            return
        room = self.claim(account, frame_bytes)
        if room is not None:
            self._start(work, account, room)
            return
        self._sizes[work] = frame_bytes
        self._line(frame_bytes).add(account, work)
        self._admit_soon()

    def _line(self, frame_bytes: int) -> _WaitingRequests:
        return self._small if frame_bytes <= SMALL_BYTES else self._large

    def remove(self, work: SlicedRequest, account: Account) -> None:
        """Its client is gone: it needs no room any more."""
        size = self._sizes.pop(work, 0)
        if size:
            self._line(size).remove(account, work)

    def claim(self, account: Account, frame_bytes: int) -> Room | None:
        """Room for a request, if others have left some and nobody waits for it."""
        if self._line(frame_bytes) or not (
            self._fits(frame_bytes) and self._may_have(account.address, frame_bytes)
        ):
            return None
        return self._taken(account, frame_bytes)

    def _taken(self, account: Account, size: int) -> Room:
        self._held_bytes += size
        self._held_by[account.address] = self._held_by.get(account.address, 0) + size
        return Room(self, account, size)

    def _fits(self, size: int) -> bool:
        """Whether there is room; for one that is larger than all of it, there is if it is the only one."""
        held = self._held_bytes
        return not held or held + size <= _part(ROOM_BYTES, size)

    def _may_have(self, address: Hashable, size: int) -> bool:
        held = self._held_by.get(address, 0)
        return not held or held + size <= _part(ADDRESS_BYTES, size)

    def give_back(self, account: Account, size: int) -> None:
        """A request needs its room no more."""
        self._held_bytes -= size
        left = self._held_by[account.address] = self._held_by[account.address] - size
        assert left >= 0, "more room was given back than claimed"
        if not left:
            del self._held_by[account.address]
        self._admit_soon()

    def _admit_soon(self) -> None:
        if self._sizes and not self._admit_set:
            self._admit_set = True
            self._soon(self._admit)

    def _admit(self) -> None:
        self._admit_set = False
        left = ADMITTED_PER_TURN
        for line in (self._small, self._large):
            skipped = 0
            while line and skipped < len(line):
                address, work = line.first
                size = self._sizes[work]
                if not self._fits(size):
                    # Nobody overtakes it: it would wait for ever for what smaller ones take.
                    break
                if not self._may_have(address, size):
                    line.skip()
                    skipped += 1
                    continue
                if not left:
                    self._admit_soon()
                    return
                left -= 1
                work, account = line.take(size)
                del self._sizes[work]
                self._start(work, account, self._taken(account, size))

    def _start(self, work: SlicedRequest, account: Account, room: Room) -> None:
        work.admitted(room)
        self._work.run(_slices(work), account)

    def advance(self, steps: Iterator[None]) -> bool:
        """Take as many steps as one slice has; returns whether there are no more."""
        now, left = self._now, SLICE_STEPS_MAX
        end_ns = now() + SLICE_NS
        for _ in steps:
            left -= 1
            if not left or now() >= end_ns:
                return False
        return True


def _part(room: int, size: int) -> int:
    """What requests of this size may use of the room."""
    return room if size <= SMALL_BYTES else room * 3 // 4


def _slices(work: SlicedRequest) -> Slices:
    while not work.advance():
        yield
