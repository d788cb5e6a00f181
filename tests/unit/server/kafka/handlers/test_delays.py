"""DelayRecords and CancelDelays on the Kafka port."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.cancel_delays import CancelDelaysRequest, CancelDelaysResponse
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delay_records import (
    DelayRecordsRequest,
    DelayRecordsRequestRecord,
    DelayRecordsResponse,
)
from penstock.core.protocol.messages.list_delays import ListDelaysRequest, ListDelaysResponse
from penstock.security import AclOperation, QuotaType

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def delayed(*topics: str) -> DelayRecordsRequest:
    records = tuple(DelayRecordsRequestRecord(topic=topic, deliver_at_ms=1) for topic in topics)
    return DelayRecordsRequest(records=records)


@pytest.mark.parametrize("count", [0, 1_001])
def test_too_many_records_are_refused_before_anything_is_done_for_each(
    stage: "Stage", count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def authorize(*question: object) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr(stage.authorizer, "authorize", authorize)
    request = delayed(*(f"t{number}" for number in range(count)))

    answer = stage.ask(request, DelayRecordsResponse, 0)

    assert (answer.error_code, answer.results) == (ErrorCode.INVALID_REQUEST, ())
    assert asked == []


def test_topics_that_may_not_be_written_to_are_errors_of_their_records(stage: "Stage") -> None:
    stage.authorizer.denied.add((AclOperation.WRITE, "secret"))

    answer = stage.ask(delayed("secret", "secret"), DelayRecordsResponse, 0)

    assert answer.error_code == 0
    assert [row.error_code for row in answer.results] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


def test_what_is_to_be_published_later_counts_as_bytes_in(stage: "Stage") -> None:
    stage.authorizer.throttle_ms = 70
    record = DelayRecordsRequestRecord(topic="orders", deliver_at_ms=1, key=b"k" * 10, value=b"v" * 1_000)

    answer = stage.ask(DelayRecordsRequest(records=(record, record)), DelayRecordsResponse, 0)

    (charged,) = stage.authorizer.charged_of(QuotaType.BYTES_IN)
    assert charged >= 2 * 1_010
    assert answer.throttle_time_ms == 70


def stored_delay(stage: "Stage", topic: str) -> str:
    """The id of a record that is to be published in an hour."""
    new = CreateTopicsRequestTopic(
        name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    stage.ask(CreateTopicsRequest(topics=(new,), timeout_ms=60_000), CreateTopicsResponse, 7)
    later = stage.backstage._runtime.clock.wall() + 3_600_000
    request = DelayRecordsRequest(records=(DelayRecordsRequestRecord(topic=topic, deliver_at_ms=later),))
    for _ in range(20):
        answer = stage.ask(request, DelayRecordsResponse, 0)
        if answer.results and answer.results[0].delay_id:
            return answer.results[0].delay_id
        stage.run()
    raise AssertionError(answer)


def test_a_delay_is_cancelled_by_those_who_may_write_to_its_topic_and_absent_to_others(
    stage: "Stage",
) -> None:
    delay_id = stored_delay(stage, "secret")
    cancel = CancelDelaysRequest(delay_ids=(delay_id,))
    stage.authorizer.denied.add((AclOperation.WRITE, "secret"))

    denied = stage.ask(cancel, CancelDelaysResponse, 0).results
    stage.authorizer.denied.clear()
    allowed = stage.ask(cancel, CancelDelaysResponse, 0).results
    absent = stage.ask(cancel, CancelDelaysResponse, 0).results

    assert allowed[0].error_code == ErrorCode.NONE
    assert denied == absent
    assert denied[0].error_code == ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("topic", [None, "secret"])
def test_a_list_says_nothing_of_delays_whose_topics_may_not_be_written_to(
    stage: "Stage", topic: str | None
) -> None:
    empty = stage.ask(ListDelaysRequest(topic=topic, count=1), ListDelaysResponse, 0)
    hidden = {stored_delay(stage, "secret") for _ in range(5)}
    stage.authorizer.denied.add((AclOperation.WRITE, "secret"))

    denied = stage.ask(ListDelaysRequest(topic=topic, count=1), ListDelaysResponse, 0)
    mine = stored_delay(stage, "orders")
    found = stage.ask(ListDelaysRequest(topic=None, count=1), ListDelaysResponse, 0)
    stage.authorizer.denied.clear()

    assert denied == empty
    assert [row.delay_id for row in found.delays] == [mine]
    assert found.next_after not in hidden
    everything = stage.ask(ListDelaysRequest(topic=None, count=10), ListDelaysResponse, 0)
    assert {row.delay_id for row in everything.delays} == {*hidden, mine}
