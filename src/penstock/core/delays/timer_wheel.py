"""A hierarchical timer wheel: very many timers, each an id and a time in milliseconds.

    level 0    the next 256 ms, a slot for each            ▲ a slot whose time has come is spread
    level 1    the next 65 s, in slots of 256 ms           │ over the levels below
    level 2    the next 4.6 h, in slots of 65 s            │
    …          any time that fits 64 bits

A timer stands on the level of the highest byte in which its time differs from the wheel's, in the slot that
this byte says. So the first slot of the lowest level that has one is what comes next, however far that is,
and a timer moves down once per level at most.

Spreading a slot of a million timers takes a second. It is done in portions, and begins ahead of time: the
wheel runs `ahead_ms` before the clock, and what it has reached waits (`_near`), millisecond by millisecond,
until it is due. Nothing is due before its time, whatever the clock does: one that goes back is waited for.

A timer takes 8 bytes in a slot. Its time is kept by the owner, who has a table of them anyway. A cancelled
timer leaves its 8 bytes behind until its slot comes up, or until there are many of them: then they are swept,
a few portions with every further cancellation.
"""

import heapq
from array import array
from collections.abc import Callable, Sequence

_BITS = 8
_SLOT = (1 << _BITS) - 1
_LEVELS = 8
# Ids are kept in portions of this size, each of which is moved or swept in one step.
_PORTION = 1_024
# A portion is swept for so many cancellations of one call.
_SWEEP = 256
_Slot = list["array[int]"]


