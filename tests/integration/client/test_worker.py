"""`Worker` and `TaskQueue` against a broker on a thread of the test."""

import asyncio
import itertools
import json
import os
import queue as thread_queue
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Reject, RetryLater, TaskQueue, Worker, current_task
from penstock.client.cluster import ClusterClient, ClusterError, ConnectionLost, OutgoingRecord, QueueClient
from penstock.client.received import ReceivedRecord
from penstock.core.protocol import ErrorCode
from penstock.testing import Broker
from penstock.testing import broker as running_broker

SECONDS = 30


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker() as found:
        yield found


@pytest.fixture
def queue(node: Broker) -> Iterator[TaskQueue]:
    with TaskQueue(f"t-{os.urandom(6).hex()}", bootstrap=node.bootstrap_servers) as found:
        yield found


@contextmanager
def working(worker: Worker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield thread
    finally:
        worker.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


def receive(queue: TaskQueue, topic: str, *, wait_ms: int) -> list[ReceivedRecord]:
    """What another consumer of the group gets."""

    async def scene() -> list[ReceivedRecord]:
        async with ClusterClient(queue.endpoint.addresses()) as cluster:
            received = await QueueClient(cluster).receive(queue.group, "other", [topic], wait_ms=wait_ms)
            return list(received.records)

    return asyncio.run(scene())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def nack(queue: TaskQueue, receipt: str) -> list[ClusterError | None]:
    async def scene() -> list[ClusterError | None]:
        async with ClusterClient(queue.endpoint.addresses()) as cluster:
            return await QueueClient(cluster).nack(queue.group, [receipt], delay_ms=60_000)

    return asyncio.run(scene())


def test_sync_and_async_tasks_run_once_and_are_finished(queue: TaskQueue) -> None:
    done: thread_queue.Queue[tuple[str, int]] = thread_queue.Queue()

    @queue.task
    def in_a_thread(number: int, *, text: str = "") -> None:
        done.put((text, number))

    @queue.task(name="in-the-loop")
    async def in_the_loop(number: int) -> None:
        await asyncio.sleep(0)
        done.put(("loop", number))

    for number in range(10):
        in_a_thread.enqueue(number, text="thread")
        assert in_the_loop.enqueue(number).topic == queue.topic
    with working(Worker(queue, concurrency=3)):
        found = [done.get(timeout=SECONDS) for _ in range(20)]

    assert sorted(found) == sorted((text, number) for text in ("thread", "loop") for number in range(10))
    assert done.empty()
    assert receive(queue, queue.topic, wait_ms=0) == []
    in_a_thread(7, text="called")
    assert done.get_nowait() == ("called", 7)


def test_a_task_that_fails_is_tried_again(queue: TaskQueue) -> None:
    attempts: thread_queue.Queue[int] = thread_queue.Queue()

    @queue.task
    def fails_twice() -> None:
        attempt = current_task().attempt
        attempts.put(attempt)
        if attempt == 1:
            raise RetryLater(0)
        if attempt == 2:
            raise ZeroDivisionError

    fails_twice.enqueue()
    with working(Worker(queue)):
        assert [attempts.get(timeout=SECONDS) for _ in range(3)] == [1, 2, 3]
    assert receive(queue, queue.topic, wait_ms=0) == []


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"task": "rejects"}', b"Reject: no use"),
        (b'{"task": "missing"}', b"UnknownTask: there is no task 'missing'"),
        (b"no json", b"UnknownTask: the record is no JSON"),
        (b'{"task": "rejects", "args": 1}', b"UnknownTask: args is no list"),
    ],
    ids=["rejected", "missing", "text", "args"],
)
def test_what_no_try_can_help_is_a_dead_letter(
    node: Broker, queue: TaskQueue, value: bytes, reason: bytes
) -> None:
    @queue.task
    def rejects() -> None:
        raise Reject("no use")

    queue.store(OutgoingRecord(None, value)).result()
    # The topic of dead letters exists before the first of them.
    node.create_topic(f"{queue.topic}.dlq")
    with working(Worker(queue)):
        (letter,) = receive(queue, f"{queue.topic}.dlq", wait_ms=SECONDS * 1_000)

    assert letter.value == value
    error = dict(letter.headers)["penstock-error"]
    assert error is not None
    assert error.startswith(reason)


def test_a_lease_is_renewed_while_its_task_runs(queue: TaskQueue) -> None:
    begun, may_end = threading.Event(), threading.Event()

    @queue.task
    def slow() -> None:
        begun.set()
        assert may_end.wait(SECONDS)
        assert not current_task().is_lease_lost

    slow.enqueue()
    with working(Worker(queue, lease_ms=1_000)):
        assert begun.wait(SECONDS)
        # Two leases long nobody else gets it.
        assert receive(queue, queue.topic, wait_ms=2_000) == []
        may_end.set()
    assert receive(queue, queue.topic, wait_ms=1_500) == []


