"""QueueRedrive over many dead letters and partitions: one turn of the loop for each."""

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from penstock.broker.queues.redrive import RedriveRequest
from penstock.core.metadata.commands import CreateTopic
from penstock.core.model import ApiError, ErrorKind, PartitionIndex, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.core.protocol.messages.queue_redrive import (
    QueueRedriveRequest,
    QueueRedriveRequestPartition,
    QueueRedriveResponse,
)
from penstock.core.queues import REDRIVE_GROUP, QueueId
from penstock.security import AclOperation
from penstock.server.kafka.handlers.queue_redrive import _RedriveCall
from tests.unit.server.kafka.handlers.test_access import acl, as_user, secured
from tests.unit.server.kafka.handlers.test_queues import QueueClient

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

TOPIC = "orders"
OFFSETS = tuple(range(200))


@pytest.mark.parametrize("is_dry_run", [False, True])
def test_who_may_not_write_to_a_topic_does_not_learn_whether_it_exists(
    stage_with: type["Stage"], is_dry_run: bool
) -> None:
    stage = secured(stage_with)
    for number, name in enumerate((TOPIC, "secret"), 1):
        stage.submit(CreateTopic(name, TopicId(UUID(int=number)), 1, 1))
    rules = (acl(TOPIC, AclOperation.READ.value), acl(TOPIC, AclOperation.WRITE.value))
    as_user(stage, "admin").ask(CreateAclsRequest(creations=rules), CreateAclsResponse, 3)
    alice = as_user(stage, "alice")

    replies = [
        alice.ask(
            QueueRedriveRequest(topic=TOPIC, to_topic=name, is_dry_run=is_dry_run), QueueRedriveResponse, 0
        )
        for name in ("secret", "absent", "__audit")
    ]

    assert [reply.error_code for reply in replies] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 3
    assert [reply.error_message for reply in replies] == [
        f"topic {name}: not authorized" for name in ("secret", "absent", "__audit")
    ]
    assert [reply.partitions for reply in replies] == [()] * 3


def test_a_dry_run_looks_at_as_many_chosen_dead_letters_as_a_redrive_moves(stage: "Stage") -> None:
    queues = QueueClient(stage)
    queues.produce(0, *map(str, OFFSETS))
    queues.values(0)
    chosen = QueueRedriveRequestPartition(partition=0, offsets=OFFSETS)
    request = QueueRedriveRequest(topic=TOPIC, partitions=(chosen,), is_dry_run=True)

    (row,) = stage.ask(request, QueueRedriveResponse, 0).partitions

    assert row.error_code == ErrorCode.NONE, row.error_message
    assert [each.offset for each in row.records] == list(OFFSETS)
    assert stage.reported == []


def test_a_dry_run_passes_over_chosen_offsets_that_are_no_dead_letters(stage: "Stage") -> None:
    queues = QueueClient(stage)
    queues.produce(0, "a", "b")
    queues.values(0)
    chosen = QueueRedriveRequestPartition(partition=0, offsets=(7, 8, 0, 1))
    request = QueueRedriveRequest(topic=TOPIC, partitions=(chosen,), is_dry_run=True, records_max=1)

    (row,) = stage.ask(request, QueueRedriveResponse, 0).partitions
    too_many = QueueRedriveRequestPartition(partition=0, offsets=tuple(range(1_001)))
    request = QueueRedriveRequest(topic=TOPIC, partitions=(too_many,), is_dry_run=True)
    (refused,) = stage.ask(request, QueueRedriveResponse, 0).partitions

    assert [each.offset for each in row.records] == [0]
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_a_dry_run_goes_on_where_it_has_ended(stage: "Stage") -> None:
    queues = QueueClient(stage)
    queues.produce(0, "a", "b", "c")
    queues.values(0)
    found: list[int] = []
    start = 0
    while start >= 0:
        place = QueueRedriveRequestPartition(partition=0, from_offset=start)
        request = QueueRedriveRequest(topic=TOPIC, partitions=(place,), is_dry_run=True, records_max=2)
        (row,) = stage.ask(request, QueueRedriveResponse, 0).partitions
        found += [each.offset for each in row.records]
        start = row.next_offset

    assert found == [0, 1, 2]
    below = QueueRedriveRequestPartition(partition=0, from_offset=-1)
    refused = stage.ask(QueueRedriveRequest(topic=TOPIC, partitions=(below,)), QueueRedriveResponse, 0)
    assert refused.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_partitions_that_fail_at_once_are_each_told(is_dry_run: bool) -> None:
    queue = QueueId(REDRIVE_GROUP, TopicId(UUID(int=1)), PartitionIndex(0))
    asked = [(queue, QueueRedriveRequestPartition(partition=index)) for index in range(2_000)]
    failed = ApiError(ErrorKind.NOT_LEADER)
    replies: list[QueueRedriveResponse] = []
    turns: deque[Callable[[], None]] = deque()

    def redrive(_wanted: RedriveRequest, done: Callable[[ApiError], None]) -> None:
        done(failed)

    def peek(*arguments: Any) -> None:
        arguments[-1](failed)

    call: Any = SimpleNamespace(
        backend=SimpleNamespace(
            redriver=SimpleNamespace(redrive=redrive), queue_admin=SimpleNamespace(peek=peek)
        ),
        connection=SimpleNamespace(soon=turns.append),
        charge_time=lambda: 0,
        reply=replies.append,
    )

    _RedriveCall(QueueRedriveRequest(topic=TOPIC, is_dry_run=is_dry_run), call, asked).next()
    while turns:
        turns.popleft()()

    (reply,) = replies
    assert [row.partition for row in reply.partitions] == list(range(2_000))
