import pytest

from penstock.core.protocol.codec import Message
from penstock.core.protocol.frames import response_frame
from penstock.core.protocol.messages.fetch import FetchResponse, FetchResponsePartition, FetchResponseTopic
from penstock.core.protocol.messages.produce import (
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
)
from penstock.core.protocol.messages.registry import APIS
from penstock.runtime.tcp import Part
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_template import MARKS, TEMPLATES_MAX, ResponseTemplates

LOG_START_SINCE = 5
PRODUCE, FETCH = APIS[0], APIS[1]


class LoneRequest(Request):
    """A request of no connection, which keeps its response."""

    def __init__(self, correlation_id: int) -> None:
        self.correlation_id = correlation_id
        self.sent: list[Part] = []

    def reply_parts(self, parts: list[Part]) -> None:
        self.sent += parts


def produced(offsets: tuple[int, int, int]) -> ProduceResponse:
    row = ProduceResponsePartition(
        index=3,
        error_code=0,
        base_offset=offsets[0],
        log_append_time_ms=offsets[1],
        log_start_offset=offsets[2],
    )
    return ProduceResponse(responses=(ProduceResponseTopic(name="orders", partition_responses=(row,)),))


def fetched(offsets: tuple[int, int, int]) -> FetchResponse:
    row = FetchResponsePartition(
        partition_index=3,
        error_code=0,
        high_watermark=offsets[0],
        last_stable_offset=offsets[1],
        log_start_offset=offsets[2],
        aborted_transactions=None,
        records=b"",
    )
    topic = FetchResponseTopic(topic="orders", partitions=(row,))
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=(topic,))


@pytest.mark.parametrize("version", [one for one in PRODUCE.versions if one >= LOG_START_SINCE])
def test_a_filled_produce_template_is_what_the_codec_writes(version: int) -> None:
    check(PRODUCE.key, version, produced(MARKS), produced((2**40, -1, 17)))


@pytest.mark.parametrize("version", [one for one in FETCH.versions if one >= LOG_START_SINCE])
def test_a_filled_fetch_template_is_what_the_codec_writes(version: int) -> None:
    check(FETCH.key, version, fetched(MARKS), fetched((2**40, -1, 17)))


def check(key: int, version: int, marked: Message, expected: Message) -> None:
    api, request = APIS[key], LoneRequest(correlation_id=77)

    template = ResponseTemplates().add("orders", api, version, marked)
    request.reply_template(template, 2**40, -1, 17)

    assert request.sent == [response_frame(api, version, 77, expected)]


def test_templates_do_not_pile_up() -> None:
    templates = ResponseTemplates()
    templates.by_key.update(dict.fromkeys(range(TEMPLATES_MAX), (b"", 0)))

    templates.add("one more", PRODUCE, 9, produced(MARKS))

    assert list(templates.by_key) == ["one more"]
