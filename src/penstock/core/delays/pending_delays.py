"""Pending delays in arrays: 32 bytes each, found by id and listed in the order of ids.

    _firsts   [ 0, 4_711, 90_210, … ]              the lowest id of each page, but the first
    _pages    [ page, page, page, … ]              up to 512 delays, in the order of ids
                ├── ids        q 8 bytes
                ├── times      q 8 bytes           when to publish, in milliseconds since 1970
                ├── offsets    q 8 bytes           where the record is in the log of `__delayed`
                ├── sizes      I 4 bytes           how long its key, value and headers are
                └── topics     I 4 bytes           a number for the name of its target

These are the leaves of a B-tree of two levels. An id is found by two binary searches in C. A page that is
full is cut in two, one that is nearly empty is put together with its neighbour.

Ids that were chosen together stand together (see `delay_ids`): they are inserted and removed as one slice of
each array. Ids that stand anywhere are inserted one by one, and all the rest is the same for them.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from penstock.core.delays.facts import NO_OFFSET, DelayedRecords
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

    def take(self, name: str, count: int) -> int:
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
        self._counts[number] += count
        return number

    def release(self, number: int, count: int) -> None:
        self._counts[number] -= count
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
        return self._find(delay_id)[1] >= 0

    def offset_of(self, delay_id: int) -> Offset | None:
        """Where its record is in the log; None if it is not pending."""
        page, at = self._find(delay_id)
        return None if at < 0 else Offset(page.offsets[at])

    def get(self, delay_id: int) -> PendingDelay | None:
        page, at = self._find(delay_id)
        return None if at < 0 else self._read(page, at)

    def dues_of(self, ids: Sequence[int]) -> list[int | None]:
        """When to publish each; None for one that is not pending."""
        found: list[int | None] = []
        for page, start, end in self._runs(ids):
            if page is None:
                found.append(None)
            else:
                found += page.times[start:end]
        return found

    def places_of(self, ids: Sequence[int]) -> tuple[list[Offset], list[int]]:
        """Where the record of each is in the log, and its size; NO_OFFSET for one that is not pending."""
        offsets: list[Any] = []
        sizes: list[int] = []
        for page, start, end in self._runs(ids):
            if page is None:
                offsets.append(NO_OFFSET)
                sizes.append(0)
            else:
                offsets += page.offsets[start:end]
                sizes += page.sizes[start:end]
        return offsets, sizes

    def has_any_of(self, ids: Sequence[int]) -> bool:
        return self._gap(ids) is None and any(page is not None for page, _, _ in self._runs(ids))

    def put(self, records: DelayedRecords, offset: Offset) -> tuple[Sequence[int], Sequence[int]]:
        """Add delays, or replace what is known of them; ids and times of those that were not pending."""
        topic, ids, times, _, _, _ = records
        sizes = records.sizes
        self.size_bytes += sum(sizes)
        number = self._topics.take(topic, len(ids))
        gap = self._gap(ids)
        if gap is not None:
            page, at = self._pages[gap[0]], gap[1]
            count = len(ids)
            page.ids[at:at] = array("q", ids)
            page.times[at:at] = array("q", times)
            page.offsets[at:at] = array("q", [offset]) * count
            page.sizes[at:at] = array("I", sizes)
            page.topics[at:at] = array("I", [number]) * count
            self._count += count
            if len(page.ids) > PAGE_MAX:
                self._split(gap[0])
            return ids, times
        new = [
            at
            for at, (delay_id, deliver_at, size) in enumerate(zip(ids, times, sizes, strict=True))
            if self._put(delay_id, deliver_at, offset, size, number)
        ]
        return [ids[at] for at in new], [times[at] for at in new]

    def remove(self, ids: Sequence[int]) -> list[int]:
        """Which of them were pending; they are not any more."""
        removed: list[int] = []
        for page, start, end in self._runs(sorted(ids)):
            if page is not None:
                removed += page.ids[start:end]
                self._cut(page, start, end)
        return removed

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

    def _runs(self, ids: Sequence[int]) -> Iterator[tuple[_Page | None, int, int]]:
        """Those that stand one behind the other, in their page; None for one that is not pending.

        What was returned before may be removed meanwhile.
        """
        pages, firsts = self._pages, self._firsts
        at, count = 0, len(ids)
        while at < count:
            page = pages[bisect_right(firsts, ids[at])]
            page_ids = page.ids
            start = end = bisect_left(page_ids, ids[at])
            size = len(page_ids)
            while at < count and end < size and page_ids[end] == ids[at]:
                end += 1
                at += 1
            if end > start:
                yield page, start, end
            else:
                at += 1
                yield None, 0, 0

    def _gap(self, ids: Sequence[int]) -> tuple[int, int] | None:
        """The page, and the place in it, where all of them fit between two neighbours, if they rise."""
        first, last = ids[0], ids[-1]
        index = bisect_right(self._firsts, first)
        page_ids = self._pages[index].ids
        at = bisect_left(page_ids, first)
        if at < len(page_ids):
            is_free = last < page_ids[at]
        else:
            is_free = index == len(self._firsts) or last < self._firsts[index]
        if not is_free or list(ids) != sorted(set(ids)):
            return None
        return index, at

    def _put(self, delay_id: int, deliver_at: int, offset: Offset, size_bytes: int, topic: int) -> bool:
        """Add one that counts already; False: it was pending."""
        index = bisect_right(self._firsts, delay_id)
        page = self._pages[index]
        ids = page.ids
        at = bisect_left(ids, delay_id)
        count = len(ids)
        if at < count and ids[at] == delay_id:
            self.size_bytes -= page.sizes[at]
            self._topics.release(page.topics[at], 1)
            page.times[at], page.offsets[at] = deliver_at, offset
            page.sizes[at], page.topics[at] = size_bytes, topic
            return False
        ids.insert(at, delay_id)
        page.times.insert(at, deliver_at)
        page.offsets.insert(at, offset)
        page.sizes.insert(at, size_bytes)
        page.topics.insert(at, topic)
        self._count += 1
        if count >= PAGE_MAX:
            self._split(index)
        return True

    def _cut(self, page: _Page, start: int, end: int) -> None:
        first = page.ids[start]
        topics = page.topics[start:end]
        count = end - start
        if topics.count(topics[0]) == count:
            self._topics.release(topics[0], count)
        else:
            for number in topics:
                self._topics.release(number, 1)
        self.size_bytes -= sum(page.sizes[start:end])
        for column in page.columns():
            del column[start:end]
        self._count -= count
        if len(page.ids) < _PAGE_MIN and self._firsts:
            self._join(bisect_right(self._firsts, first))

    def _read(self, page: _Page, at: int) -> PendingDelay:
        return PendingDelay(
            page.ids[at],
            Timestamp(page.times[at]),
            Offset(page.offsets[at]),
            page.sizes[at],
            self._topics.name(page.topics[at]),
        )

    def _split(self, index: int) -> None:
        """Cut a page that is too full into several that are not."""
        lower = self._pages[index]
        count = len(lower.ids)
        parts = -(-count // (PAGE_MAX * 3 // 4))
        bounds = [count * part // parts for part in range(1, parts)]
        uppers = [_Page() for _ in bounds]
        for upper, start, end in zip(uppers, bounds, [*bounds[1:], count], strict=True):
            for source, target in zip(lower.columns(), upper.columns(), strict=True):
                target.extend(source[start:end])
        for source in lower.columns():
            del source[bounds[0] :]
        self._pages[index + 1 : index + 1] = uppers
        self._firsts[index:index] = [upper.ids[0] for upper in uppers]

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
