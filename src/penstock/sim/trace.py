"""The record of a run: everything that was delivered to a node, and every fault.

Two runs are the same when their traces have the same hash. The last entries are kept
in full, for whoever has to find out what led to a failure.
"""

import hashlib
from collections import deque

from penstock.core.model import SECOND

_CHUNK = 4096
Entry = tuple[int, str, str, int | str]


class Trace:
    """Hashes entries as they come; memory does not grow with the run."""

    def __init__(self, kept: int = 2000) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._chunk: list[Entry] = []
        self._last: deque[Entry] = deque(maxlen=kept)

    def record(self, moment: int, who: str, what: str, detail: int | str) -> None:
        """Note that `what` happened to `who`; `detail` tells events of one kind apart."""
        chunk = self._chunk
        chunk.append((moment, who, what, detail))
        if len(chunk) >= _CHUNK:
            self._fold()

    def digest(self) -> str:
        """The hash of everything so far."""
        self._fold()
        return self._hash.hexdigest()

    def last(self) -> list[str]:
        """The last entries, oldest first, one line each."""
        self._fold()
        return [
            f"{moment / SECOND:14.9f} {who:>12} {what} {detail}" for moment, who, what, detail in self._last
        ]

    def _fold(self) -> None:
        if self._chunk:
            self._hash.update(repr(self._chunk).encode())
            self._last.extend(self._chunk)
            self._chunk.clear()
