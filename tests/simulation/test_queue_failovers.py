"""Queues of three nodes that are killed again and again: nobody loses a record or shares one.

The clients live outside of the nodes and look at the world every few milliseconds: a request to a node that
was killed has no reply, and may have been carried out.
"""

import random  # noqa: TID251 - the type of a world's generators
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.broker.produce import ALL_ACKS, PendingProduce
from penstock.broker.queues.dead_letters import dead_letter_topic
from penstock.broker.queues.peers import DeliveredRecord, ReceivedRecords, ReceiveRequest
from penstock.broker.queues.queue_view import claims_by_queue
from penstock.core.model import ApiError, PartitionIndex
from penstock.core.queues import AcknowledgeRecords, ClaimResults, QueueId, ReleaseRecords
from penstock.core.queues.queue import Queue
from penstock.core.records import Record, write_batch
from penstock.server.kafka.backend import Backend
from tests.unit.broker.queues.queue_stage import GROUP, TOPIC, QueueConsumer, QueueStage

SEEDS = (1, 2)
# As many as it takes to find what is planted.
PLANTED_SEEDS = range(1, 21)
STEP_MS = 20
RUN_MS = 24_000
KILL_EVERY_MS = 5_000
DOWN_MS = 2_500
LEASE_MS = 2_000
WORKERS = 4
DEAD = dead_letter_topic(TOPIC)


@dataclass
class Delivery:
    """A record that a worker has."""

    offset: int
    asked_ms: int
    # Whether the worker has said what becomes of it: then the lease may end at any time.
    is_settled: bool = False


@dataclass
class Ledger:
    """What clients did and heard."""

    sent: list[str] = field(default_factory=list)
    produced: dict[str, None] = field(default_factory=dict)
    # By offset: the last delivery, the highest attempt, and when a worker heard that it is finished.
    deliveries: dict[int, Delivery] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    finished_ms: dict[int, int] = field(default_factory=dict)
    # Values that somebody has tried to acknowledge, and those that it was confirmed for.
    done: dict[str, None] = field(default_factory=dict)
    confirmed: dict[str, None] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    kills: int = 0

    def delivered(self, received: DeliveredRecord, asked_ms: int, now_ms: int) -> Delivery:
        offset, before = received.record.offset, self.deliveries.get(received.record.offset)
        value = (received.record.value or b"").decode()
        if value not in self.sent:
            self.violations.append(f"{value} was never sent")
        if before is not None and not before.is_settled and now_ms < before.asked_ms + LEASE_MS:
            self.violations.append(f"two live leases on {offset}")
        if offset in self.finished_ms and self.finished_ms[offset] < asked_ms:
            self.violations.append(f"{offset} was delivered after it was finished")
        is_later = before is None or before.asked_ms + LEASE_MS < asked_ms
        if is_later and received.attempt <= self.attempts.get(offset, 0):
            self.violations.append(f"attempts of {offset} did not increase")
        self.attempts[offset] = max(received.attempt, self.attempts.get(offset, 0))
        self.deliveries[offset] = delivery = Delivery(offset, asked_ms)
        return delivery


class Asked:
    """A request to one node, which may be killed."""

    def __init__(self, run: "Run", ask: Callable[[Backend, Callable[[Any], None]], None]) -> None:
        self._run = run
        ready = [node for node in run.stage.live if node.backend is not None]
        self.node = run.luck.choice(ready) if ready else None
        self.backend = None if self.node is None else self.node.backend
        self.asked_ms = run.now_ms
        self.replies: list[Any] = []
        if self.backend is not None:
            ask(self.backend, self.replies.append)

    @property
    def is_over(self) -> bool:
        """Whether there is a reply, or never will be one."""
        lost = self.node is None or self.node.backend is not self.backend
        return bool(self.replies) or lost or self._run.now_ms - self.asked_ms > 15_000

    @property
    def reply(self) -> Any:
        return self.replies[0] if self.replies else None


class Worker:
    """Receives records, and acknowledges, releases or forgets them."""

    def __init__(self, run: "Run", name: str) -> None:
        self.run = run
        self.name = name
        self.asked: Asked | None = None
        self.held: list[tuple[DeliveredRecord, Delivery]] = []
        self.settle_at_ms = 0
        self.settling: list[tuple[DeliveredRecord, Delivery]] = []

    def step(self) -> None:
        run = self.run
        if self.settling:
            if self.asked is not None and self.asked.is_over:
                self._settled(self.asked.reply)
        elif self.held:
            if run.now_ms >= self.settle_at_ms:
                self._settle()
        elif self.asked is None:
            request = ReceiveRequest(
                queue=run.queue, consumer=self.name, records_max=3, wait_ms=500, lease_ms=LEASE_MS
            )
            self.asked = Asked(run, lambda backend, done: backend.queues.receive(request, done))
        elif self.asked.is_over:
            asked, self.asked = self.asked, None
            if isinstance(asked.reply, ReceivedRecords):
                self.held = [
                    (each, run.ledger.delivered(each, asked.asked_ms, run.now_ms))
                    for each in asked.reply.records
                ]
                self.settle_at_ms = run.now_ms + run.luck.choice((0, 0, 100, LEASE_MS - 200))

    def _settle(self) -> None:
        run, ledger = self.run, self.run.ledger
        fate = 1.0 if run.is_draining else run.luck.random()
        self.settling, self.held = self.held, []
        if fate < 0.2:
            # Forgotten: the leases end.
            self.settling = []
            return
        command: type[Any] = ReleaseRecords if fate < 0.4 else AcknowledgeRecords
        fields = {"delay_ms": 0} if command is ReleaseRecords else {}
        for received, delivery in self.settling:
            delivery.is_settled = True
            if command is AcknowledgeRecords:
                ledger.done[(received.record.value or b"").decode()] = None
        claims = claims_by_queue(GROUP, [each.receipt for each, _ in self.settling])
        assert isinstance(claims, dict)
        self.is_acknowledging = command is AcknowledgeRecords
        self.asked = Asked(
            run,
            lambda backend, done: backend.queues.submit(
                command(on_reply=done, queue=run.queue, claims=claims[run.queue], **fields)
            ),
        )

    def _settled(self, reply: Any) -> None:
        if isinstance(reply, ClaimResults) and self.is_acknowledging:
            for (received, delivery), error in zip(self.settling, reply.errors, strict=True):
                if error is None:
                    self.run.ledger.finished_ms[delivery.offset] = self.run.now_ms
                    self.run.ledger.confirmed[(received.record.value or b"").decode()] = None
        self.asked, self.settling = None, []


