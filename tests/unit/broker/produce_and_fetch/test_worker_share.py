"""Workers shared between clients: by time used, one job each, and heavy ones behind each other."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.worker_share import (
    BYTES_MAX,
    CLIENT_BYTES_MAX,
    IDLE_CLIENTS_MAX,
    ClientJob,
    WorkersBusy,
    WorkerShare,
)
from penstock.core.model import MILLISECOND
from penstock.runtime import ExecutorKind, Job

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench


class HeldJob:
    """A job that ends when the test says so."""

    def __init__(
        self, work: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self.name = work()
        self.done = done
        self.failed = failed

    def cancel(self) -> None:
        raise AssertionError("nobody cancels")


class HeldExecutor:
    """Workers that hold on to what they get."""

    def __init__(self) -> None:
        self.jobs: list[HeldJob] = []

    def spawn(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
        lane: ExecutorKind,
    ) -> Job:
        assert lane is ExecutorKind.WORKER
        self.jobs.append(HeldJob(work, done, failed))
        return self.jobs[-1]


class Workers:
    """A share of workers, and what became of its jobs."""

    def __init__(self, bench: "Bench") -> None:
        self._bench = bench
        self._executor = HeldExecutor()
        self.share = WorkerShare(replace(bench.runtime, spawn=self._executor))
        self.ended: list[str] = []
        self.errors: list[Exception] = []

    def submit(self, client: str, name: str = "", *, size_bytes: int = 1, is_heavy: bool = False) -> None:
        name = name or client
        job = ClientJob(lambda: name, self.ended.append, self.errors.append, size_bytes, is_heavy)
        self.share.submit(client, job)

    @property
    def running(self) -> list[str]:
        return [job.name for job in self._executor.jobs]

    def end(self, name: str, after_ms: int = 1) -> None:
        self._bench.run(after_ms * MILLISECOND)
        job = next(job for job in self._executor.jobs if job.name == name)
        self._executor.jobs.remove(job)
        job.done(name)


@pytest.fixture
def workers(bench: "Bench") -> Workers:
    return Workers(bench)


def test_a_client_has_one_job_at_a_time_and_others_run_beside_it(workers: Workers) -> None:
    for name in ("a1", "a2", "a3"):
        workers.submit("a", name)
    alone = workers.running
    workers.submit("b", "b1")

    assert alone == ["a1"]
    assert workers.running == ["a1", "b1"]
    workers.end("a1")
    assert workers.running == ["b1", "a2"]
    assert workers.ended == ["a1"]


def test_whoever_used_least_is_next(workers: Workers) -> None:
    for client in ("greedy", "modest"):
        workers.submit(client, f"{client} 1")
    workers.end("modest 1", after_ms=1)
    workers.end("greedy 1", after_ms=500)
    for number in (2, 3):
        workers.submit("x", f"x {number}")
        workers.submit("y", f"y {number}")

    workers.submit("greedy", "greedy 2")
    workers.submit("modest", "modest 2")
    workers.end("x 2")
    workers.end("y 2")

    assert "greedy 2" not in workers.running
    assert "modest 2" in workers.running


def test_a_client_that_was_away_gets_no_credit_for_it(workers: Workers) -> None:
    workers.submit("late", "late 1")
    workers.end("late 1")
    for number in range(3):
        workers.submit("busy", f"busy {number}")
        workers.end(f"busy {number}", after_ms=1_000)
    for number in range(4):
        workers.submit("late", f"late {number}")
        workers.submit("busy", f"busy {number}")
    workers.submit("third", "third 0")
    workers.end("late 0", after_ms=10)

    # Not three seconds of late's before anything of the others.
    assert sorted(workers.running) == ["busy 0", "third 0"]


def test_heavy_jobs_wait_behind_each_other_and_behind_light_ones(workers: Workers) -> None:
    for client in ("bomb 1", "bomb 2", "bomb 3"):
        workers.submit(client, is_heavy=True)
    alone = workers.running
    workers.submit("light 1")
    workers.submit("light 2")
    both = workers.running
    workers.end("bomb 1")

    assert alone == ["bomb 1"]
    assert both == ["bomb 1", "light 1"]
    assert workers.running == ["light 1", "light 2"]
    workers.end("light 1")
    assert workers.running == ["light 2", "bomb 2"]


def test_a_job_that_fails_makes_way_for_the_next(workers: Workers) -> None:
    workers.submit("a", "a1")
    workers.submit("a", "a2")

    (job,) = workers._executor.jobs
    workers._executor.jobs.clear()
    job.failed(RuntimeError("it broke"))

    assert [str(error) for error in workers.errors] == ["it broke"]
    assert workers.running == ["a2"]


def test_what_waits_is_bounded_for_a_client_and_for_all(bench: "Bench", workers: Workers) -> None:
    workers.submit("a", size_bytes=CLIENT_BYTES_MAX)
    workers.submit("a", "a2", size_bytes=1)
    for client in range(BYTES_MAX // CLIENT_BYTES_MAX - 1):
        workers.submit(f"b{client}", size_bytes=CLIENT_BYTES_MAX)
    workers.submit("c", size_bytes=1)
    at_once = list(workers.errors)
    bench.run()

    assert at_once == []
    assert [type(error) for error in workers.errors] == [WorkersBusy, WorkersBusy]
    workers.end("a")
    workers.submit("c", size_bytes=1)
    bench.run()
    assert len(workers.errors) == 2


def test_one_job_is_taken_however_large(workers: Workers) -> None:
    workers.submit("a", size_bytes=2 * BYTES_MAX)

    assert workers.running == ["a"]


def test_clients_that_went_away_are_forgotten(workers: Workers) -> None:
    for number in range(2 * IDLE_CLIENTS_MAX):
        workers.submit(f"client {number}")
        workers.end(f"client {number}", after_ms=0)

    assert len(workers.share._clients) <= IDLE_CLIENTS_MAX + 1
