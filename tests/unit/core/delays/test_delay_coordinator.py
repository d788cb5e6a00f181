"""The machine of delayed records: what is due, who decides on it, and what a replay rebuilds."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.delays import (
    BEING_PUBLISHED,
    NOT_PENDING,
    CancelDelays,
    DelayCommand,
    DelayCoordinator,
    DelayedRecords,
    DelayEvent,
    DelayFact,
    DelayOptions,
    DelayReply,
    DelayResults,
    DelaysDropped,
    DelaysDue,
    DelaysStored,
    DelayTopics,
    DelayTransactionEnded,
    DueDelays,
    EndDelays,
    FindDelays,
    PendingDelay,
    ReleaseDelays,
    ScheduleRecords,
    TakeDueDelays,
)
from penstock.core.model import (
    MILLISECOND,
    ApiError,
    ErrorKind,
    Instant,
    Now,
    Offset,
    ProducerEpoch,
    ProducerId,
    Timestamp,
)
from penstock.core.queues import TransactionProducer

START = 1_700_000_000_000
PRODUCER = TransactionProducer(ProducerId(9), ProducerEpoch(0))
DAY_MS = 86_400_000


class Driver:
    """A host with a log that never fails."""

    def __init__(self, options: DelayOptions | None = None, facts: list[DelayFact] | None = None) -> None:
        self.machine = DelayCoordinator(Timestamp(START), options or DelayOptions(ahead_ms=0))
        self.log: list[DelayFact] = []
        self.events: list[DelayEvent] = []
        self.instant_ms = 0
        self.wall_ms = START
        self.lanes = 0
        for fact in facts or ():
            self._append(fact)
        self._settle(self.machine.resume(self.now))

    @property
    def now(self) -> Now:
        return Now(Instant(self.instant_ms * MILLISECOND), Timestamp(self.wall_ms))

    def _append(self, fact: DelayFact) -> None:
        located = fact._replace(offset=Offset(len(self.log))) if isinstance(fact, DelaysStored) else fact
        self.log.append(fact)
        self.machine.apply(located)

    def _settle(self, outcome: Any) -> list[DelayReply]:
        for fact in outcome.facts:
            self._append(fact)
        self.events += outcome.events
        return [reply for _, reply in outcome.responses]

    def submit(self, command: type[Any], **fields: Any) -> DelayReply:
        made: DelayCommand = command(on_reply=lambda _: None, partition=0, **fields)
        (reply,) = self._settle(self.machine.decide(made, self.now))
        return reply

    def schedule(self, *delays: tuple[int, int], topic: str = "orders") -> list[ApiError | None]:
        """Delays by id and milliseconds from now on."""
        reply = self.submit(ScheduleRecords, records=(self.records(*delays, topic=topic),))
        assert isinstance(reply, DelayResults), reply
        return list(reply.errors)

    def records(self, *delays: tuple[int, int], topic: str = "orders") -> DelayedRecords:
        count = len(delays)
        return DelayedRecords(
            topic,
            tuple(number for number, _ in delays),
            tuple(self.wall_ms + delay_ms for _, delay_ms in delays),
            (-1,) * count,
            tuple(range(1, count + 1)),
            b"v" * count,
        )

    def take(
        self, records_max: int = 100, bytes_max: int = 1_000, lane: int | None = None, ahead_ms: int = 0
    ) -> list[int]:
        """Take delays that are due, in a lane of its own if none is named."""
        self.lanes += 1
        number = 100 + self.lanes if lane is None else lane
        until = Timestamp(self.wall_ms + ahead_ms)
        reply = self.submit(
            TakeDueDelays, lane=number, until=until, records_max=records_max, bytes_max=bytes_max
        )
        assert isinstance(reply, DueDelays), reply
        assert reply.offsets == tuple(self.machine.pending.offset_of(each) for each in reply.ids)
        return list(reply.ids)

    def cancel(self, delay_id: int) -> ApiError | None:
        reply = self.submit(CancelDelays, ids=(delay_id,))
        assert isinstance(reply, DelayResults), reply
        return reply.errors[0]

    def find(self, *ids: int) -> DelayReply:
        return self.submit(FindDelays, ids=ids)

    def cancel_of(self, topic: str, delay_id: int) -> DelayReply:
        return self.submit(CancelDelays, ids=(delay_id,), topics=(topic,))

    def marker(self, *, is_commit: bool) -> None:
        self._append(DelayTransactionEnded(PRODUCER.producer_id, is_commit))

    def pass_ms(self, duration_ms: int) -> None:
        """As the runtime does: expire whenever the machine says so."""
        end = self.instant_ms + duration_ms
        while (due := self.machine.next_deadline()) is not None and due <= end * MILLISECOND:
            step = max(0, -(-due // MILLISECOND) - self.instant_ms)
            self.instant_ms, self.wall_ms = self.instant_ms + step, self.wall_ms + step
            self._settle(self.machine.expire(self.now))
            if self.machine.next_deadline() == due:
                break
        self.wall_ms += end - self.instant_ms
        self.instant_ms = end

    def image(self) -> list[PendingDelay]:
        return list(self.machine.pending.after(-1))


def test_a_delay_is_taken_when_it_is_due_and_not_before() -> None:
    driver = Driver()
    assert driver.schedule((1, 1_000), (2, 3_000)) == [None, None]

    driver.pass_ms(999)
    assert driver.take() == []
    assert driver.events == []

    driver.pass_ms(1)
    assert isinstance(driver.events[-1], DelaysDue)
    assert driver.take() == [1]
    assert driver.take() == []


def test_a_delay_is_reported_and_given_out_a_little_ahead_and_no_more() -> None:
    driver = Driver(DelayOptions(ahead_ms=10))
    driver.schedule((1, 1_000), (2, 1_004), (3, 1_010))

    driver.pass_ms(989)
    assert driver.events == []
    # Whoever asks for more does not get it.
    assert driver.take(ahead_ms=500) == []

    driver.pass_ms(1)
    assert isinstance(driver.events[-1], DelaysDue)
    assert driver.machine.first_due == START + 1_000
    assert driver.take() == []
    assert driver.take(ahead_ms=500) == [1]
    assert driver.cancel(1) == BEING_PUBLISHED
    assert driver.cancel(3) is None

    driver.pass_ms(5)
    assert driver.take(ahead_ms=9) == [2]


def test_what_was_taken_ahead_and_released_is_given_out_again_at_its_time() -> None:
    driver = Driver(DelayOptions(ahead_ms=10))
    driver.schedule((1, 1_000))
    driver.pass_ms(990)
    assert driver.take(ahead_ms=10) == [1]

    # The clock goes back.
    driver.wall_ms -= 500
    driver.submit(ReleaseDelays, ids=(1,))
    assert driver.take(ahead_ms=10) == []
    driver.pass_ms(499)
    assert driver.take(ahead_ms=10) == []
    driver.pass_ms(1)
    assert driver.take(ahead_ms=10) == [1]


def test_a_report_ahead_of_time_costs_no_more_steps_than_one_in_time() -> None:
    driver = Driver(DelayOptions(ahead_ms=10))
    driver.schedule((1, 70_000), (2, 3_600_000))
    steps = 0
    while driver.instant_ms < 3_500_000:
        due = driver.machine.next_deadline()
        assert due is not None
        wait_ms = max(0, -(-due // MILLISECOND) - driver.instant_ms)
        driver.instant_ms, driver.wall_ms = driver.instant_ms + wait_ms, driver.wall_ms + wait_ms
        driver._settle(driver.machine.expire(driver.now))
        driver.take(ahead_ms=10)
        steps += 1
        # The clock is looked at once a second.
        assert steps < 3_600


def test_delays_are_found_by_id_with_their_topics() -> None:
    driver = Driver(DelayOptions(ahead_ms=0, delays_max=3))
    driver.schedule((1, 1_000), (2, 1_000))

    assert driver.find(2, 7, 1) == DelayTopics(("orders", None, "orders"))
    for count in (0, 4):
        assert isinstance(driver.find(*range(count)), ApiError)


def test_a_delay_of_another_topic_than_the_expected_one_is_not_cancelled() -> None:
    driver = Driver()
    driver.schedule((1, 1_000))

    assert driver.cancel_of("other", 1) == DelayResults((NOT_PENDING,))
    assert isinstance(driver.submit(CancelDelays, ids=(1,), topics=("orders", "orders")), ApiError)
    assert driver.cancel_of("orders", 1) == DelayResults((None,))


def test_an_id_that_was_cancelled_and_is_used_again_waits_for_its_new_time() -> None:
    driver = Driver()
    driver.schedule((1, 1_000))
    driver.pass_ms(10)
    assert driver.take() == []
    assert driver.cancel(1) is None
    driver.schedule((1, 60_000))

    driver.pass_ms(2_000)
    assert driver.take() == []
    driver.pass_ms(58_000)
    assert driver.take() == [1]


def test_a_clock_that_jumps_ahead_is_noticed_within_a_second() -> None:
    driver = Driver()
    driver.schedule((1, 3_600_000))
    driver.pass_ms(10)

    driver.wall_ms += 3_600_000
    driver.pass_ms(1_000)

    assert driver.events != []
    assert driver.take() == [1]


def test_a_committed_transaction_ends_its_delays() -> None:
    driver = Driver()
    driver.schedule((1, 0), (2, 0))
    assert sorted(driver.take()) == [1, 2]

    assert driver.submit(EndDelays, ids=(1, 2), producer=PRODUCER) == DelayResults(())
    assert driver.cancel(1) == BEING_PUBLISHED
    assert len(driver.machine.pending) == 2
    driver.marker(is_commit=True)

    assert len(driver.machine.pending) == 0
    assert driver.cancel(1) == NOT_PENDING


def test_an_aborted_one_leaves_them_to_be_taken_again() -> None:
    driver = Driver()
    driver.schedule((1, 0))
    driver.take()
    driver.submit(EndDelays, ids=(1,), producer=PRODUCER)
    driver.submit(ReleaseDelays, ids=(1,))
    assert driver.take() == []

    driver.marker(is_commit=False)
    assert driver.take() == [1]


def test_a_lane_that_takes_again_gets_what_it_does_not_know_of() -> None:
    driver = Driver()
    driver.schedule((1, 0), (2, 0), (3, 0))
    assert driver.take(records_max=2, lane=0) == [1, 2]
    assert driver.take(lane=1) == [3]
    driver.submit(EndDelays, ids=(1,), producer=PRODUCER)

    assert driver.take(lane=0) == [2]
    driver.submit(ReleaseDelays, ids=(2,))
    assert driver.take(lane=1) == [2, 3]
    assert driver.take(lane=0) == []


def test_two_transactions_cannot_end_one_delay() -> None:
    driver = Driver()
    driver.schedule((1, 0))
    driver.take()
    other = TransactionProducer(ProducerId(10), ProducerEpoch(0))

    assert driver.submit(EndDelays, ids=(1,), producer=PRODUCER) == DelayResults(())
    assert driver.submit(EndDelays, ids=(1,), producer=other) == NOT_PENDING


def test_a_new_leader_does_not_take_what_an_open_transaction_decides_on() -> None:
    before = Driver()
    before.schedule((1, 0), (2, 0))
    before.take()
    before.submit(EndDelays, ids=(1,), producer=PRODUCER)

    after = Driver(facts=before.log)
    assert any(isinstance(event, DelaysDue) for event in after.events)
    assert after.take() == [2]
    after.marker(is_commit=False)
    assert after.take() == [1]


def test_a_topic_that_cannot_be_written_to_waits_alone_and_longer_each_time() -> None:
    driver = Driver(DelayOptions(blocked_ms=100, blocked_ms_max=400))
    driver.schedule((1, 0), topic="gone")
    assert driver.take() == [1]
    driver.submit(ReleaseDelays, ids=(1,), blocked=("gone",))
    driver.schedule((2, 0))

    assert driver.take() == [2]
    driver.pass_ms(100)
    assert driver.take() == [1]
    driver.submit(ReleaseDelays, ids=(1,), blocked=("gone",))
    driver.pass_ms(150)
    assert driver.take() == []
    assert driver.cancel(1) is None


def test_what_cannot_be_published_for_long_is_dropped() -> None:
    driver = Driver(DelayOptions(drop_ms=60_000))
    driver.schedule((1, 0), topic="gone")
    for _ in range(2):
        assert driver.take() == [1]
        driver.submit(ReleaseDelays, ids=(1,), blocked=("gone",))
        driver.pass_ms(30_000)
    assert driver.take() == [1]
    driver.submit(ReleaseDelays, ids=(1,), blocked=("gone",))
    driver.pass_ms(1_000)

    assert driver.take() == []
    assert driver.events[-1] == DelaysDropped("gone", 1)
    assert len(driver.machine.pending) == 0


def test_what_is_due_since_long_ago_is_not_dropped_after_one_failure() -> None:
    driver = Driver()
    driver.schedule((1, 0))
    driver.wall_ms += 8 * DAY_MS
    assert driver.take() == [1]
    driver.submit(ReleaseDelays, ids=(1,), blocked=("orders",))
    driver.pass_ms(1_000)

    assert driver.take() == [1]
    assert len(driver.machine.pending) == 1


def test_limits_are_errors_of_single_records() -> None:
    driver = Driver(DelayOptions(pending_max=2))
    too_far, first, again, second, third = driver.schedule((1, 367 * DAY_MS), (2, 5), (2, 6), (3, 5), (4, 5))

    assert (first, second) == (None, None)
    assert too_far is not None
    assert too_far.kind is ErrorKind.INVALID_REQUEST
    assert again is not None
    assert third is not None
    assert third.kind is ErrorKind.THROTTLED
    assert driver.schedule((2, 5)) == [None]


def test_records_of_several_topics_get_their_results_in_order() -> None:
    driver = Driver()
    driver.schedule((5, 100))
    records = (
        driver.records((1, 5), (2, 5)),
        driver.records((2, 5), (3, 367 * DAY_MS), (4, 5), topic="others"),
        driver.records((5, 100), (5, 101)),
    )

    reply = driver.submit(ScheduleRecords, records=records)

    assert isinstance(reply, DelayResults)
    assert [error is None for error in reply.errors] == [True, True, False, False, True, True, False]
    assert [(delay.id, delay.topic) for delay in driver.image()] == [
        (1, "orders"),
        (2, "orders"),
        (4, "others"),
        (5, "orders"),
    ]


def test_records_are_stored_in_portions() -> None:
    driver = Driver(DelayOptions(portion_bytes=40))

    driver.schedule(*((number, 5) for number in range(100)))

    stored = [fact for fact in driver.log if isinstance(fact, DelaysStored)]
    assert [len(fact.records.ids) for fact in stored] == [40, 40, 20]
    assert all(fact.records.is_whole for fact in stored)
    assert len(driver.machine.pending) == 100


def test_an_id_that_comes_up_twice_is_taken_once() -> None:
    driver = Driver()
    driver.schedule((1, 1_000))
    driver.pass_ms(10)
    assert driver.cancel(1) is None
    driver.schedule((1, 990), (2, 990))

    driver.pass_ms(1_000)
    assert sorted(driver.take()) == [1, 2]


def test_what_is_due_is_taken_up_to_a_size() -> None:
    driver = Driver()
    driver.schedule(*((number, 0) for number in range(10)))

    assert len(driver.take(bytes_max=3)) == 3
    assert len(driver.take(records_max=4)) == 4
    assert len(driver.take()) == 3


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("schedule", "schedule", "cancel", "take", "end", "commit", "abort", "release", "pass")
        ),
        st.integers(0, 12),
        st.integers(0, 3_000),
    ),
    max_size=50,
)


@settings(max_examples=200)
@given(STEPS, st.sampled_from((0, 10, 1_000)))
def test_a_replay_rebuilds_the_state_and_nothing_is_lost_or_taken_twice_or_too_early(
    steps: list[tuple[str, int, int]], ahead_ms: int
) -> None:
    driver = Driver(DelayOptions(ahead_ms=ahead_ms))
    lanes: list[list[int]] = [[], []]
    for step, number, time_ms in steps:
        match step:
            case "schedule":
                driver.schedule((number, time_ms))
            case "cancel":
                driver.cancel(number)
            case "take":
                lanes[number % 2] = driver.take(records_max=5, lane=number % 2, ahead_ms=time_ms)
                until = driver.wall_ms + min(ahead_ms, time_ms)
                dues = {delay.id: delay.deliver_at for delay in driver.image()}
                assert all(dues[each] <= until for each in lanes[number % 2])
                assert not set(lanes[0]) & set(lanes[1])
                assert not set(lanes[number % 2]) & set(driver.machine.ending)
            case "end" if lanes[number % 2]:
                driver.submit(EndDelays, ids=tuple(lanes[number % 2]), producer=PRODUCER)
                lanes[number % 2] = []
            case "commit" | "abort":
                driver.marker(is_commit=step == "commit")
            case "release":
                driver.submit(ReleaseDelays, ids=tuple(lanes[number % 2]))
                lanes[number % 2] = []
            case _:
                driver.pass_ms(time_ms)

        copy = Driver(facts=driver.log)
        assert copy.image() == driver.image()
        assert copy.machine.ending == driver.machine.ending

    driver.submit(ReleaseDelays, ids=(*lanes[0], *lanes[1]))
    driver.marker(is_commit=False)
    driver.pass_ms(4_000)
    assert sorted(driver.take(1_000)) == [delay.id for delay in driver.image()]
