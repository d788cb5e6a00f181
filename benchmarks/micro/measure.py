"""How one operation is measured: CPU time per call, and the memory it asks for."""

import gc
import time
import tracemalloc
from collections.abc import Callable

ROUNDS = 7
ROUND_NS_MIN = 40_000_000


def time_us(operation: Callable[[], object]) -> float:
    """CPU microseconds per call: the best of several rounds, since noise only ever adds."""
    calls = 1
    while _round_ns(operation, calls) < ROUND_NS_MIN:
        calls *= 2
    best = min(_round_ns(operation, calls) for _ in range(ROUNDS))
    return best / calls / 1000


def _round_ns(operation: Callable[[], object], calls: int) -> int:
    repeat = range(calls)
    gc.disable()
    try:
        begin = time.process_time_ns()
        for _ in repeat:
            operation()
        return time.process_time_ns() - begin
    finally:
        gc.enable()


def peak_bytes(operation: Callable[[], object]) -> float:
    """The most memory that one call holds at a time, beyond what was there before."""
    operation()  # lazily built parts are not part of the operation
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        operation()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return float(max(0, peak - before))


def figures(name: str, operation: Callable[[], object]) -> dict[str, float]:
    """Time and memory of `operation` under one name."""
    return {f"{name}_us": time_us(operation), f"{name}_peak_bytes": peak_bytes(operation)}
