"""How much memory something keeps."""

import gc
import tracemalloc
from collections.abc import Callable


def kept_bytes(act: Callable[[], object]) -> int:
    """What is there when `act` has returned, and was not before. Its result counts as well."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = act()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return after - before


def long_names(count: int = 300, chars: int = 30_000) -> list[str]:
    """Names as long as Kafka's protocol lets a client make them, all different."""
    return [f"{number:08}" + "x" * (chars - 8) for number in range(count)]
