"""Whatever consumers, leaders and time do: the machine agrees with a naive model, and its log with both."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.coordinator.queue_records import decode, encode
from penstock.core.model import ErrorKind, Offset, Timestamp
from penstock.core.queues import (
    AcknowledgeRecords,
    FinishMoves,
    LeaseClaim,
    PauseQueue,
    QueueCoordinator,
    QueueFact,
    QueueOptions,
    QueueRecord,
    QueueSettings,
    QueueTransactionEnded,
    RecordsAcquired,
    RecordState,
    RejectRecords,
    ReleaseRecords,
    RenewLeases,
    ReturnRecords,
)
from tests.property.queues.queue_model import ModelRecord, QueueModel
from tests.unit.core.queues.queue_driver import QUEUE, Driver, ignore, image_of, producer

OPTIONS = QueueOptions(window_max=8, delayed_max=4, look_ahead=6, expired_per_turn_max=3, stored_per_fact=2)
CONSUMERS = ("a", "b")
# Which of the last claims: mostly one of the newest.
BACK = st.sampled_from([0, 0, 1, 1, 2, 3, 5, 8])
ATTRIBUTES = st.tuples(
    st.sampled_from([None, 1, 1, 2]),
    st.sampled_from([0, 0, 0, 9]),
    st.sampled_from([-1, -1, -1, 1_500]),
    st.sampled_from([-1, -1, -1, 0, 2_500]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.lists(ATTRIBUTES, min_size=1, max_size=6)),
        st.tuples(st.just("acquire"), st.integers(1, 4), st.sampled_from(CONSUMERS)),
        st.tuples(st.just("acquire"), st.integers(1, 4), st.sampled_from(CONSUMERS)),
        st.tuples(st.just("acknowledge"), BACK, BACK),
        st.tuples(st.just("release"), BACK, st.sampled_from([0, 0, 1_000])),
        st.tuples(st.just("return"), BACK),
        st.tuples(st.just("reject"), BACK),
        st.tuples(st.just("renew"), BACK, st.sampled_from([None, None, 3_000])),
        st.tuples(st.just("lose"), st.sampled_from(CONSUMERS)),
        st.tuples(st.just("moved")),
        st.tuples(st.just("acknowledge in"), BACK, st.integers(1, 2)),
        st.tuples(st.just("end"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("pause"), st.booleans()),
        st.tuples(st.just("pass"), st.sampled_from([1, 40, 500, 900, 1_000, 2_000])),
        st.tuples(st.just("rewrite"), st.integers(1, 6)),
        st.tuples(st.just("failover")),
    ),
    min_size=20,
    max_size=70,
)


class Run:
    """One queue, its model, and a host that rewrites the log a few facts at a time."""

    def __init__(self, is_key_ordered: bool) -> None:
        self.settings = QueueSettings(is_key_ordered=is_key_ordered, deliveries_max=3, lease_ms=1_000)
        self.driver = Driver(OPTIONS)
        self.model = QueueModel(3, is_key_ordered, OPTIONS.expired_per_turn_max)
        self.claims: list[LeaseClaim] = []
        self.rewrite: Iterator[QueueFact] | None = None
        self.rewrite_start = 0
        self.driver.open(self.settings)

    def take(self, step: tuple[Any, ...]) -> None:  # noqa: C901, PLR0912 - one case per step
        driver, model = self.driver, self.model
        match step:
            case ("offer", attributes):
                self._offer(attributes)
            case ("acquire", int(records_max), str(consumer)):
                self._acquire(records_max, consumer)
            case ("acknowledge", back, other):
                for known in self._settle(AcknowledgeRecords, back, other):
                    known.state = None
            case ("release", back, delay_ms):
                for known in self._settle(ReleaseRecords, back, delay_ms=delay_ms):
                    model.fail(known, delay_ms, driver.now_ms)
            case ("return", back):
                for known in self._settle(ReturnRecords, back):
                    self.model.take_back(known, driver.now_ms)
            case ("reject", back):
                for known in self._settle(RejectRecords, back):
                    known.state = RecordState.MOVING
            case ("renew", back, lease_ms):
                for known in self._settle(RenewLeases, back, lease_ms=lease_ms):
                    known.lease_ms = lease_ms or known.lease_ms
                    known.lease_until_ms = driver.now_ms + known.lease_ms
            case ("lose", str(consumer)):
                driver.lose(consumer)
                for known in model.records.values():
                    if known.is_leased and known.producer is None and known.consumer == consumer:
                        model.fail(known, 0, driver.now_ms)
            case ("acknowledge in", back, int(producer_id)):
                who = producer(producer_id)
                for known in self._settle(AcknowledgeRecords, back, producer=who):
                    known.producer = who
            case _:
                self._take_of_host(step)
        self._check()

    def _take_of_host(self, step: tuple[Any, ...]) -> None:
        driver, model = self.driver, self.model
        match step:
            case ("moved",):
                moved = tuple(letter.offset for letter in driver.dead_letters().records)
                driver.ask(FinishMoves(on_reply=ignore, queue=QUEUE, offsets=moved))
                moving = [each for each in model.records.values() if each.state is RecordState.MOVING]
                assert moved == tuple(sorted(known.record.offset for known in moving))
                for known in moving:
                    known.state = None
            case ("end", int(producer_id), bool(is_commit)):
                driver.end_transaction(producer_id, is_commit=is_commit)
                model.end_transaction(producer_id, driver.now_ms, is_commit=is_commit)
                driver.pass_ms(0)
            case ("pause", bool(is_paused)):
                driver.ask(PauseQueue(on_reply=ignore, queue=QUEUE, is_paused=is_paused))
                model.is_paused = is_paused
            case ("pass", int(duration_ms)):
                # In small steps: the delay after a failure counts from when the lease ended.
                for _ in range(0, duration_ms, 100):
                    driver.pass_ms(min(100, duration_ms))
                    model.advance(driver.now_ms)
            case ("rewrite", int(facts)):
                self._rewrite(facts)
            case _:
                self.driver, self.rewrite = driver.failover(), None
                model.failover(driver.now_ms, driver.now.wall)

    def _offer(self, attributes: list[tuple[int | None, int, int, int]]) -> None:
        wall = self.driver.now.wall
        records = [
            QueueRecord(
                Offset(self.model.end + at),
                key,
                priority,
                Timestamp(wall + delay if delay >= 0 else -1),
                Timestamp(wall + ttl if ttl >= 0 else -1),
            )
            for at, (key, priority, delay, ttl) in enumerate(attributes)
        ]
        reply = self.driver.offer_records(records)
        taken = [record for record in records if record.offset < reply.demand.next_offset]
        self.model.take(taken, self.driver.now_ms, wall)
        self.model.end = reply.demand.next_offset

    def _acquire(self, records_max: int, consumer: str) -> None:
        driver = self.driver
        reply = driver.acquire(records_max, consumer)
        chosen = self.model.acquire(records_max, consumer, 1_000, driver.now_ms, driver.now.wall)

        assert isinstance(reply, RecordsAcquired)
        assert list(reply.records) == [(known.record.offset, known.attempts) for known in chosen]
        self.model.delivered(reply, driver.now_ms)
        self.claims += [LeaseClaim(record.offset, record.attempt, reply.token) for record in reply.records]

    def _settle(self, command: type[Any], *backs: int, **fields: Any) -> list[ModelRecord]:
        """The records that the machine grants, which must be those that the model does."""
        claims = [self.claims[-1 - back] for back in dict.fromkeys(backs) if back < len(self.claims)]
        errors = self.driver.settle(command, claims, **fields)
        granted = [self.model.holder_of(claim) for claim in claims]
        for claim, error, known in zip(claims, errors, granted, strict=True):
            assert (error is None) == (known is not None), (claim, error)
            assert error in (None, ErrorKind.INVALID_RECORD_STATE, ErrorKind.CONCURRENT_TRANSACTIONS)
        return [known for known in granted if known is not None]

    def _rewrite(self, facts: int) -> None:
        """Some facts of a snapshot; once all of them are written, what was before is cut off."""
        driver = self.driver
        if self.rewrite is None:
            self.rewrite, self.rewrite_start = driver.machine.snapshot(), len(driver.log)
        for _ in range(facts):
            fact = next(self.rewrite, None)
            if fact is None:
                del driver.log[: self.rewrite_start]
                self.rewrite = None
                return
            driver.machine.apply(fact)
            driver.log.append(fact)

    def _check(self) -> None:
        queue = self.driver.machine.queues[QUEUE]
        expected = {
            known.record.offset: (known.state, known.attempts, known.delay_ms, known.producer)
            for known in self.model.records.values()
            if known.state is not None
        }
        found = {
            offset: (entry.state, entry.attempts, entry.delay_ms, entry.producer)
            for offset, entry in queue.entries.items()
        }
        assert found == expected
        assert queue.end == self.model.end
        assert len(found) <= OPTIONS.window_max + OPTIONS.delayed_max


@settings(max_examples=60, deadline=None)
@given(st.booleans(), STEPS)
def test_the_machine_agrees_with_the_model_and_the_log_with_the_machine(
    is_key_ordered: bool, steps: list[tuple[Any, ...]]
) -> None:
    run = Run(is_key_ordered)
    for step in steps:
        run.take(step)

    machine = run.driver.machine
    for facts in (run.driver.log, list(machine.snapshot())):
        rebuilt = QueueCoordinator(OPTIONS)
        for fact in facts:
            read = fact if isinstance(fact, QueueTransactionEnded) else decode(*encode(fact))
            assert read is not None
            rebuilt.apply(read)
        assert image_of(rebuilt) == image_of(machine)
    assert machine.size() <= len(list(machine.snapshot())) <= machine.size() + 1


@settings(max_examples=20, deadline=None)
@given(st.booleans(), STEPS)
def test_every_record_is_finished_in_the_end(is_key_ordered: bool, steps: list[tuple[Any, ...]]) -> None:
    run = Run(is_key_ordered)
    for step in steps:
        run.take(step)

    run.take(("pause", False))
    for producer_id in (1, 2):
        run.take(("end", producer_id, False))
    for _ in range(60):
        run.take(("pass", 2_000))
        run.take(("acquire", 4, "a"))
        run.take(("acknowledge", 0, 1))
        run.take(("moved",))

    assert run.driver.machine.queues[QUEUE].entries == {}
    for known in run.model.records.values():
        attempts = [attempt for attempt, _ in known.deliveries]
        assert attempts == list(range(1, len(attempts) + 1)), "every delivery is counted"
