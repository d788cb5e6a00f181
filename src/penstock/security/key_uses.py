"""When API keys were last used on this node, about: kept in memory, and in whole minutes."""

from collections import OrderedDict

from penstock.core.model import Timestamp
from penstock.runtime import Clock

LAST_USE_MS = 60_000
REMEMBERED_MAX = 20_000
NEVER = Timestamp(-1)


class ApiKeyUses:
    """The keys that were used most lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: OrderedDict[str, Timestamp] = OrderedDict()

    def note(self, id_: str) -> None:
        now = self._clock.wall()
        self._last[id_] = Timestamp(now - now % LAST_USE_MS)
        self._last.move_to_end(id_)
        if len(self._last) > REMEMBERED_MAX:
            self._last.popitem(last=False)

    def last(self, id_: str) -> Timestamp:
        """The minute of the last use since the node started; NEVER if there was none."""
        return self._last.get(id_, NEVER)
