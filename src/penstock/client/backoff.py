"""How long to wait before the next try: longer each time, and never all at once."""

import os

JITTER = 0.2
_SCALE = 1 << 32


class Backoff:
    """Doubles from `first_ms` up to `max_ms`, each time a fifth more or less."""

    def __init__(self, first_ms: float = 100, max_ms: float = 1_000) -> None:
        self._first_ms = first_ms
        self._max_ms = max_ms
        self.tries = 0

    def next_seconds(self) -> float:
        """The wait before the next try."""
        # Doubling stops long before the number is too large to be one.
        wait_ms = min(self._max_ms, self._first_ms * 2.0 ** min(self.tries, 32))
        self.tries += 1
        chance = int.from_bytes(os.urandom(4), "big") / _SCALE
        return wait_ms * (1 + JITTER * (2 * chance - 1)) / 1_000
