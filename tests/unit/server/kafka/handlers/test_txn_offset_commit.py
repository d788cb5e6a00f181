"""TxnOffsetCommit: what is refused before the transaction's coordinator is asked."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.metadata import CreateTopic
from penstock.core.model import TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage


def commit(
    stage: "Stage", *, topic: str = "orders", producer_id: int = 7, group: str = "readers", version: int = 5
) -> int:
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
    request = TxnOffsetCommitRequest(
        transactional_id="payments",
        group_id=group,
        producer_id=producer_id,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=(part,)),),
    )
    answer = stage.ask(request, TxnOffsetCommitResponse, version)
    ((row,),) = ([each.error_code for each in one.partitions] for one in answer.topics)
    return row


@pytest.mark.parametrize("version", range(6))
def test_a_group_whose_coordinator_is_not_here_yet_is_an_error_of_every_version(
    stage: "Stage", version: int
) -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))

    assert commit(stage, version=version) == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_makes_no_sense_is_refused(stage: "Stage") -> None:
    assert commit(stage) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(stage, producer_id=-1) == ErrorCode.INVALID_REQUEST
    assert commit(stage, group="") == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("operation", "name", "code"),
    [
        (AclOperation.WRITE, "payments", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (AclOperation.READ, "readers", ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (AclOperation.READ, "orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_caller_needs_the_transactional_id_the_group_and_the_topic(
    stage: "Stage", operation: AclOperation, name: str, code: ErrorCode
) -> None:
    stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))
    stage.authorizer.denied = {(operation, name)}

    assert commit(stage) == code
