"""Consumers that read more than their quota allows: they get no records, on whatever connection they ask."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.core.metadata import CreateTopic
from penstock.core.metadata.access import CLIENT_ID, CONSUMER_BYTE_RATE
from penstock.core.metadata.commands import AlterClientQuotas
from penstock.core.model import MILLISECOND, SECOND, TopicId
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.protocol.messages.queue_peek import QueuePeekRequest, QueuePeekResponse
from penstock.core.records import Record, write_batch
from penstock.security import QuotaType
from penstock.security.options import SecurityOptions
from penstock.server.kafka.fetch_sessions import FINAL_EPOCH, FIRST_EPOCH
from penstock.server.kafka.listener import ListenerSecurity
from tests.unit.server.kafka.handlers.test_queues import QueueClient
from tests.unit.server.kafka.handlers.test_share_groups import Member, produce, shared

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

__all__ = ["shared"]
RATE = 4_000
BATCH = bytes(write_batch([Record(0, 1_700_000_000_000, b"k", bytes(900))]))
NOBODY_LOGS_IN = ListenerSecurity()


class LimitedNode:
    """Its clients may read so many bytes a second; it has a topic with a hundred batches of a kilobyte."""

    def __init__(self, stage_with: type["Stage"], rate: float = RATE) -> None:
        self.stage = stage_with(security=SecurityOptions(enabled=True, super_users=("ANONYMOUS",)))
        self.stage.submit(CreateTopic("orders", TopicId(UUID(int=1)), 1, 1))
        self.produce(100)
        self.stage.submit(AlterClientQuotas(((CLIENT_ID, "test"),), ((CONSUMER_BYTE_RATE, rate),)))

    def produce(self, batches: int = 1) -> None:
        client = self.connect()
        part = ProduceRequestPartition(index=0, records=BATCH)
        data = ProduceRequestTopic(name="orders", partition_data=(part,))
        for _ in range(batches):
            client.send(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=(data,)), 9)
            self.stage.run(20 * MILLISECOND)
            answer = client.receive(ProduceResponse, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def connect(self) -> "Client":
        return self.stage.client(security=NOBODY_LOGS_IN)

    def send(
        self,
        client: "Client",
        offset: int = 0,
        session: int = 0,
        epoch: int = FINAL_EPOCH,
        wait_ms: int = 0,
        partitions: int = 1,
    ) -> None:
        """Of the partitions there is only the first one."""
        parts = tuple(
            FetchRequestPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number in range(partitions)
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session,
            session_epoch=epoch,
            topics=(FetchRequestTopic(topic="orders", partitions=parts),),
        )
        client.send(request, 11)
        self.stage.run(20 * MILLISECOND)

    def fetch(
        self, client: "Client", offset: int = 0, session: int = 0, epoch: int = FINAL_EPOCH
    ) -> FetchResponse:
        self.send(client, offset, session, epoch)
        return client.receive(FetchResponse, 11)


def records_of(response: FetchResponse) -> int:
    return sum(len(part.records) for topic in response.responses for part in topic.partitions if part.records)


def test_a_consumer_that_connects_anew_for_every_fetch_gets_its_rate(stage_with: type["Stage"]) -> None:
    node = LimitedNode(stage_with)
    began, received, seconds = node.stage.world.scheduler.now, 0, 10

    while node.stage.world.scheduler.now - began < seconds * SECOND:
        client = node.connect()
        response = node.fetch(client)
        received += records_of(response)
        assert response.responses or response.throttle_time_ms
        client.leave()

    # What comes in that time, what comes in a second before it, and one response.
    assert (seconds - 1) * RATE <= received <= (seconds + 1) * RATE + RATE + len(BATCH)


def test_one_response_has_no_more_than_comes_in_a_second_but_one_batch_at_least(
    stage_with: type["Stage"],
) -> None:
    node = LimitedNode(stage_with)
    slow = LimitedNode(stage_with, 10.0)

    assert RATE - len(BATCH) < records_of(node.fetch(node.connect())) <= RATE
    assert records_of(slow.fetch(slow.connect())) == len(BATCH)


@pytest.mark.parametrize("partitions", [600, 2_000])
def test_a_fetch_of_very_many_partitions_is_limited_as_well(
    stage_with: type["Stage"], partitions: int
) -> None:
    node = LimitedNode(stage_with)
    responses = []

    for _ in range(3):
        client = node.connect()
        node.send(client, partitions=partitions, epoch=FIRST_EPOCH)
        responses.append(client.receive(FetchResponse, 11))

    assert RATE - len(BATCH) < records_of(responses[0]) <= RATE
    assert (responses[-1].responses, responses[-1].session_id) == ((), 0)


def owing(node: LimitedNode) -> "Client":
    """A connection, not read any more, of a client that is over its quota."""
    client = node.connect()
    for _ in range(2):
        node.fetch(node.connect())
    return client


def test_a_client_that_owes_gets_a_response_without_partitions(stage_with: type["Stage"]) -> None:
    node = LimitedNode(stage_with)
    client = owing(node)

    # It would wait for records, if there were none, and does not.
    node.send(client, 100, wait_ms=30_000)
    response = client.receive(FetchResponse, 11)

    assert response.responses == ()
    assert (response.error_code, response.session_id) == (0, 0)
    assert response.throttle_time_ms > 0


def test_a_session_goes_on_when_nothing_is_owed_any_more(stage_with: type["Stage"]) -> None:
    node = LimitedNode(stage_with)
    client = node.connect()
    begun = node.fetch(client, 0, epoch=FIRST_EPOCH)
    assert begun.session_id

    node.fetch(node.connect())
    throttled = node.fetch(client, 4, begun.session_id, 1)
    node.stage.run(5 * SECOND)
    after = node.fetch(client, 4, begun.session_id, 2)

    assert (throttled.session_id, throttled.responses) == (begun.session_id, ())
    assert throttled.throttle_time_ms > 0
    assert after.session_id == begun.session_id
    assert records_of(after) > 0


def test_no_session_begins_while_something_is_owed(stage_with: type["Stage"]) -> None:
    node = LimitedNode(stage_with)

    assert node.fetch(owing(node), epoch=FIRST_EPOCH).session_id == 0


@pytest.mark.parametrize("epoch", [FIRST_EPOCH, FINAL_EPOCH])
def test_of_fetches_that_wait_for_the_same_records_one_gets_them(
    stage_with: type["Stage"], epoch: int
) -> None:
    node = LimitedNode(stage_with, 1_000.0)
    waiting = [node.connect() for _ in range(5)]
    for client in waiting:
        node.send(client, 100, epoch=epoch, wait_ms=30_000)
    assert not any(client.has_answer for client in waiting)

    for _ in range(2):
        node.produce()
    node.stage.run(SECOND)

    responses = [client.receive(FetchResponse, 11) for client in waiting]
    shown = [response for response in responses if records_of(response)]
    # What is left after the first one is less than nothing.
    assert 1 <= len(shown) <= 2
    for response in responses:
        if response not in shown:
            assert (response.responses, response.session_id) == ((), 0)
            assert response.throttle_time_ms > 0


def test_consumers_of_queues_that_owe_get_no_leases(stage: "Stage") -> None:
    queues = QueueClient(stage)
    queues.produce(0, "a", "b")
    stage.authorizer.left = 0

    assert queues.values(0) == []
    peek = QueuePeekRequest(group_id="workers", topic="orders", partition=0)
    refused = stage.ask(peek, QueuePeekResponse, 0)
    stage.authorizer.left = 1 << 20
    stage.authorizer.charged.clear()

    assert refused.error_code == 89
    assert queues.values(0) == ["a", "b"]
    assert stage.authorizer.charged_of(QuotaType.BYTES_OUT)[0] > 0


def test_headers_of_messages_that_are_looked_at_count(
    stage: "Stage", monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = QueueClient(stage)
    record = Record(0, 5, None, b"value", (("trace", b"h" * 3_000),))
    batch = bytes(write_batch([record]))
    monkeypatch.setattr("tests.unit.server.kafka.handlers.test_queues.write_batch", lambda _: batch)
    queues.produce(0, "value")
    assert queues.values(0) == ["value"]
    stage.authorizer.charged.clear()

    peek = QueuePeekRequest(group_id="workers", topic="orders", partition=0)
    assert len(stage.ask(peek, QueuePeekResponse, 0).records) == 1

    assert sum(stage.authorizer.charged_of(QuotaType.BYTES_OUT)) >= 3_000


def test_members_of_share_groups_that_owe_get_no_leases(shared: "Stage") -> None:
    produce(shared, 4)
    member = Member(shared)
    shared.authorizer.left = 0
    nothing = member.got()
    shared.authorizer.left = 1 << 20
    shared.authorizer.charged.clear()

    assert nothing == []
    assert member.got() == [(offset, 1) for offset in range(4)]
    assert sum(shared.authorizer.charged_of(QuotaType.BYTES_OUT)) > 0