class TimerWheel:
    """Timers by id, for one clock that shows milliseconds: monotonic or not, but always the same.

    `dues_of` returns the times of timers; None for one that is not set any more.
    """

    __slots__ = (
        "_ahead_ms",
        "_count",
        "_dues_of",
        "_levels",
        "_moving",
        "_near",
        "_near_count",
        "_near_max",
        "_near_times",
        "_stale",
        "_sweep",
        "_time",
    )

    def __init__(
        self,
        now: int,
        dues_of: Callable[[Sequence[int]], Sequence[int | None]],
        ahead_ms: int = 2_000,
        near_max: int = 50_000,
    ) -> None:
        assert now >= 0
        self._dues_of = dues_of
        # Timers that are set.
        self._count = 0
        # All timers up to this time are in `_near`, or in `_moving` for a moment.
        self._time = now
        self._ahead_ms = ahead_ms
        self._near_max = near_max
        self._levels: list[dict[int, _Slot]] = [{} for _ in range(_LEVELS)]
        self._moving: _Slot = []
        # By time, which are in a heap; and how many timers these are.
        self._near: dict[int, list[int]] = {}
        self._near_times: list[int] = []
        self._near_count = 0
        # Cancelled timers that still take place, about; and the portions that are left to sweep.
        self._stale = 0
        self._sweep: list[array[int]] = []

    def __len__(self) -> int:
        return self._count

    def add(self, ids: Sequence[int], dues: Sequence[int]) -> None:
        """Set timers, which are in the owner's table. An id that is used again may come up twice."""
        self._count += len(ids)
        self._insert(ids, dues)

    def cancelled(self, count: int) -> None:
        """So many timers that were set are not in the owner's table any more."""
        self._count -= count
        self._stale += count
        if self._sweep:
            for _ in range(min(len(self._sweep), 1 + count // _SWEEP)):
                self._sweep_portion(self._sweep.pop())
        elif self._stale > self._count + 16 * _PORTION:
            self._sweep = [
                portion for slots in self._levels for slot in slots.values() for portion in slot if portion
            ]

    def pop_due(self, now: int, timers_max: int = 1_000) -> list[int]:
        """Timers that are due, the earliest first; call again while `next_due` is not later than `now`."""
        self.advance(now, timers_max)
        found: list[int] = []
        while len(found) < timers_max and self.has_due(now):
            ids = self._pop_near(now, timers_max - len(found))
            for timer_id, due in zip(ids, self._dues_of(ids), strict=True):
                if due is None or due > now:
                    # Cancelled. If the id is used again, for a later time, that one has its own place.
                    self._stale -= 1
                else:
                    found.append(timer_id)
        self._count -= len(found)
        return found

    def _pop_near(self, now: int, timers_max: int) -> list[int]:
        times = self._near_times
        ids: list[int] = []
        while times and times[0] <= now and len(ids) < timers_max:
            here = self._near[times[0]]
            room = timers_max - len(ids)
            ids += here[:room]
            if len(here) > room:
                self._near[times[0]] = here[room:]
            else:
                del self._near[heapq.heappop(times)]
        self._near_count -= len(ids)
        return ids

    def has_due(self, now: int) -> bool:
        """Whether `pop_due` may find something, as far as the wheel has advanced."""
        return bool(self._near_times) and self._near_times[0] <= now

    def first_near(self) -> int | None:
        """The earliest time among those that the wheel has reached; its timers may be cancelled."""
        return self._near_times[0] if self._near_times else None

    def next_due(self) -> int | None:
        """When to call `pop_due`; earlier does no harm, and it may find nothing then."""
        earliest = self._near_times[0] if self._near_times else None
        if self._near_count < self._near_max:
            upcoming = self._time if self._moving else self._next_slot()
            if upcoming is not None:
                begin = max(0, upcoming - self._ahead_ms)
                earliest = begin if earliest is None else min(earliest, begin)
        return earliest

    def advance(self, now: int, timers_max: int = 1_000) -> None:
        """Run ahead of the clock, as far as so many timers and the room for them allow."""
        until, moves = now + self._ahead_ms, max(timers_max, _PORTION)
        while moves > 0 and self._near_count < self._near_max:
            if self._moving:
                moves -= self._spread(self._moving.pop())
                continue
            start = self._next_slot()
            if start is None or start > until:
                # Timers keep their slots: before the next one, no byte changes that says where they are.
                self._time = max(self._time, until if start is None else min(until, start - 1))
                return
            self._time = start
            slots = next(slots for slots in self._levels if slots)
            self._moving = slots.pop(min(slots))

    def _insert(self, ids: Sequence[int], dues: Sequence[int]) -> None:
        """Put timers where they belong; neighbours often have the same time."""
        time, near, is_near = self._time, 0, False
        last: int | None = None
        place: list[int] | array[int] = []
        for timer_id, due in zip(ids, dues, strict=True):
            if due != last or len(place) >= _PORTION:
                last, is_near = due, due <= time
                place = self._near_at(due) if is_near else self._portion_at(due)
            place.append(timer_id)
            near += is_near
        self._near_count += near

    def _near_at(self, due: int) -> list[int]:
        found = self._near.get(due)
        if found is None:
            found = self._near[due] = []
            heapq.heappush(self._near_times, due)
        return found

    def _portion_at(self, due: int) -> "array[int]":
        level = ((due ^ self._time).bit_length() - 1) // _BITS
        portions = self._levels[level].setdefault((due >> level * _BITS) & _SLOT, [])
        if not portions or len(portions[-1]) >= _PORTION:
            portions.append(array("q"))
        return portions[-1]

    def _next_slot(self) -> int | None:
        """The time at which the next slot that is not empty begins."""
        for level, slots in enumerate(self._levels):
            if slots:
                above = (level + 1) * _BITS
                return (self._time >> above << above) | (min(slots) << level * _BITS)
        return None

    def _spread(self, portion: "array[int]") -> int:
        dues = self._dues_of(portion)
        kept = [(timer_id, due) for timer_id, due in zip(portion, dues, strict=True) if due is not None]
        self._stale -= len(portion) - len(kept)
        self._insert([timer_id for timer_id, _ in kept], [due for _, due in kept])
        return len(portion)

    def _sweep_portion(self, portion: "array[int]") -> None:
        dues = self._dues_of(portion)
        kept = array("q", [timer_id for timer_id, due in zip(portion, dues, strict=True) if due is not None])
        self._stale -= len(portion) - len(kept)
        portion[:] = kept