class Run:
    """Three nodes, a topic, and clients; one node at a time is down."""

    def __init__(self, seed: int) -> None:
        self.stage = QueueStage(nodes=3, seed=seed)
        self.luck = random.Random(seed)
        self.ledger = Ledger()
        self.now_ms = 0
        self.is_draining = False
        self.topic_id = self.stage.create(replicas=(1, 2, 3))
        self.queue = QueueId(GROUP, self.topic_id, PartitionIndex(0))
        self.workers = [Worker(self, f"w{number}") for number in range(WORKERS)]
        self.down: tuple[str, int] | None = None

    def run(self) -> Ledger:
        while self.now_ms < RUN_MS:
            self._step()
            if self.now_ms % 100 == 0:
                self._produce()
            if self.now_ms % KILL_EVERY_MS == 0:
                self._kill()
        self.is_draining = True
        self._until(lambda: all(node.backend is not None for node in self.stage.nodes.values()), 30_000)
        consumer = QueueConsumer(self.stage, self.topic_id, node=1)
        self._until(lambda: self._is_drained(consumer), 120_000)
        self._compare_with_dead_letters()
        return self.ledger

    def _step(self) -> None:
        self.stage.pass_ms(STEP_MS)
        self.now_ms += STEP_MS
        if self.down is not None and self.now_ms >= self.down[1]:
            self.stage.world.nodes[self.down[0]].start()
            self.down = None
        for worker in self.workers:
            worker.step()

    def _until(self, condition: Callable[[], bool], limit_ms: int) -> None:
        end = self.now_ms + limit_ms
        while not condition():
            assert self.now_ms < end, "waited in vain"
            self._step()

    def _is_drained(self, consumer: QueueConsumer) -> bool:
        if self.now_ms % 1_000:
            return False
        described = consumer.describe()
        self.now_ms -= self.now_ms % STEP_MS
        return described.finished_below >= self.stage.led(TOPIC).log.last_stable_offset

    def _produce(self) -> None:
        partition = None
        for node in self.stage.live:
            found = None if node.backend is None else node.backend.partitions.find(TOPIC, 0)
            if found is not None and found.stopped is None and node.backend is not None:
                partition, backend = found, node.backend
        if partition is None:
            return
        value = f"v{len(self.ledger.sent)}"
        self.ledger.sent.append(value)
        clock = self.stage.nodes[backend.node.node_id].services._runtime.clock

        def done(results: list[Any]) -> None:
            if not isinstance(results[0], ApiError):
                self.ledger.produced[value] = None

        request = PendingProduce(ALL_ACKS, 5_000, clock.now(), done, lambda: None, lambda: None)
        batch = write_batch([Record(0, clock.wall(), None, value.encode())])
        backend.produce_service.produce(request, [(partition, memoryview(batch))])

    def _kill(self) -> None:
        if self.down is None:
            victim = self.luck.choice(list(self.stage.nodes.values()))
            victim.backend = None
            machine = self.stage.world.nodes[victim.name]
            (machine.cut_power if self.luck.random() < 0.5 else machine.kill)()
            self.down = (victim.name, self.now_ms + DOWN_MS)
            self.ledger.kills += 1

    def _compare_with_dead_letters(self) -> None:
        ledger = self.ledger
        known = self.stage.at(1).controller.image.topic(DEAD) is not None
        letters = self.stage.committed(DEAD) if known else []
        dead = [(letter.value or b"").decode() for letter in letters]
        if len(dead) != len(set(dead)):
            ledger.violations.append("a record was moved twice")
        for letter, value in zip(letters, dead, strict=True):
            if dict(letter.headers)["penstock-attempts"] != b"4":
                ledger.violations.append(f"{value} was given up, and not after four deliveries")
            if value in ledger.confirmed:
                ledger.violations.append(f"{value} was acknowledged and is a dead letter")
        for value in ledger.produced:
            if value not in ledger.done and value not in dead:
                ledger.violations.append(f"{value} is lost")


@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_is_lost_or_shared_whoever_is_killed(seed: int) -> None:
    ledger = Run(seed).run()

    assert ledger.violations == []
    assert ledger.kills >= 3
    assert len(ledger.produced) > 100
    assert len(ledger.confirmed) > 50


def test_leases_that_end_with_their_coordinator_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a new coordinator forgets what is leased."""
    go_live = Queue.go_live

    def forget(queue: Queue, now: Any) -> None:
        for entry in queue.entries.values():
            if entry.lease is not None:
                entry.state, entry.lease = type(entry.state).AVAILABLE, None
        go_live(queue, now)

    monkeypatch.setattr(Queue, "go_live", forget)

    assert any("two live leases" in each for seed in PLANTED_SEEDS for each in Run(seed).run().violations)
