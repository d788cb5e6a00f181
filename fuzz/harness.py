"""Running one target over damaged inputs, and judging what comes out."""

import itertools
import random
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from fuzz.mutations import mutate, overwrites

CPU_SECONDS_MAX = 2.0
ALLOCATION_ALLOWANCE_BYTES = 1 << 20
# Counting allocations makes a parser some four times slower, so only the first inputs of
# each period are counted. They come in a row because every start and stop of the
# counting leaks a few hundred bytes.
MEASURED_PERIOD = 1024
MEASURED_INPUTS = 128
SEEDS_KEPT = 16
RESEED_EVERY = 500


@dataclass(frozen=True, slots=True)
class Target:
    """A parser, how to make valid input for it, and which errors it may raise."""

    name: str
    seed: Callable[[random.Random], bytes]
    run: Callable[[bytes], object]
    allowed: tuple[type[BaseException], ...]
    allocation_factor: int = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; `failing_input` is None when nothing was found."""

    target: str
    inputs: int
    seconds: float
    failing_input: bytes | None = None
    reason: str = ""


class TooSlow(BaseException):
    """One input took longer than any input may. Not an Exception: no parser may catch it."""


def inputs_for(target: Target, rng: random.Random) -> Iterator[tuple[bytes, bool]]:
    """Inputs without end, each with whether it is valid: first undamaged ones, then damaged."""
    seeds = [target.seed(rng) for _ in range(SEEDS_KEPT)]
    for data in seeds:
        yield data, True
    # A systematic pass over a small input takes turns with random damage to all of
    # them, so that a short run gets a taste of both.
    systematic = overwrites(min(seeds, key=len))
    for count in itertools.count(1):
        if count % RESEED_EVERY == 0:
            seeds[rng.randrange(SEEDS_KEPT)] = target.seed(rng)
        yield mutate(rng, rng.choice(seeds), rng.choice(seeds)), False
        for data in itertools.islice(systematic, 1):
            yield data, False


def fuzz(target: Target, *, seed: int, count: int | None = None, seconds: float | None = None) -> Outcome:
    """Run `target` until an input fails, `count` inputs have passed or `seconds` are over."""
    rng = random.Random(f"{target.name} {seed}")
    started = 0.0
    done = 0
    with _watched():
        for data, is_valid in inputs_for(target, rng):
            # The clock starts with the first input: a run that only made its seeds tried nothing.
            started = started or time.monotonic()
            if done == count or (done and seconds is not None and time.monotonic() - started > seconds):
                break
            # Not the first one: what is made once in a process is no input's doing.
            _measure(0 < done % MEASURED_PERIOD <= MEASURED_INPUTS)
            reason = judge(target, data, is_valid=is_valid)
            done += 1
            if reason is not None:
                return Outcome(target.name, done, time.monotonic() - started, data, reason)
    return Outcome(target.name, done, time.monotonic() - started)


def replay(target: Target, data: bytes) -> str | None:
    """What is wrong with one input, or None."""
    with _watched():
        _run(target, target.seed(random.Random(target.name)), is_valid=True)
        _measure(True)
        return judge(target, data, is_valid=False)


def judge(target: Target, data: bytes, *, is_valid: bool) -> str | None:
    """Run one input; None when the parser behaved, the complaint otherwise."""
    if not tracemalloc.is_tracing():
        return _run(target, data, is_valid=is_valid)
    tracemalloc.reset_peak()
    before_bytes = tracemalloc.get_traced_memory()[0]
    complaint = _run(target, data, is_valid=is_valid)
    peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
    allowed_bytes = target.allocation_factor * len(data) + ALLOCATION_ALLOWANCE_BYTES
    if complaint is None and peak_bytes > allowed_bytes:
        return f"{len(data)} bytes made it allocate {peak_bytes}, allowed are {allowed_bytes}"
    return complaint


def _measure(wanted: bool) -> None:
    if wanted != tracemalloc.is_tracing():
        (tracemalloc.start if wanted else tracemalloc.stop)()


def _run(target: Target, data: bytes, *, is_valid: bool) -> str | None:
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_SECONDS_MAX)
    try:
        target.run(data)
    except TooSlow:
        return f"took more than {CPU_SECONDS_MAX} s of CPU"
    except target.allowed as refused:
        return f"refused a valid input: {refused!r}" if is_valid else None
    except Exception as escaped:
        return f"raised {escaped!r}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return None


@contextmanager
def _watched() -> Iterator[None]:
    """Turn the CPU timer's signal into `TooSlow`, and clean up; the wall-clock timer is left to pytest."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, ring)
    try:
        yield
    finally:
        _measure(False)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
