"""Pending delays in arrays: 32 bytes each, found by id and listed in the order of ids.

    _firsts   [ 0, 4_711, 90_210, … ]              the lowest id of each page, but the first
    _pages    [ page, page, page, … ]              up to 512 delays, in the order of ids
                ├── ids        q 8 bytes
                ├── times      q 8 bytes           when to publish, in milliseconds since 1970
                ├── offsets    q 8 bytes           where the record is in the log of `__delayed`
                ├── sizes      I 4 bytes           how long its key, value and headers are
                └── topics     I 4 bytes           a number for the name of its target

These are the leaves of a B-tree of two levels. An id is found by two binary searches in C; a delay is
inserted and removed by moving at most 512 numbers per array. A page that is full is cut in two, one that is
nearly empty is put together with its neighbour. Ids are random, so that pages fill evenly.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from penstock.core.model import Offset, Timestamp

PAGE_MAX = 512
_PAGE_MIN = PAGE_MAX // 4


class PendingDelay(NamedTuple):
    """A record that is to be published later, without the record."""

    id: int
    deliver_at: Timestamp
    offset: Offset
    size_bytes: int
    topic: str


class _Page:
    __slots__ = ("ids", "offsets", "sizes", "times", "topics")

    def __init__(self) -> None:
        self.ids: array[int] = array("q")
        self.times: array[int] = array("q")
        self.offsets: array[int] = array("q")
        self.sizes: array[int] = array("I")
        self.topics: array[int] = array("I")

    def columns(self) -> tuple["array[int]", ...]:
        return self.ids, self.times, self.offsets, self.sizes, self.topics


class _TopicNames:
    """A number for each topic that delays are for."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._counts: list[int] = []
        self._free: list[int] = []

    def take(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            if self._free:
                number = self._free.pop()
                self._names[number] = name
            else:
                number = len(self._names)
                self._names.append(name)
                self._counts.append(0)
            self._numbers[name] = number
        self._counts[number] += 1
        return number

    def release(self, number: int) -> None:
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self._names[number]]
            self._free.append(number)

    def name(self, number: int) -> str:
        return self._names[number]


class PendingDelays:
    """The pending delays of one partition of `__delayed`."""

    def __init__(self) -> None:
        self._pages = [_Page()]
        # Of all pages but the first, which takes any id below.
        self._firsts: list[int] = []
        self._topics = _TopicNames()
        self._count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, delay_id: int) -> bool:
        return self.due_of(delay_id) is not None

    def due_of(self, delay_id: int) -> int | None:
        """When to publish it; None if it is not pending."""
        page = self._pages[bisect_right(self._firsts, delay_id)]
        ids = page.ids
        at = bisect_left(ids, delay_id)
        return page.times[at] if at < len(ids) and ids[at] == delay_id else None

    def offset_of(self, delay_id: int) -> Offset | None:
        """Where its record is in the log; None if it is not pending."""
        page, at = self._find(delay_id)
        return None if at < 0 else Offset(page.offsets[at])

    def get(self, delay_id: int) -> PendingDelay | None:
        page, at = self._find(delay_id)
        return None if at < 0 else self._read(page, at)

    def put(self, delay_id: int, deliver_at: Timestamp, offset: Offset, size_bytes: int, topic: str) -> bool:
        """Add a delay, or replace what is known of it; False: it was pending already."""
        self.size_bytes += size_bytes
        number = self._topics.take(topic)
        index = bisect_right(self._firsts, delay_id)
        page = self._pages[index]
        ids = page.ids
        at = bisect_left(ids, delay_id)
        count = len(ids)
        if at < count and ids[at] == delay_id:
            self.size_bytes -= page.sizes[at]
            self._topics.release(page.topics[at])
            page.times[at], page.offsets[at] = deliver_at, offset
            page.sizes[at], page.topics[at] = size_bytes, number
            return False
        ids.insert(at, delay_id)
        page.times.insert(at, deliver_at)
        page.offsets.insert(at, offset)
        page.sizes.insert(at, size_bytes)
        page.topics.insert(at, number)
        self._count += 1
        if count >= PAGE_MAX:
            self._split(index)
        return True

    def remove(self, delay_id: int) -> bool:
        """Whether it was pending; it is not any more."""
        page = self._pages[bisect_right(self._firsts, delay_id)]
        ids = page.ids
        at = bisect_left(ids, delay_id)
        if at == len(ids) or ids[at] != delay_id:
            return False
        self._topics.release(page.topics.pop(at))
        self.size_bytes -= page.sizes.pop(at)
        del ids[at], page.times[at], page.offsets[at]
        self._count -= 1
        if len(ids) < _PAGE_MIN and self._firsts:
            self._join(bisect_right(self._firsts, delay_id))
        return True

    def after(self, delay_id: int) -> Iterator[PendingDelay]:
        """Those with higher ids, in their order; to be used before anything changes."""
        index = bisect_right(self._firsts, delay_id)
        start = bisect_right(self._pages[index].ids, delay_id)
        for page in islice(self._pages, index, None):
            for at in range(start, len(page.ids)):
                yield self._read(page, at)
            start = 0

    def _find(self, delay_id: int) -> tuple[_Page, int]:
        page = self._pages[bisect_right(self._firsts, delay_id)]
        at = bisect_left(page.ids, delay_id)
        is_found = at < len(page.ids) and page.ids[at] == delay_id
        return page, at if is_found else -1

    def _read(self, page: _Page, at: int) -> PendingDelay:
        return PendingDelay(
            page.ids[at],
            Timestamp(page.times[at]),
            Offset(page.offsets[at]),
            page.sizes[at],
            self._topics.name(page.topics[at]),
        )

    def _split(self, index: int) -> None:
        lower, upper = self._pages[index], _Page()
        middle = len(lower.ids) // 2
        for source, target in zip(lower.columns(), upper.columns(), strict=True):
            target.extend(source[middle:])
            del source[middle:]
        self._pages.insert(index + 1, upper)
        self._firsts.insert(index, upper.ids[0])

    def _join(self, index: int) -> None:
        """Put a page together with a neighbour, if both fit into one."""
        lower = max(0, index - 1)
        first, second = self._pages[lower], self._pages[lower + 1]
        if len(first.ids) + len(second.ids) > PAGE_MAX // 2:
            return
        for target, source in zip(first.columns(), second.columns(), strict=True):
            target.extend(source)
        del self._pages[lower + 1]
        del self._firsts[lower]
