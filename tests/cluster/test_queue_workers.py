"""A REST worker and a WebSocket worker on one queue, under kill -9 of the broker."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from penstock.client.websocket import WebSocketClient, WebSocketError
from tests.support.nodes import NodeProcess

TOPIC, GROUP = "jobs", "workers"
JOBS = 300
LEASE_MS = 2_000
AT_ONCE = 7
KILLS_AT = (60, 160)


class Delivery(NamedTuple):
    """A message that a worker got: when it asked, and when it had it."""

    worker: str
    place: str
    attempt: int
    receipt: str
    asked_at: float
    got_at: float


class Journal:
    """What the workers saw, from both threads."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.acknowledged: list[str] = []
        self.stop = threading.Event()

    def note(self, worker: str, asked_at: float, messages: list[dict[str, Any]]) -> list[str]:
        got_at = time.monotonic()
        for each in messages:
            place = f"{each['topic']}/{each['partition']}/{each['offset']}"
            self.deliveries.append(
                Delivery(worker, place, each["attempt"], each["receipt"], asked_at, got_at)
            )
        return [each["receipt"] for each in messages]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    started = NodeProcess(tmp_path / "node", "rest.enabled=true").start()
    yield started
    started.kill()


def rest_worker(url: str, journal: Journal) -> None:
    query: dict[str, str | int] = {
        "member_id": "rest",
        "topics": TOPIC,
        "max": AT_ONCE,
        "wait_ms": 200,
        "lease_ms": LEASE_MS,
    }
    with httpx.Client(base_url=url, timeout=5) as client:
        while not journal.stop.is_set():
            try:
                asked_at = time.monotonic()
                answer = client.get(f"/v1/groups/{GROUP}/poll", params=query)
                if answer.status_code != 200:
                    continue
                receipts = journal.note("rest", asked_at, answer.json()["messages"])
                for receipt in receipts:
                    if (
                        client.post(f"/v1/groups/{GROUP}/ack", json={"receipts": [receipt]}).status_code
                        == 200
                    ):
                        journal.acknowledged.append(receipt)
            except httpx.HTTPError:
                # The broker is away: its restart is what this is about.
                continue


async def websocket_worker(url: str, journal: Journal) -> None:
    while not journal.stop.is_set():
        try:
            async with await WebSocketClient.connect(url, consumer="socket", seconds=2) as client:
                while not journal.stop.is_set():
                    await _work(client, journal)
        except WebSocketError:
            # The broker is away.
            continue


async def _work(client: WebSocketClient, journal: Journal) -> None:
    asked_at = time.monotonic()
    reply = await client.ask("dequeue", topic=TOPIC, group=GROUP, max=AT_ONCE, wait_ms=200, lease_ms=LEASE_MS)
    receipts = journal.note("socket", asked_at, reply["messages"])
    for receipt in receipts:
        settled = await client.ask("ack", group=GROUP, receipts=[receipt])
        if settled["settled"]:
            journal.acknowledged.append(receipt)


def wait_for(condition: Any, what: str, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def unfinished(url: str) -> int:
    """How many records of the topic the group has not finished."""
    try:
        queues = httpx.get(f"{url}/v1/groups/{GROUP}", timeout=5).json()["queues"]
    except (httpx.HTTPError, KeyError, ValueError):
        return JOBS
    return JOBS - int(sum(each["finished_below"] for each in queues))


def test_no_job_is_lost_and_none_has_two_live_leases_while_the_broker_is_killed(node: NodeProcess) -> None:
    url = f"http://{node.ready['http']}"
    created = httpx.post(f"{url}/v1/topics", json={"name": TOPIC, "partitions": 2})
    assert created.status_code == 201, created.text
    messages = [{"value": number, "partition": number % 2} for number in range(JOBS)]
    assert httpx.post(f"{url}/v1/topics/{TOPIC}/batch", json={"messages": messages}).status_code == 200
    journal = Journal()
    workers = [
        threading.Thread(target=rest_worker, args=(url, journal)),
        threading.Thread(target=lambda: asyncio.run(websocket_worker(url.replace("http", "ws"), journal))),
    ]
    for worker in workers:
        worker.start()
    try:
        for seen in KILLS_AT:
            wait_for(lambda seen=seen: len(journal.deliveries) >= seen, "the workers get nothing")
            node.kill()
            node.start()
        wait_for(lambda: unfinished(url) == 0, "jobs are left over")
    finally:
        journal.stop.set()
        for worker in workers:
            worker.join()

    by_place: dict[str, list[Delivery]] = {}
    for each in journal.deliveries:
        by_place.setdefault(each.place, []).append(each)
    assert len(by_place) == JOBS
    assert {each.worker for each in journal.deliveries} == {"rest", "socket"}
    assert len(set(journal.acknowledged)) == len(journal.acknowledged)
    for place, deliveries in by_place.items():
        attempts = [each.attempt for each in deliveries]
        assert len(set(attempts)) == len(attempts), f"{place} was delivered twice at once: {deliveries}"
        ordered = sorted(deliveries, key=lambda each: each.attempt)
        for before, after in itertools.pairwise(ordered):
            # Nobody gives a lease back here: the next one begins when it has ended.
            ended_at = before.asked_at + LEASE_MS / 1_000
            assert after.got_at >= ended_at, f"{place}: {before} and {after} overlap"
            assert before.receipt not in journal.acknowledged, f"{place} was delivered after its end"
