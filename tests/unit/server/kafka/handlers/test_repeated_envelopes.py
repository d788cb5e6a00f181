"""Produce with one batch: clients repeat everything around it, and so it is decoded once.

Whatever differs from an earlier request, the response is that of a node that has seen none.
"""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode, RequestHeader, request_frame
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
    ProduceResponsePartition,
)
from penstock.core.protocol.messages.registry import APIS
from penstock.core.records import Record, write_batch
from penstock.server.kafka.handlers import produce

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

NAMED, IDENTIFIED = 12, 13
TAG = bytes((1, 9, 1, 0))


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "ENVELOPES", produce.Envelopes())


@pytest.fixture
def stage(stage_with: "type[Stage]") -> "Stage":
    return stage_with(is_guarded=False)


def create(stage: "Stage", name: str) -> UUID:
    topic = CreateTopicsRequestTopic(
        name=name, num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    (created,) = stage.ask(CreateTopicsRequest(topics=(topic,)), CreateTopicsResponse, 7).topics
    assert created.error_code == ErrorCode.NONE
    return created.topic_id


def batch_of(*values: bytes) -> bytes:
    return bytes(write_batch([Record(0, 1_000, None, value, ()) for value in values]))


def request(
    topic: str | UUID, records: bytes | None, index: int = 0, acks: int = -1, timeout_ms: int = 1_000
) -> ProduceRequest:
    part = ProduceRequestPartition(index=index, records=records)
    named = (
        ProduceRequestTopic(name=topic, partition_data=(part,))
        if isinstance(topic, str)
        else ProduceRequestTopic(topic_id=topic, partition_data=(part,))
    )
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=(named,))


def frame_of(asked: ProduceRequest, version: int) -> bytearray:
    return request_frame(APIS[0], RequestHeader(0, version, 7, "test"), asked)


def send(client: "Client", stage: "Stage", frame: bytearray, version: int) -> ProduceResponsePartition:
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    for _ in client.feed(frame):
        pass
    stage.run(SECOND)
    (topic,) = client.receive(ProduceResponse, version).responses
    (row,) = topic.partition_responses
    return row


@pytest.mark.parametrize("version", range(9, 14))
def test_requests_that_differ_in_their_records_get_one_offset_after_the_other(
    stage: "Stage", version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = create(stage, "repeated")
    client = stage.client()
    topic = "repeated" if version < IDENTIFIED else topic_id
    send(client, stage, frame_of(request(topic, batch_of(b"first")), version), version)
    # From now on, nothing is decoded.
    monkeypatch.delattr(produce, "DECODERS")

    rows = [
        send(client, stage, frame_of(request(topic, batch_of(*values)), version), version)
        for values in ((b"a",), (b"b", b"c"), (b"d" * 5_000,), (b"e",))
    ]

    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 1), (0, 2), (0, 4), (0, 5)]


def test_a_request_for_another_partition_or_with_other_acks_is_another_one(stage: "Stage") -> None:
    create(stage, "repeated")
    create(stage, "restated")
    client = stage.client()
    asked = [
        request("repeated", batch_of(b"a")),
        request("repeated", batch_of(b"b"), index=1),
        request("restated", batch_of(b"c")),
        request("repeated", batch_of(b"d"), acks=1),
        request("repeated", batch_of(b"e"), timeout_ms=2_000),
    ]

    for _ in range(2):
        rows = [send(client, stage, frame_of(one, NAMED), NAMED) for one in asked]

    assert [(row.index, row.base_offset) for row in rows] == [(0, 3), (1, 1), (0, 1), (0, 4), (0, 5)]


def test_other_bytes_behind_the_batch_are_decoded(stage: "Stage") -> None:
    create(stage, "repeated")
    client = stage.client()
    send(client, stage, frame_of(request("repeated", batch_of(b"a")), NAMED), NAMED)
    tagged = frame_of(request("repeated", batch_of(b"b")), NAMED)
    # A tag of the partition in the place of none.
    tagged[-3:] = TAG + b"\x00\x00"
    cut = frame_of(request("repeated", batch_of(b"c")), NAMED)[:-1]

    row = send(client, stage, tagged, NAMED)
    cut[:4] = (len(cut) - 4).to_bytes(4, "big")
    for _ in client.feed(cut):
        pass

    assert (row.error_code, row.base_offset) == (0, 1)
    assert client.tcp.is_closed


@pytest.mark.parametrize("records", [None, b""], ids=["no records", "empty records"])
def test_a_request_without_records_is_refused_as_the_first_one_would_be(
    stage: "Stage", records: bytes | None
) -> None:
    create(stage, "repeated")
    asked = request("repeated", records)
    expected = send(stage.client(), stage, frame_of(asked, NAMED), NAMED)
    send(stage.client(), stage, frame_of(request("repeated", batch_of(b"a")), NAMED), NAMED)

    assert send(stage.client(), stage, frame_of(asked, NAMED), NAMED) == expected
    assert expected.error_code != ErrorCode.NONE


def test_a_length_that_does_not_fit_ends_the_connection(stage: "Stage") -> None:
    create(stage, "repeated")
    client = stage.client()
    whole = frame_of(request("repeated", batch_of(b"a")), NAMED)
    send(client, stage, frame_of(request("repeated", batch_of(b"a")), NAMED), NAMED)
    at = len(whole) - 3 - len(batch_of(b"a")) - 1
    assert whole[at] == len(batch_of(b"a")) + 1
    whole[at] += 4

    for _ in client.feed(whole):
        pass

    assert client.tcp.is_closed


@pytest.mark.parametrize("version", [NAMED, IDENTIFIED])
def test_a_topic_that_was_made_again_is_another_one_where_it_has_an_id(stage: "Stage", version: int) -> None:
    topic_id = create(stage, "repeated")
    asked = request("repeated" if version < IDENTIFIED else topic_id, batch_of(b"a"))
    send(stage.client(), stage, frame_of(asked, version), version)
    send(stage.client(), stage, frame_of(asked, version), version)
    stage.ask(DeleteTopicsRequest(topic_names=("repeated",), timeout_ms=1_000), DeleteTopicsResponse, 5)

    without = send(stage.client(), stage, frame_of(asked, version), version)
    create(stage, "repeated")
    again = send(stage.client(), stage, frame_of(asked, version), version)

    if version < IDENTIFIED:
        assert without.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    else:
        assert without.error_code == again.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_name_of_any_length_can_be_repeated(stage: "Stage") -> None:
    client = stage.client()
    for length in (1, 126, 127, 128, 249):
        create(stage, "n" * length)

        rows = [
            send(client, stage, frame_of(request("n" * length, batch_of(b"a")), NAMED), NAMED)
            for _ in range(3)
        ]

        assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 1), (0, 2)]


def test_of_very_many_envelopes_some_are_forgotten(stage: "Stage", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "ENVELOPES_MAX", 3)
    create(stage, "repeated")
    client = stage.client()

    rows = [
        send(client, stage, frame_of(request("repeated", batch_of(b"a"), timeout_ms=n), NAMED), NAMED)
        for n in range(1, 9)
    ]

    assert [row.base_offset for row in rows] == list(range(8))
    assert 0 < len(produce.ENVELOPES.by_bytes[NAMED]) <= 3
