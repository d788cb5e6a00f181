"""Which files the helper holds descriptors of, under which numbers."""

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable

from penstock.runtime.port import SyncTarget


class KeptFiles:
    """Numbers for files; the helper is told to drop those of files that are gone or unused.

    A descriptor that the helper holds keeps a removed file's space on the disk, so it must
    not outlive the file object (`tell_gone` is called from any thread, and `drop_gone` is to
    be called then); and descriptors are limited, so the least recently synced
    file gives up its number when there are `kept_max`.
    """

    def __init__(self, kept_max: int, drop: Callable[[int], None], tell_gone: Callable[[], None]) -> None:
        self._kept_max = kept_max
        self._drop = drop
        self._tell_gone = tell_gone
        self._given = 0
        # Keyed by reference, which compares by the file it refers to while that lives, and
        # by itself afterwards: a new file at an old address is another key.
        self._numbers: OrderedDict[weakref.ref[SyncTarget], int] = OrderedDict()
        self._gone: deque[weakref.ref[SyncTarget]] = deque()

    def number(self, file: SyncTarget) -> tuple[int, bool]:
        """The file's number, and whether the helper has yet to be given its descriptor."""
        key = weakref.ref(file, self._file_gone)
        number = self._numbers.get(key)
        if number is not None:
            self._numbers.move_to_end(key)
            return number, False
        if len(self._numbers) >= self._kept_max:
            _, oldest = self._numbers.popitem(last=False)
            self._drop(oldest)
        self._given = (self._given + 1) & 0xFFFFFFFF
        self._numbers[key] = self._given
        return self._given, True

    def drop_gone(self) -> None:
        """Give up the numbers of files that are gone."""
        while self._gone:
            number = self._numbers.pop(self._gone.popleft(), None)
            if number is not None:
                self._drop(number)

    def _file_gone(self, key: "weakref.ref[SyncTarget]") -> None:
        # The garbage collector may run this on any thread: leave the rest to the loop's.
        self._gone.append(key)
        self._tell_gone()
