"""Work off the loop: disk threads and worker processes."""

import functools
import math
import operator
import os
import resource
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.runtime import ExecutorFull, ExecutorKind, WorkerDied
from penstock.runtime.executors import ExecutorOptions
from penstock.runtime.loop import RuntimeOptions

NARROW = RuntimeOptions(
    lanes=ExecutorOptions(disk_threads=1, disk_queue_max=1, workers=1, worker_queue_max=1)
)

ONE_WORKER = RuntimeOptions(lanes=ExecutorOptions(workers=1))


def test_a_thread_does_the_work_and_calls_back_on_the_loop(bench: Any) -> None:
    runtime = bench.node(1)
    results: list[tuple[int, int]] = []
    failures: list[Exception] = []

    runtime.spawn.spawn(
        threading.get_ident,
        lambda thread: results.append((thread, threading.get_ident())),
        failures.append,
        ExecutorKind.DISK,
    )
    told_inside = len(results)
    bench.until(lambda: bool(results))

    ((worked_on, told_on),) = results
    assert told_inside == 0
    assert worked_on != told_on == threading.get_ident()


def test_a_worker_process_does_the_work_and_stays_for_the_next(bench: Any) -> None:
    runtime = bench.node(1, ONE_WORKER)
    pids: list[int] = []
    failures: list[Exception] = []

    for _ in range(3):
        runtime.spawn.spawn(os.getpid, pids.append, failures.append, ExecutorKind.WORKER)
    bench.until(lambda: len(pids) == 3)

    assert len(set(pids)) == 1
    assert pids[0] != os.getpid()
    assert failures == []


# More than `select` can tell anything of.
DESCRIPTORS = 1_100


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many as a node with a thousand clients has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * DESCRIPTORS)), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS)]
    yield
    for descriptor in held:
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_worker_process_serves_a_node_with_many_descriptors(bench: Any) -> None:
    runtime = bench.node(1, ONE_WORKER)
    pids: list[int] = []
    failures: list[Exception] = []

    for count in (1, 2, 3):
        runtime.spawn.spawn(os.getpid, pids.append, failures.append, ExecutorKind.WORKER)
        bench.until(lambda count=count: len(pids) + len(failures) == count)

    assert failures == []
    assert len(set(pids)) == 1


def test_large_arguments_and_results_travel(bench: Any) -> None:
    runtime = bench.node(1)
    results: list[bytes] = []

    work = functools.partial(operator.mul, b"x" * 3_000_000, 2)
    runtime.spawn.spawn(work, results.append, pytest.fail, ExecutorKind.WORKER)
    bench.until(lambda: bool(results))

    assert results == [b"x" * 6_000_000]


@pytest.mark.parametrize("lane", list(ExecutorKind))
def test_what_the_work_raises_is_reported(bench: Any, lane: ExecutorKind) -> None:
    runtime = bench.node(1)
    failures: list[Exception] = []

    runtime.spawn.spawn(functools.partial(math.sqrt, -1), pytest.fail, failures.append, lane)
    bench.until(lambda: bool(failures))

    assert isinstance(failures[0], ValueError)


def test_a_worker_that_dies_fails_its_job_and_is_replaced(bench: Any) -> None:
    runtime = bench.node(1, ONE_WORKER)
    failures: list[Exception] = []
    results: list[int] = []

    runtime.spawn.spawn(functools.partial(os._exit, 3), pytest.fail, failures.append, ExecutorKind.WORKER)
    runtime.spawn.spawn(functools.partial(abs, -4), results.append, failures.append, ExecutorKind.WORKER)
    bench.until(lambda: bool(results))

    assert [type(failure) for failure in failures] == [WorkerDied]
    assert results == [4]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_without_work_ends_and_another_does_what_comes_later(bench: Any) -> None:
    runtime = bench.node(1, RuntimeOptions(lanes=ExecutorOptions(workers=1, worker_idle_seconds=0.01)))
    pids: list[int] = []

    runtime.spawn.spawn(os.getpid, pids.append, pytest.fail, ExecutorKind.WORKER)
    bench.until(lambda: bool(pids) and not is_running(pids[0]))
    runtime.spawn.spawn(os.getpid, pids.append, pytest.fail, ExecutorKind.WORKER)
    bench.until(lambda: len(pids) == 2)

    assert pids[1] != pids[0]


def test_a_worker_that_is_killed_while_it_has_no_work_gets_none(bench: Any) -> None:
    runtime = bench.node(1, ONE_WORKER)
    pids: list[int] = []

    runtime.spawn.spawn(os.getpid, pids.append, pytest.fail, ExecutorKind.WORKER)
    bench.until(lambda: bool(pids))
    os.kill(pids[0], signal.SIGKILL)
    # It is waited for when the loop notices.
    bench.until(lambda: not is_running(pids[0]))
    runtime.spawn.spawn(os.getpid, pids.append, pytest.fail, ExecutorKind.WORKER)
    bench.until(lambda: len(pids) == 2)

    assert pids[1] != pids[0]


@pytest.mark.parametrize("lane", list(ExecutorKind))
def test_a_full_executor_fails_the_job_later_and_not_inside_the_call(bench: Any, lane: ExecutorKind) -> None:
    runtime = bench.node(1, NARROW)
    failures: list[Exception] = []
    results: list[int] = []

    for _ in range(5):
        runtime.spawn.spawn(functools.partial(abs, -1), results.append, failures.append, lane)
    told_inside = len(failures)
    bench.until(lambda: len(failures) + len(results) == 5)

    assert told_inside == 0
    assert results == [1, 1]
    assert all(isinstance(failure, ExecutorFull) for failure in failures)


@pytest.mark.parametrize("lane", list(ExecutorKind))
def test_a_cancelled_job_never_calls_back(bench: Any, lane: ExecutorKind) -> None:
    runtime = bench.node(1)
    results: list[int] = []

    runtime.spawn.spawn(functools.partial(abs, -1), results.append, pytest.fail, lane).cancel()
    runtime.spawn.spawn(functools.partial(abs, -2), results.append, pytest.fail, lane)
    bench.until(lambda: bool(results))

    assert results == [2]
