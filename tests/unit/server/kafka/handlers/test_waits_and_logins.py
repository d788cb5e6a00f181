"""Consumers that wait for records when their login expires: they are answered then, and get nothing later."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.metadata import CreateTopic
from penstock.core.model import SECOND, TopicId
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.protocol.messages.queue_receive import QueueReceiveRequest, QueueReceiveRequestTopic
from penstock.core.protocol.messages.share_fetch import (
    ShareFetchRequest,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
)
from penstock.core.records import Record, write_batch
from tests.unit.server.kafka.handlers.test_access import as_user, log_in, secured

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

TOPIC, TOPIC_ID, GROUP = "orders", TopicId(UUID(int=1)), "workers"
LATER = b"written when the login was over"
LOGIN_MS, WAIT_MS = 30_000, 50_000
PARTITIONS = 100


def fetch(partitions: int) -> FetchRequest:
    parts = tuple(
        FetchRequestPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20)
        for number in range(partitions)
    )
    return FetchRequest(
        max_wait_ms=(1 << 31) - 1,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=(FetchRequestTopic(topic=TOPIC, partitions=parts),),
    )


def share_fetch() -> ShareFetchRequest:
    part = ShareFetchRequestPartition(partition_index=0, acknowledgement_batches=())
    return ShareFetchRequest(
        group_id=GROUP,
        member_id="AAAAAAAAAAAAAAAAAAAAAQ",
        share_session_epoch=0,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_records=10,
        batch_size=10,
        topics=(ShareFetchRequestTopic(topic_id=TOPIC_ID, partitions=(part,)),),
        forgotten_topics_data=(),
    )


def queue_receive() -> QueueReceiveRequest:
    topic = QueueReceiveRequestTopic(topic=TOPIC, partitions=(0,))
    return QueueReceiveRequest(group_id=GROUP, consumer="c1", topics=(topic,), wait_ms=WAIT_MS)


def node_with_short_logins(stage_with: type["Stage"]) -> "Stage":
    stage = secured(stage_with, reauthenticate_ms=LOGIN_MS)
    stage.submit(CreateTopic(TOPIC, TOPIC_ID, PARTITIONS, 1))
    asked = FindCoordinatorRequest(key_type=0, coordinator_keys=(GROUP,))
    as_user(stage, "admin").ask(asked, FindCoordinatorResponse, 4)
    return stage


def produce_later(stage: "Stage") -> None:
    batch = bytes(write_batch([Record(0, 1_000, None, LATER)]))
    data = ProduceRequestTopic(name=TOPIC, partition_data=(ProduceRequestPartition(index=0, records=batch),))
    request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,))
    answer = as_user(stage, "admin").ask(request, ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("request_", "version"),
    [(fetch(1), 11), (fetch(PARTITIONS), 11), (share_fetch(), 2), (queue_receive(), 0)],
    ids=["Fetch", "Fetch in slices", "ShareFetch", "QueueReceive"],
)
def test_what_is_written_after_a_login_has_expired_is_not_for_who_has_waited(
    stage_with: type["Stage"], request_: Message, version: int
) -> None:
    stage = node_with_short_logins(stage_with)
    client = as_user(stage, "admin")

    client.send(request_, version)
    stage.run(SECOND)
    waits = not client.has_answer
    stage.run(LOGIN_MS // 1_000 * SECOND)
    produce_later(stage)

    answered = bytes(client.tcp.written)
    assert waits
    assert LATER not in answered
    assert answered
    # It has waited in good faith, and may go on.
    client.tcp.written.clear()
    assert not client.tcp.is_closed
    assert log_in(client, "admin").error_code == ErrorCode.NONE
