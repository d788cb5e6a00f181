"""Failed logins slow down whoever makes them: an address, and a user that is guessed at.

The first failure of an address costs it a tenth of a second, each further one twice as much, up to ten
seconds; so do failures for one user, from wherever they come. It is the answer that waits, not the loop.
A success forgives the address, not the user: guessing on from elsewhere stays slow. After a quiet while
everything is forgotten.
"""

from collections import OrderedDict

from penstock.core.model import SECOND, Instant

FIRST_DELAY_MS = 100
DELAY_MS_MAX = 10_000
FORGOTTEN_AFTER_NS = 300 * SECOND
REMEMBERED_MAX = 20_000


class LoginLimits:
    """Who has failed how often lately."""

    def __init__(self) -> None:
        # Failures, and when the last one was; the oldest first.
        self._failures: OrderedDict[tuple[str, str], tuple[int, Instant]] = OrderedDict()

    def failed(self, host: str, user: str, now: Instant) -> int:
        """Count a failed login; returns after how many milliseconds it is to be answered."""
        counts = [self._count(("host", host), now)]
        if user:
            counts.append(self._count(("user", user), now))
        return min(DELAY_MS_MAX, FIRST_DELAY_MS << min(max(counts) - 1, 20))

    def succeeded(self, host: str) -> None:
        """Forgive an address."""
        self._failures.pop(("host", host), None)

    def _count(self, key: tuple[str, str], now: Instant) -> int:
        count, last = self._failures.pop(key, (0, now))
        if now - last > FORGOTTEN_AFTER_NS:
            count = 0
        self._failures[key] = count + 1, now
        if len(self._failures) > REMEMBERED_MAX:
            self._failures.popitem(last=False)
        return count + 1
