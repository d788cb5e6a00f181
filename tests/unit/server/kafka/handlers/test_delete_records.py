"""DeleteRecords: which topics let the front of their logs be dropped."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.metadata import OFFSETS_TOPIC
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
)
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, write_batch

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def delete_all(stage: "Stage", topic: str) -> DeleteRecordsResponsePartition:
    request = DeleteRecordsRequest(
        topics=(
            DeleteRecordsRequestTopic(
                name=topic, partitions=(DeleteRecordsRequestPartition(partition_index=0, offset=-1),)
            ),
        ),
        timeout_ms=1_000,
    )
    return stage.ask(request, DeleteRecordsResponse, 2).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("policy", "code", "start"),
    [
        ("delete", ErrorCode.NONE, 1),
        ("compact,delete", ErrorCode.NONE, 1),
        ("compact", ErrorCode.POLICY_VIOLATION, -1),
    ],
)
def test_records_are_deleted_where_the_topics_policy_knows_deletion(
    stage: "Stage", policy: str, code: ErrorCode, start: int
) -> None:
    topic = CreateTopicsRequestTopic(
        name="orders",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=(CreateTopicsRequestConfig(name="cleanup.policy", value=policy),),
    )
    stage.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=10_000), CreateTopicsResponse, 5)
    batch = write_batch([Record(0, 1_790_000_000_000, b"key", b"value")])
    records = ProduceRequestPartition(index=0, records=bytes(batch))
    data = ProduceRequestTopic(name="orders", partition_data=(records,))
    stage.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(data,)), ProduceResponse, 9)

    row = delete_all(stage, "orders")

    assert (row.error_code, row.low_watermark) == (code, start)


def test_what_coordinators_keep_is_not_for_clients_to_delete(stage: "Stage") -> None:
    stage.ask(FindCoordinatorRequest(key="group", key_type=0), FindCoordinatorResponse, 3)

    row = delete_all(stage, OFFSETS_TOPIC)

    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
