"""InitProducerId and DescribeProducers."""

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.broker.produce import AppendResult
from penstock.broker.transactions.markers import TransactionMarker
from penstock.core.metadata import CreateTopic
from penstock.core.model import Timestamp, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
)
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.core.records import Record, check_batches, write_batch
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

LAST_EPOCH = 2**15 - 2


def init(stage: "Stage", version: int = 4, **more: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        transactional_id=more.pop("transactional_id", None), transaction_timeout_ms=60_000, **more
    )
    answer = stage.ask(request, InitProducerIdResponse, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def producers_of(stage: "Stage", name: str, index: int) -> DescribeProducersResponsePartition:
    request = DescribeProducersRequest(
        topics=(DescribeProducersRequestTopic(name=name, partition_indexes=(index,)),)
    )
    (topic,) = stage.ask(request, DescribeProducersResponse, 0).topics
    (partition,) = topic.partitions
    return partition


@pytest.mark.parametrize("version", range(7))
def test_every_version_gives_ids_that_nobody_had(stage: "Stage", version: int) -> None:
    first, second = init(stage, version), init(stage, version)

    assert (first[0], first[2]) == (second[0], second[2]) == (0, 0)
    assert second[1] == first[1] + 1


def test_a_producer_goes_on_with_its_id_and_the_next_epoch(stage: "Stage") -> None:
    _, producer_id, epoch = init(stage)

    bumped = init(stage, producer_id=producer_id, producer_epoch=epoch)

    assert bumped == (0, producer_id, epoch + 1)


@pytest.mark.parametrize(
    ("offset", "epoch"),
    [(0, LAST_EPOCH), (1_000_000, 0), (0, -5)],
    ids=["epochs are used up", "id was never given out", "epoch is none"],
)
def test_a_producer_that_cannot_go_on_gets_a_new_id(stage: "Stage", offset: int, epoch: int) -> None:
    _, producer_id, _ = init(stage)

    code, other, fresh = init(stage, producer_id=producer_id + offset, producer_epoch=epoch)

    assert (code, other, fresh) == (0, producer_id + 1, 0)


@pytest.mark.parametrize("half", [{"producer_id": 0}, {"producer_epoch": 0}])
def test_an_id_without_an_epoch_or_the_reverse_is_invalid(stage: "Stage", half: dict[str, int]) -> None:
    assert init(stage, **half) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_an_empty_transactional_id_is_invalid(stage: "Stage") -> None:
    assert init(stage, transactional_id="")[0] == ErrorCode.INVALID_REQUEST


def test_producers_need_the_right_to_write_somewhere(stage: "Stage") -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))
    stage.authorizer.denied = {(AclOperation.IDEMPOTENT_WRITE, "kafka-cluster")}
    with_a_topic = init(stage)
    stage.authorizer.denied |= {(AclOperation.WRITE, "any topic"), (AclOperation.WRITE, "payments")}

    without = init(stage)
    transactional = init(stage, transactional_id="payments")

    assert with_a_topic[0] == ErrorCode.NONE
    assert without[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert transactional[0] == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_partition_remembers_who_wrote_to_it(stage: "Stage") -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))
    partition = stage.backend.partitions.find("orders", 0)
    assert partition is not None
    records = [Record(0, 1_700_000_000_000 + number, None, b"v") for number in range(3)]
    batch = write_batch(records, producer_id=7, producer_epoch=2, base_sequence=0)
    assert isinstance(stage.backend.produce_service.append(partition, memoryview(batch)), AppendResult)

    row = producers_of(stage, "orders", 0)

    (producer,) = row.active_producers
    assert (row.error_code, row.error_message) == (0, None)
    assert (producer.producer_id, producer.producer_epoch) == (7, 2)
    assert (producer.last_sequence, producer.last_timestamp) == (2, 1_700_000_000_002)
    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (-1, -1)


def test_a_partition_tells_where_a_producers_transaction_begins_and_who_ended_the_last(
    stage: "Stage",
) -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))
    partition = stage.backend.partitions.find("orders", 0)
    assert partition is not None
    for sequence in range(2):
        batch = write_batch(
            [Record(0, 5, None, b"v")],
            producer_id=7,
            producer_epoch=2,
            base_sequence=sequence,
            transactional=True,
        )
        partition.append(batch, check_batches(batch), Timestamp(5))
        if sequence == 0:
            marker = TransactionMarker(7, 2, 4, True, 0, (partition.name,))
            stage.backend.markers.write([marker], lambda _: None)

    (producer,) = producers_of(stage, "orders", 0).active_producers

    assert (producer.coordinator_epoch, producer.current_txn_start_offset) == (4, 2)
    assert (producer.last_sequence, producer.last_timestamp) == (1, 5)


def test_producers_of_partitions_that_are_unknown_or_secret_are_not_told(stage: "Stage") -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))
    unknown = producers_of(stage, "orders", 9)
    stage.authorizer.denied = {(AclOperation.READ, "orders")}

    secret = producers_of(stage, "orders", 0)

    assert (unknown.error_code, unknown.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
    assert (secret.error_code, secret.active_producers) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ())
