"""Delayed records of three nodes that are killed again and again: none early, none lost, none twice."""

import random  # noqa: TID251 - the type of a world's generators
from typing import Any

import pytest

from penstock.broker.delays.delay_view import DelayRequest
from penstock.core.model import Timestamp
from penstock.core.records.builder import pack_body
from penstock.server.kafka.backend import Backend
from tests.unit.broker.delays.delay_stage import DelayStage
from tests.unit.broker.queues.queue_stage import TOPIC

SEEDS = (1, 2)
STEP_MS = 20
RUN_MS = 20_000
KILL_EVERY_MS = 4_000
DOWN_MS = 2_000
# How far the simulated wall clocks of nodes are apart.
SKEW_MS = 1_000


class Sent:
    """A record that a client wants published later, and repeats until it knows that it is stored."""

    def __init__(self, number: int, deliver_at: int) -> None:
        self.number = number
        self.request = DelayRequest(
            TOPIC, Timestamp(deliver_at), pack_body(None, str(number).encode()), id=number
        )
        self.replies: list[Any] = []
        self.backend: Backend | None = None
        self.asked_ms = 0
        self.times_asked = 0

    @property
    def is_stored(self) -> bool:
        return (
            bool(self.replies) and isinstance(self.replies[0], list) and isinstance(self.replies[0][0], str)
        )


class Run:
    """Three nodes and a client; one node at a time is down."""

    def __init__(self, seed: int) -> None:
        self.stage = DelayStage(nodes=3, seed=seed)
        self.luck = random.Random(seed)
        self.stage.create(replicas=(1, 2, 3))
        self.now_ms = 0
        self.sent: dict[int, Sent] = {}
        self.stored_once: dict[int, None] = {}
        self.down: tuple[str, int] | None = None
        self.kills = 0

    def run(self) -> None:
        while self.now_ms < RUN_MS:
            self.step()
            if self.now_ms % 100 == 0:
                number = len(self.sent) + 1
                at = self.stage.wall(self.ready()[0].node_id) + self.luck.choice((0, 200, 3_000, 9_000))
                self.sent[number] = Sent(number, at)
            if self.now_ms % KILL_EVERY_MS == 0:
                self.kill()
        for _ in range(6_000):
            self.step()
            if self.down is None and not self.waiting() and self.is_drained():
                return
        raise AssertionError("not everything was published")

    def ready(self) -> list[Any]:
        return [node for node in self.stage.live if node.backend is not None]

    def waiting(self) -> list[Sent]:
        return [sent for sent in self.sent.values() if sent.number not in self.stored_once]

    def is_drained(self) -> bool:
        return len(self.ready()) == 3 and self.stage.pending() == 0 and self.now_ms > RUN_MS + 12_000

    def step(self) -> None:
        self.stage.pass_ms(STEP_MS)
        self.now_ms += STEP_MS
        if self.down is not None and self.now_ms >= self.down[1]:
            self.stage.world.nodes[self.down[0]].start()
            self.down = None
        for sent in self.waiting():
            self.ask(sent)

    def ask(self, sent: Sent) -> None:
        if sent.is_stored:
            self.stored_once[sent.number] = None
            return
        is_lost = all(node.backend is not sent.backend for node in self.ready())
        if sent.backend is None or sent.replies or is_lost or self.now_ms - sent.asked_ms > 10_000:
            ready = self.ready()
            if ready:
                sent.backend = self.luck.choice(ready).backend
                sent.replies, sent.asked_ms = [], self.now_ms
                sent.times_asked += 1
                sent.backend.delays.schedule([sent.request], sent.replies.append)

    def kill(self) -> None:
        if self.down is None and len(self.ready()) == 3:
            node = self.luck.choice(self.ready())
            machine = self.stage.world.nodes[node.name]
            (machine.cut_power if self.luck.random() < 0.5 else machine.kill)()
            node.backend = None
            self.down = (node.name, self.now_ms + DOWN_MS)
            self.kills += 1


@pytest.mark.parametrize("seed", SEEDS)
def test_delayed_records_are_published_once_and_in_time_whoever_dies(seed: int) -> None:
    run = Run(seed)

    run.run()

    published = run.stage.committed(TOPIC)
    numbers = [int(record.value or b"") for record in published]
    assert set(numbers) == set(run.sent)
    # A client that did not hear of a record until it was published, and sends it once more, gets one more.
    doubled = [
        run.sent[each] for each in sorted(set(numbers)) if numbers.count(each) > run.sent[each].times_asked
    ]
    assert doubled == []
    assert sum(sent.times_asked == 1 for sent in run.sent.values()) > 100
    for record in published:
        assert record.timestamp >= run.sent[int(record.value or b"")].request.deliver_at - SKEW_MS
    assert run.kills >= 3
