"""Records that are published later, on whole nodes: when, where, and once."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock.broker.delays.delay_view import DelayRequest
from penstock.broker.delays.publisher import REST_MS, DelayPublisher
from penstock.core.delays import (
    NOT_PENDING,
    DelayCommand,
    DelayId,
    DueDelays,
    ReleaseDelays,
    TakeDueDelays,
    write_delay_id,
)
from penstock.core.metadata import DELAYED_TOPIC
from penstock.core.model import ApiError, ErrorKind, Timestamp
from penstock.core.records.builder import pack_body
from tests.unit.broker.delays.delay_stage import DelayStage
from tests.unit.broker.queues.queue_stage import TOPIC


def test_a_record_is_published_when_it_is_due_and_not_before() -> None:
    stage = DelayStage()
    stage.create()
    stage.delay("later", 5_000)

    stage.pass_ms(4_800)
    assert stage.values() == []

    stage.pass_ms(1_000)
    assert stage.values() == ["later"]
    assert stage.pending() == 0


def log_end_by_wall(stage: DelayStage, duration_ms: int) -> dict[int, int]:
    """The end of the topic's log, committed or not, in each millisecond of the node's clock."""
    ends: dict[int, int] = {}
    for _ in range(duration_ms):
        ends[stage.wall()] = stage.led(TOPIC).log.end
        stage.pass_ms(1)
    return ends


def open_partitions(stage: DelayStage) -> set[str]:
    """The topics that take part in open transactions."""
    service: Any = stage.nodes[1].services._transactions
    return {
        partition.topic
        for coordinator in service
        for known in coordinator.machine.image.transactions.values()
        if known.state.is_open
        for partition in known.partitions
    }


def warm_up(stage: DelayStage) -> None:
    """The first record that a cluster publishes creates topics."""
    stage.create()
    stage.delay("first", 1)
    stage.until(lambda: stage.values() == ["first"] and stage.pending() == 0)
    stage.pass_ms(1_000)


def has_values(stage: DelayStage, count: int) -> bool:
    return len(stage.values()) == count


def test_nothing_is_in_the_log_before_it_is_due_not_even_uncommitted() -> None:
    stage = DelayStage()
    warm_up(stage)
    start = stage.led(TOPIC).log.end
    dues = sorted(stage.wall() + 200 + 7 * at for at in range(12))
    for at, due in enumerate(dues):
        stage.delay(f"r{at}", 0, id=at, deliver_at=due)

    ends = log_end_by_wall(stage, 600)

    assert stage.pending() == 0
    for wall, end in ends.items():
        # Beside the records there are markers, which come behind them.
        due_by_then = sum(due <= wall for due in dues)
        assert end - start <= 2 * due_by_then, wall - dues[0]


def test_the_transaction_has_its_partitions_before_the_record_is_due() -> None:
    stage = DelayStage()
    warm_up(stage)
    start, due = stage.led(TOPIC).log.end, stage.wall() + 500
    stage.delay("x", 0, deliver_at=due)
    assert open_partitions(stage) == set()

    stage.pass_ms(due - 2 - stage.wall())
    assert open_partitions(stage) == {TOPIC, DELAYED_TOPIC}
    assert stage.led(TOPIC).log.end == start

    stage.until(lambda: stage.values() == ["first", "x"])


def test_a_clock_that_goes_back_makes_a_record_wait_for_its_time_again() -> None:
    stage = DelayStage()
    warm_up(stage)
    due = stage.wall() + 500
    start = stage.led(TOPIC).log.end
    stage.delay("x", 0, deliver_at=due)
    stage.until(lambda: open_partitions(stage) != set())

    stage.world.nodes["n1"].jump_clock(-5_000)
    stage.pass_ms(4_900)
    # The transaction was given up; nothing was written.
    assert open_partitions(stage) == set()
    assert stage.values() == ["first"]
    assert stage.led(TOPIC).log.end <= start + 1

    stage.until(lambda: stage.values() == ["first", "x"])
    assert stage.committed(TOPIC)[-1].timestamp >= due
    assert stage.pending() == 0


@pytest.mark.parametrize("before_ms", [9, 6, 3, 1])
@pytest.mark.parametrize("power", [False, True])
def test_a_node_that_dies_just_before_a_record_is_due_publishes_it_once_when_it_is_back(
    before_ms: int, power: bool
) -> None:
    stage = DelayStage()
    warm_up(stage)
    due = stage.wall() + 500
    stage.delay("x", 0, deliver_at=due)
    stage.pass_ms(due - before_ms - stage.wall())

    machine = stage.world.nodes["n1"]
    (machine.cut_power if power else machine.kill)()
    stage.pass_ms(100)
    stage.nodes[1].backend = None
    machine.start()
    stage.until(lambda: stage.nodes[1].backend is not None and "x" in stage.values(), 60)
    stage.pass_ms(5_000)

    assert stage.values() == ["first", "x"]
    assert stage.committed(TOPIC)[-1].timestamp >= due
    assert stage.pending() == 0


def test_a_record_that_is_due_when_it_is_stored_waits_for_the_log_alone() -> None:
    stage = DelayStage()
    warm_up(stage)
    # A sync takes longer than a look at what is due.
    stage.world.nodes["n1"].pace.slowness = 50
    for at in range(20):
        now = stage.wall()
        stage.delay(f"r{at}", 0, id=at, deliver_at=now - at % 3)
        stage.until(partial(has_values, stage, at + 2))
        # A publisher that finds it is not there yet rests.
        assert stage.committed(TOPIC)[-1].timestamp - now < REST_MS


def test_what_is_due_at_once_is_published_in_one_transaction_whatever_partitions_it_waited_in() -> None:
    stage = DelayStage()
    stage.create()
    for at in range(4):
        stage.delay(f"first {at}", 100, id=at)
    stage.until(lambda: len(stage.values()) == 4)
    end = stage.led(TOPIC).log.end

    deliver_at = stage.wall() + 5_000
    for at in range(8):
        stage.delay(f"then {at}", 0, id=at, deliver_at=deliver_at)
    stage.until(lambda: len(stage.values()) == 12)

    # Eight records and one marker.
    assert stage.led(TOPIC).log.end == end + 9


def test_no_record_of_a_steady_stream_waits_for_the_coordinator_to_report_it_again() -> None:
    stage = DelayStage()
    stage.create()
    due: dict[str, int] = {}
    for at in range(150):
        due[f"r{at}"] = stage.wall() + 40 + at % 7
        stage.delay(f"r{at}", 0, id=at, deliver_at=due[f"r{at}"])
        stage.pass_ms(1)
    stage.until(lambda: len(stage.values()) == len(due))

    # Those that are lost sight of are reported after a second.
    late = [record.timestamp - due[(record.value or b"").decode()] for record in stage.committed(TOPIC)[1:]]
    assert min(late) >= 0
    assert max(late) < 500


def test_key_headers_and_partition_are_kept() -> None:
    stage = DelayStage()
    stage.create()
    stage.delay("x", 100, key=b"k", partition=0, headers=(("a", b"1"), ("b", None)))
    stage.until(lambda: len(stage.values()) == 1)

    (record,) = stage.committed("orders")
    assert (record.key, record.value, record.headers) == (b"k", b"x", (("a", b"1"), ("b", None)))


def test_results_are_in_the_order_of_the_request_whatever_becomes_of_its_records() -> None:
    stage = DelayStage()
    stage.create()
    stage.create("other")
    stage.delay("first", 1)
    deliver_at = Timestamp(stage.wall() + 1_000)
    requests = [
        DelayRequest("other", deliver_at, pack_body(None, b"a")),
        DelayRequest("missing", deliver_at, pack_body(None, b"b")),
        DelayRequest(TOPIC, deliver_at, pack_body(None, b"c"), id=5),
        DelayRequest(TOPIC, deliver_at, pack_body(b"key", b"d"), id=6),
        DelayRequest(TOPIC, deliver_at, pack_body(None, b"e"), partition=1),
        DelayRequest("other", deliver_at, pack_body(None, b"f"), id=7),
        DelayRequest(TOPIC, deliver_at, pack_body(None, b"g" * 2_000_000)),
        DelayRequest(TOPIC, Timestamp(-1), pack_body(None, b"h")),
        DelayRequest(TOPIC, deliver_at, pack_body(None, b"i")),
    ]

    results = stage.delay_all(requests)

    kinds = [each.kind if isinstance(each, ApiError) else None for each in results]
    assert kinds == [
        None,
        ErrorKind.UNKNOWN_TOPIC,
        None,
        None,
        ErrorKind.UNKNOWN_PARTITION,
        None,
        ErrorKind.BATCH_TOO_LARGE,
        ErrorKind.INVALID_REQUEST,
        None,
    ]
    ids = [each for each in results if isinstance(each, str)]
    assert len(set(ids)) == 5
    assert stage.cancel(ids[3]) is None
    stage.pass_ms(3_000)
    assert sorted(stage.values()) == ["c", "d", "first", "i"]
    assert stage.values("other") == ["a"]


def test_records_of_one_request_for_one_topic_are_one_record_of_the_log() -> None:
    stage = DelayStage()
    stage.create()
    stage.delay("first", 1)
    stage.until(lambda: stage.pending() == 0)
    before = sum(end for _, end in stage.delayed_logs())
    deliver_at = Timestamp(stage.wall() + 60_000)

    results = stage.delay_all([DelayRequest(TOPIC, deliver_at, pack_body(None, b"x"))] * 100)

    assert len(set(results)) == 100
    assert stage.pending() == 100
    assert sum(end for _, end in stage.delayed_logs()) == before + 1


def test_what_does_not_fit_into_one_batch_is_published_in_several() -> None:
    stage = DelayStage()
    stage.create()
    stage.delay("first", 1)
    deliver_at = Timestamp(stage.wall() + 1_000)
    values = [b"%03d" % number + b"x" * 2_000 for number in range(400)]

    # In several partitions of `__delayed`, due at once, and more than a transaction takes for one partition.
    for start in range(0, 400, 50):
        requests = [
            DelayRequest(TOPIC, deliver_at, pack_body(None, value), id=number)
            for number, value in enumerate(values[start : start + 50], start)
        ]
        assert all(isinstance(each, str) for each in stage.delay_all(requests))
    stage.until(lambda: len(stage.values()) == 401)

    assert sorted(stage.values()) == sorted([value.decode() for value in values] + ["first"])
    stage.until(lambda: stage.pending() == 0)


def test_a_cancelled_record_is_not_published_and_a_published_one_not_cancelled() -> None:
    stage = DelayStage()
    stage.create()
    doomed, kept = stage.delay("doomed", 2_000), stage.delay("kept", 1_000)

    assert stage.cancel(doomed) is None
    assert stage.listed() == [kept]
    stage.pass_ms(5_000)

    assert stage.values() == ["kept"]
    for delay_id in (doomed, kept):
        error = stage.cancel(delay_id)
        assert error is not None
        assert error.kind is ErrorKind.INVALID_RECORD_STATE


@pytest.mark.parametrize("node", [1, 2])
def test_what_is_for_topics_of_others_is_not_cancelled_and_looks_absent(node: int) -> None:
    stage = DelayStage(2)
    stage.create()
    stage.create("other")
    mine, other = stage.delay("mine", 600_000), stage.delay("other", 600_000, topic="other")
    absent = write_delay_id(DelayId(0, 12345))
    asked: list[str] = []

    def may_write(topic: str) -> bool:
        asked.append(topic)
        return topic == TOPIC

    cancel = stage.at(node).delays.cancel
    results = stage.ask(lambda done: cancel([other, absent, mine, mine, "nonsense"], done, may_write))

    assert results[:3] == [NOT_PENDING, NOT_PENDING, None]
    assert all(isinstance(error, ApiError) for error in results[3:])
    assert sorted(asked) == sorted(["other", TOPIC])
    assert stage.listed() == [other]


def test_a_record_that_is_sent_again_under_its_id_is_published_once() -> None:
    stage = DelayStage()
    stage.create()
    deliver_at = stage.wall() + 1_000
    first = stage.delay("x", 0, id=77, deliver_at=deliver_at)
    stage.pass_ms(1)

    assert stage.delay("x", 0, id=77, deliver_at=deliver_at) == first
    stage.pass_ms(3_000)
    assert stage.values() == ["x"]


def test_what_is_due_while_the_node_is_down_is_published_when_it_is_back() -> None:
    stage = DelayStage()
    stage.create()
    for at in range(20):
        stage.delay(f"r{at}", 1_000 + 100 * at)

    stage.world.nodes["n1"].kill()
    stage.pass_ms(2_000)
    stage.nodes[1].backend = None
    stage.world.nodes["n1"].start()
    stage.until(
        lambda: stage.nodes[1].backend is not None and stage.pending() == 0 and bool(stage.values()), 60
    )
    stage.pass_ms(5_000)

    assert sorted(stage.values()) == sorted(f"r{at}" for at in range(20))


def test_a_topic_that_is_not_there_when_its_record_is_due_is_waited_for() -> None:
    stage = DelayStage()
    topic_id = stage.create()
    stage.create("other")
    stage.delay("x", 1_000)
    stage.delay("y", 1_500, topic="other")
    stage.ask(lambda done: stage.at(1).topics.delete([topic_id], done))

    stage.pass_ms(5_000)
    assert stage.values("other") == ["y"]
    assert stage.pending() == 1

    stage.create()
    stage.until(lambda: stage.values() == ["x"], 60)


@pytest.mark.parametrize("lane", [0, 1])
def test_delays_are_published_although_the_reply_that_names_them_was_an_error(
    lane: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = DelayStage()
    stage.create()
    service: Any = stage.nodes[1].services._delays
    submit, failed = service.submit, list[int]()

    def fail_once(command: DelayCommand) -> None:
        if not isinstance(command, TakeDueDelays):
            submit(command)
            return

        def on_reply(reply: Any) -> None:
            if isinstance(reply, DueDelays) and reply.ids and command.lane == lane and not failed:
                failed.append(lane)
                reply = ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE)
            command.on_reply(reply)

        submit(replace(command, on_reply=on_reply))

    monkeypatch.setattr(service, "submit", fail_once)
    expected: list[str] = []
    while not failed:
        expected.append(f"r{len(expected)}")
        stage.delay(expected[-1], 1)
        stage.pass_ms(2)
        assert len(expected) < 200
    stage.until(lambda: sorted(stage.values()) == sorted(expected))
    assert stage.pending() == 0


def test_nobody_holds_a_delay_although_its_release_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = DelayStage()
    stage.create()
    delay_id = stage.delay("x", 5_000)
    service: Any = stage.nodes[1].services._delays
    submit, refused = service.submit, list[DelayCommand]()

    def refuse_once(command: DelayCommand) -> None:
        if isinstance(command, ReleaseDelays) and not refused:
            refused.append(command)
            command.on_reply(ApiError(ErrorKind.COORDINATOR_NOT_AVAILABLE))
        else:
            submit(command)

    monkeypatch.setattr(service, "submit", refuse_once)
    monkeypatch.setattr(DelayPublisher, "_target_of", lambda *_: None)
    stage.until(lambda: bool(refused), 60)

    # It waits for its topic, and nobody holds it between attempts.
    errors = [stage.cancel(delay_id)]
    while errors[-1] is not None and len(errors) < 20:
        stage.pass_ms(100)
        errors.append(stage.cancel(delay_id))
    assert errors[-1] is None


def test_lists_are_by_topic_and_go_on_where_they_ended() -> None:
    stage = DelayStage()
    stage.create()
    stage.create("other")
    ids = [stage.delay(f"r{at}", 60_000) for at in range(7)]
    others = [stage.delay(f"o{at}", 60_000, topic="other") for at in range(3)]

    assert sorted(stage.listed(count=2)) == sorted(ids + others)
    assert sorted(stage.listed("other", count=1)) == sorted(others)
