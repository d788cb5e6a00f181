"""DelayRecords on the Kafka port."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.delay_records import (
    DelayRecordsRequest,
    DelayRecordsRequestRecord,
    DelayRecordsResponse,
)
from penstock.security import AclOperation

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
