"""WriteTxnMarkers, as coordinators and Kafka's tools send it."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.metadata import CreateTopic
from penstock.core.model import TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def write(stage: "Stage", producer_id: int = 7, version: int = 2) -> list[int]:
    """The codes for the two partitions of a topic, the second of which does not exist."""
    marker = WriteTxnMarkersRequestMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=True,
        topics=(WriteTxnMarkersRequestTopic(name="orders", partition_indexes=(0, 1)),),
        coordinator_epoch=3,
    )
    answer = stage.ask(WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse, version)
    (row,) = answer.markers
    assert row.producer_id == producer_id
    return [part.error_code for topic in row.topics for part in topic.partitions]


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_answered_by_producer_and_partition(stage: "Stage", version: int) -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))

    assert write(stage, version=version) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    partition = stage.backend.partitions.find("orders", 0)
    assert partition is not None
    assert partition.log.end == 1


def test_a_marker_of_no_producer_is_invalid(stage: "Stage") -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))

    assert write(stage, producer_id=-1) == [ErrorCode.INVALID_REQUEST] * 2


def test_markers_need_the_right_to_alter_the_cluster(stage: "Stage") -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))
    denied = ((AclOperation.CLUSTER_ACTION, "kafka-cluster"), (AclOperation.ALTER, "kafka-cluster"))
    stage.authorizer.denied = {denied[0]}
    one_is_enough = write(stage)
    stage.authorizer.denied = set(denied)

    assert one_is_enough[0] == ErrorCode.NONE
    assert write(stage) == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