@pytest.mark.parametrize("is_carried_out", [True, False])
def test_an_acknowledgement_whose_response_was_lost_is_sent_again(
    queue: TaskQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_carried_out: bool,
) -> None:
    settle, answers = QueueClient.settle, thread_queue.Queue[list[ErrorCode | None]]()
    tries = itertools.count()

    async def lossy(client: QueueClient, *request: Any, **choices: Any) -> list[ClusterError | None]:
        is_first = next(tries) == 0
        if is_first and not is_carried_out:
            answers.put([])
            raise ConnectionLost("the connection was lost")
        results = await settle(client, *request, **choices)
        answers.put([None if one is None else one.code for one in results])
        if is_first:
            raise ConnectionLost("the connection was lost")
        return results

    @queue.task
    def work() -> None:
        monkeypatch.setattr(QueueClient, "settle", lossy)

    work.enqueue()
    with working(Worker(queue)):
        first, second = answers.get(timeout=SECONDS), answers.get(timeout=SECONDS)

    assert [first, second] == ([[None], [ErrorCode.INVALID_RECORD_STATE]] if is_carried_out else [[], [None]])
    assert not [record.message for record in caplog.records if record.levelname == "ERROR"]


def test_a_task_is_told_that_its_lease_is_lost(queue: TaskQueue) -> None:
    receipts: thread_queue.Queue[str] = thread_queue.Queue()
    told = threading.Event()

    @queue.task
    def holds_on() -> None:
        receipts.put(current_task().receipt)
        assert current_task().wait_for_loss(SECONDS)
        told.set()

    holds_on.enqueue()
    with working(Worker(queue, lease_ms=1_000)):
        assert nack(queue, receipts.get(timeout=SECONDS)) == [None]
        assert told.wait(SECONDS)


def test_a_worker_that_stops_finishes_what_runs_and_begins_nothing(queue: TaskQueue) -> None:
    begun, may_end = threading.Event(), threading.Event()
    finished: list[int] = []

    @queue.task
    def slow(number: int) -> None:
        begun.set()
        assert may_end.wait(SECONDS)
        finished.append(number)

    slow.enqueue(1)
    worker = Worker(queue, concurrency=1)
    with working(worker) as thread:
        assert begun.wait(SECONDS)
        slow.enqueue(2)
        worker.stop()
        may_end.set()
        thread.join(SECONDS)
        assert not thread.is_alive()

    assert finished == [1]
    (left,) = receive(queue, queue.topic, wait_ms=SECONDS * 1_000)
    assert json.loads(left.value or b"")["args"] == [2]


def test_a_task_that_does_not_end_in_time_goes_back_to_the_queue(queue: TaskQueue) -> None:
    begun = threading.Event()

    @queue.task
    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    endless.enqueue()
    with working(Worker(queue, drain_seconds=0.01)):
        assert begun.wait(SECONDS)

    (left,) = receive(queue, queue.topic, wait_ms=SECONDS * 1_000)
    assert left.attempt == 2


def test_a_delayed_task_runs_after_one_without_delay_and_an_urgent_one_first(queue: TaskQueue) -> None:
    order: thread_queue.Queue[str] = thread_queue.Queue()

    @queue.task
    def note(text: str) -> None:
        order.put(text)

    note.with_options(delay_ms=1_000).enqueue("late")
    note.enqueue("plain")
    note.with_options(priority=9).enqueue("urgent")
    with working(Worker(queue, concurrency=1)):
        assert [order.get(timeout=SECONDS) for _ in range(3)] == ["urgent", "plain", "late"]


def test_the_blocks_of_the_how_to_run(node: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[3] / "docs" / "howto" / "run-background-tasks.md"
    names: dict[str, Any] = {"__name__": "howto"}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block.replace("127.0.0.1:9092", node.bootstrap_servers), page.name, "exec"), names)
    last = threading.Event()
    names["queue"].task(name="last")(last.set)
    # It is due after everything else.
    names["queue"].store(
        OutgoingRecord(None, b'{"task": "last"}', (("penstock-deliver-at", b"%d" % (now_ms() + 2_000)),))
    ).result()
    names["queue"].close()

    with working(Worker(names["queue"])):
        assert last.wait(SECONDS)

    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "thumbnails/0/0"
    assert sorted(shown[1:]) == ["made a.jpg 400", "made b.jpg 200", "told anna"]


def test_what_cannot_be_enqueued_is_refused_at_once() -> None:
    queue = TaskQueue("never-reached", bootstrap="127.0.0.1:1")

    @queue.task
    def task(value: object) -> None: ...

    with pytest.raises(TypeError):
        task.enqueue(object())
    with pytest.raises(ValueError, match="not JSON compliant"):
        task.enqueue(float("nan"))
    with pytest.raises(ValueError, match="priority is 10"):
        task.with_options(priority=10)
    with pytest.raises(ValueError, match="delay_ms is -1"):
        task.with_options(delay_ms=-1)
    with pytest.raises(ValueError, match="has a task task already"):
        queue.task(name="task")(print)
