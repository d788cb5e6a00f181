"""Syncs and executor jobs of a simulated node: they take virtual time, and disks fail."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.model import MICROSECOND, MILLISECOND
from penstock.runtime import ExecutorKind, SyncTarget
from penstock.runtime.port import T
from penstock.sim.incarnation import Incarnation
from penstock.storage.disk import DiskFailed, NoSuchFile


@dataclass(slots=True)
class DiskSpeed:
    """How fast a node's disk and executors are just now; the nemesis changes it."""

    sync_min_ns: int = 50 * MICROSECOND
    sync_max_ns: int = 2 * MILLISECOND
    work_min_ns: int = 100 * MICROSECOND
    work_max_ns: int = 50 * MILLISECOND
    slowness: int = 1


class SimulatedSync:
    """Syncs the node's files after a while.

    What was written between the call and its end may become durable or not. Half of the
    syncs do their work at the beginning and half at the end of that while: the first kind
    finds services that count on writes made after the call, the second those that count
    on a sync before it is done.
    """

    def __init__(self, life: Incarnation, pace: DiskSpeed) -> None:
        self._incarnation = life
        self._pace = pace

    def sync(self, files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
        pace, luck = self._pace, self._incarnation.random
        delay_ns = luck.randint(pace.sync_min_ns, pace.sync_max_ns) * pace.slowness
        if luck.random() < 0.5:
            error = _sync_all(files)
            self._incarnation.later(delay_ns, "sync", _code_of(error), done, error)
        else:
            self._incarnation.later(delay_ns, "sync", len(files), _sync_then_tell, tuple(files), done)


def _sync_then_tell(files: Sequence[SyncTarget], done: Callable[[OSError | None], None]) -> None:
    done(_sync_all(files))


def _sync_all(files: Sequence[SyncTarget]) -> OSError | None:
    error: OSError | None = None
    for file in files:
        try:
            file.sync()
        except NoSuchFile:
            # A directory that was removed since the call: whoever holds its descriptor can sync it still.
            continue
        except DiskFailed as failure:
            error = OSError(failure.errno, os.strerror(failure.errno))
    return error


def _code_of(error: OSError | None) -> int:
    return 0 if error is None else error.errno or -1


class SimulatedJob:
    """An executor job that its owner may cancel."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimulatedExecutor:
    """Runs work at the beginning or the end of a while, so that a crash finds it done or not begun."""

    def __init__(self, life: Incarnation, pace: DiskSpeed) -> None:
        self._incarnation = life
        self._pace = pace

    def spawn(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> SimulatedJob:
        job = SimulatedJob()
        pace, luck = self._pace, self._incarnation.random
        delay_ns = luck.randint(pace.work_min_ns, pace.work_max_ns) * pace.slowness
        begins_after_ns = 0 if luck.random() < 0.5 else delay_ns

        def begin() -> None:
            if job.is_cancelled:
                return
            outcome = _outcome(work)
            self._incarnation.later(delay_ns - begins_after_ns, "worked", lane.value, tell, outcome)

        def tell(outcome: tuple[bool, Any]) -> None:
            succeeded, result = outcome
            if job.is_cancelled:
                return
            if succeeded:
                done(result)
            else:
                failed(result)

        self._incarnation.later(begins_after_ns, "work", lane.value, begin)
        return job


def _outcome(work: Callable[[], Any]) -> tuple[bool, Any]:
    """What the work raises goes to its owner, as on the real executors."""
    try:
        return True, work()
    except Exception as failure:
        return False, failure
