"""What a request names more than once."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

H = TypeVar("H", bound=Hashable)


def repeated(keys: Iterable[H]) -> frozenset[H]:
    """Those that occur more than once."""
    seen: dict[H, int] = {}
    for key in keys:
        seen[key] = seen.get(key, 0) + 1
    return frozenset(key for key, count in seen.items() if count > 1)
