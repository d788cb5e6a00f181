"""Fetch as a client sees it, sessions included."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from msgspec import structs

from penstock.broker.fetch import SLICE_PARTITIONS
from penstock.core.metadata import BrokerEndpoint, CreateTopic
from penstock.core.metadata.access import AclBinding, AclOperation, AclPermission, PatternType, ResourceType
from penstock.core.metadata.commands import CreateAcls, ReplicaAssignment
from penstock.core.model import MILLISECOND, SECOND, Instant, NodeId, Offset, PartitionIndex, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.core.protocol.messages.fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.records import Record, check_batches, write_batch
from penstock.runtime.sliced_work import SLICES_PER_TURN_MAX
from penstock.security import Resource, Session
from penstock.server.kafka import slice_scheduler

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

BY_NAME = 11


@pytest.fixture
def client(stage: "Stage") -> "Client":
    client = stage.client()
    create(client, "orders")
    return client


def create(client: "Client", topic: str) -> None:
    wanted = CreateTopicsRequestTopic(
        name=topic, num_partitions=2, replication_factor=1, assignments=(), configs=()
    )
    answer = client.ask(CreateTopicsRequest(topics=(wanted,), timeout_ms=10_000), CreateTopicsResponse, 5)
    assert answer.topics[0].error_code == 0


def produce_request(index: int = 0) -> ProduceRequest:
    batch = write_batch([Record(0, 1_790_000_000_000, None, b"value")])
    partition = ProduceRequestPartition(index=index, records=bytes(batch))
    topic = ProduceRequestTopic(name="orders", partition_data=(partition,))
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))


def produce(client: "Client", index: int = 0) -> None:
    answer = client.ask(produce_request(index), ProduceResponse, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(
    offsets: dict[int, int],
    session: tuple[int, int] = (0, -1),
    *,
    forget: tuple[int, ...] = (),
    max_wait_ms: int = 0,
    rack: str = "",
) -> FetchRequest:
    """A fetch of partitions of the topic; the session is its id and epoch."""
    parts = tuple(
        FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=(FetchRequestTopic(topic="orders", partitions=parts),) if parts else (),
        forgotten_topics_data=(FetchRequestForgottenTopic(topic="orders", partitions=forget),)
        if forget
        else (),
        rack_id=rack,
    )


def ask(client: "Client", request: FetchRequest) -> FetchResponse:
    return client.ask(request, FetchResponse, BY_NAME)


def rows(answer: FetchResponse) -> dict[int, tuple[int, int, int]]:
    """Per partition: error, high watermark, and how many batches."""
    return {
        row.partition_index: (row.error_code, row.high_watermark, batches_in(row))
        for topic in answer.responses
        for row in topic.partitions
    }


def batches_in(row: FetchResponsePartition) -> int:
    assert isinstance(row.records, bytes | memoryview)
    return len(check_batches(row.records))


def test_without_a_session_every_partition_is_mentioned(client: "Client") -> None:
    produce(client, 0)

    answer = ask(client, fetch({0: 0, 1: 0}))

    assert answer.session_id == 0
    assert rows(answer) == {0: (0, 1, 1), 1: (0, 0, 0)}


def test_a_session_mentions_what_has_news_and_nothing_else(client: "Client") -> None:
    opened = ask(client, fetch({0: 0, 1: 0}, (0, 0)))
    session = opened.session_id

    quiet = ask(client, fetch({}, (session, 1)))
    produce(client, 1)
    busy = ask(client, fetch({}, (session, 2)))
    again = ask(client, fetch({}, (session, 3)))
    moved_on = ask(client, fetch({1: 1}, (session, 4)))

    assert session != 0
    assert rows(opened) == {0: (0, 0, 0), 1: (0, 0, 0)}
    assert rows(quiet) == {}
    assert rows(busy) == rows(again) == {1: (0, 1, 1)}
    assert rows(moved_on) == {}


def test_a_partition_that_is_forgotten_is_fetched_no_more_until_it_is_named_again(client: "Client") -> None:
    session = ask(client, fetch({0: 0, 1: 0}, (0, 0))).session_id
    produce(client, 0)
    produce(client, 1)

    without = ask(client, fetch({}, (session, 1), forget=(0,)))
    with_both = ask(client, fetch({0: 0}, (session, 2)))

    assert set(rows(without)) == {1}
    assert set(rows(with_both)) == {0, 1}


def test_a_session_without_partitions_ends(client: "Client") -> None:
    session = ask(client, fetch({0: 0}, (0, 0))).session_id

    emptied = ask(client, fetch({}, (session, 1), forget=(0,)))
    gone = ask(client, fetch({}, (session, 2)))

    assert emptied.session_id == 0
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_full_fetch_replaces_the_session_that_it_names(client: "Client") -> None:
    old = ask(client, fetch({0: 0}, (0, 0))).session_id

    new = ask(client, fetch({0: 0}, (old, 0))).session_id
    late = ask(client, fetch({}, (old, 1)))

    assert new not in (0, old)
    assert late.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert late.session_id == 0
    assert ask(client, fetch({}, (new, 1))).error_code == 0


def test_a_final_fetch_ends_the_session_and_is_answered_in_full(client: "Client") -> None:
    session = ask(client, fetch({0: 0, 1: 0}, (0, 0))).session_id

    final = ask(client, fetch({0: 0}, (session, -1)))

    assert (final.session_id, rows(final)) == (0, {0: (0, 0, 0)})
    late = ask(client, fetch({}, (session, 1)))
    assert late.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_epoch_that_is_not_the_next_one_is_refused_and_changes_nothing(
    client: "Client", epoch: int
) -> None:
    session = ask(client, fetch({0: 0}, (0, 0))).session_id

    wrong = ask(client, fetch({}, (session, epoch)))
    right = ask(client, fetch({}, (session, 1)))

    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert right.error_code == 0


def test_an_error_is_repeated_in_a_session_until_it_is_over(client: "Client") -> None:
    session = ask(client, fetch({0: 5}, (0, 0))).session_id

    still = ask(client, fetch({}, (session, 1)))
    over = ask(client, fetch({0: 0}, (session, 2)))
    quiet = ask(client, fetch({}, (session, 3)))

    assert rows(still)[0][0] == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rows(over) == {0: (0, 0, 0)}
    assert rows(quiet) == {}


def test_a_session_reports_that_its_topic_is_gone_and_that_it_is_there_again(client: "Client") -> None:
    session = ask(client, fetch({0: 0}, (0, 0))).session_id
    client.ask(DeleteTopicsRequest(topic_names=("orders",), timeout_ms=10_000), DeleteTopicsResponse, 5)

    gone = ask(client, fetch({}, (session, 1)))
    create(client, "orders")
    back = ask(client, fetch({}, (session, 2)))

    assert rows(gone)[0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows(back) == {0: (0, 0, 0)}


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(stage: "Stage", client: "Client") -> None:
    partition = stage.backend.partitions.find("orders", 0)
    assert partition is not None
    client.send(fetch({0: 0}, max_wait_ms=600_000), BY_NAME)
    assert partition.watchers == 1

    client.leave()

    assert partition.watchers == 0
    stage.run(700 * SECOND)


class Judgements:
    """How often somebody was asked whether a client may do something, and at most in one turn."""

    def __init__(self, stage: "Stage") -> None:
        self.total = self.turn = self.turn_max = 0
        self._decide = stage.authorizer.authorize
        stage.authorizer.authorize = self._authorize  # type: ignore[method-assign]

    def _authorize(self, session: Session, operation: AclOperation, resource: Resource) -> bool:
        self.total += 1
        self.turn += 1
        return self._decide(session, operation, resource)

    def turn_ended(self) -> bool:
        """Begin the next turn. The result is for the scheduler: go on."""
        self.turn_max, self.turn = max(self.turn, self.turn_max), 0
        return False


RULE = AclBinding(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:bob",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


@pytest.mark.parametrize("changes_rules", [True, False])
def test_a_fetch_that_waited_is_judged_again_after_rules_have_changed_and_only_then(
    stage: "Stage", client: "Client", changes_rules: bool
) -> None:
    client.send(fetch({0: 0, 1: 0}, max_wait_ms=600_000), BY_NAME)
    stage.submit(CreateAcls((RULE,)) if changes_rules else CreateTopic("more", TopicId(UUID(int=9)), 1, 1))
    stage.authorizer.denied.add((AclOperation.READ, "orders"))
    produce(stage.client())
    stage.run()

    found = rows(client.receive(FetchResponse, BY_NAME))

    refused = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1, 0)
    assert found == ({0: refused, 1: refused} if changes_rules else {0: (0, 1, 1), 1: (0, 0, 0)})


def test_a_fetch_of_many_partitions_that_waited_is_judged_again_in_slices(stage: "Stage") -> None:
    count = 2 * SLICE_PARTITIONS * SLICES_PER_TURN_MAX
    client = stage.client()
    stage.submit(CreateTopic("orders", TopicId(UUID(int=9)), count, 1))
    stage.run(60 * SECOND)
    client.send(fetch(dict.fromkeys(range(count), 0), max_wait_ms=600_000), BY_NAME)
    stage.run()
    assert not client.has_answer
    stage.submit(CreateAcls((RULE,)))
    judgements = Judgements(stage)
    stage.client().send(produce_request(), 9)
    stage.world.run(10 * SECOND, lambda: judgements.turn_ended() or client.has_answer)

    assert len(rows(client.receive(FetchResponse, BY_NAME))) == count
    assert judgements.total >= count
    assert judgements.turn_max <= SLICE_PARTITIONS * SLICES_PER_TURN_MAX + 1


def test_a_rule_that_goes_while_a_large_fetch_begins_counts_for_what_was_judged_before(
    stage: "Stage", client: "Client", monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.submit(CreateTopic("others", TopicId(UUID(int=9)), SLICE_PARTITIONS, 1))
    stage.run(60 * SECOND)
    others = tuple(
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(SLICE_PARTITIONS)
    )
    begun = fetch({0: 0}, max_wait_ms=600_000)
    topics = (*begun.topics, FetchRequestTopic(topic="others", partitions=others))
    # Of a busy node: few partitions are looked up in a turn of the loop, and others have theirs.
    clock, timers = stage.backstage._runtime.clock, stage.backstage._runtime.timers
    monkeypatch.setattr(slice_scheduler, "SLICE_STEPS_MAX", 1)
    monkeypatch.setattr(
        stage.backstage.long_work,
        "_soon",
        lambda act: timers.at(Instant(clock.now() + 100 * MILLISECOND), act),
    )

    client.send(structs.replace(begun, topics=topics), BY_NAME)  # type: ignore[type-var]
    stage.submit(CreateAcls((RULE,)))
    stage.authorizer.denied.add((AclOperation.READ, "orders"))
    stage.run(60 * SECOND)
    assert not client.has_answer
    produce(stage.client())

    stage.run()
    (orders,) = [
        topic for topic in client.receive(FetchResponse, BY_NAME).responses if topic.topic == "orders"
    ]
    assert orders.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not orders.partitions[0].records


def test_more_least_bytes_than_an_answer_may_hold_are_not_waited_for(client: "Client") -> None:
    produce(client)
    wanted = fetch({0: 0}, max_wait_ms=600_000)
    greedy = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1 << 20,
        max_bytes=10,
        session_id=0,
        session_epoch=-1,
        topics=wanted.topics,
        forgotten_topics_data=(),
    )

    answer = ask(client, greedy)

    assert rows(answer) == {0: (0, 1, 1)}


def test_a_client_that_asks_for_the_same_again_gets_it_verified(stage: "Stage", client: "Client") -> None:
    for _ in range(3):
        produce(client)
    assert rows(ask(client, fetch({0: 0}))) == {0: (0, 3, 3)}
    # A bit flips in memory: nothing tells that from what was written.
    disk = stage.world.nodes["node"].disk
    content = disk._content("flip", "logs/orders/0/00000000000000000000.log").present
    content[len(content) // 2] ^= 1

    again = ask(client, fetch({0: 0}))
    behind = ask(client, fetch({0: 1}))

    assert rows(again) == {0: (0, 3, 1)}
    assert rows(behind) == {0: (ErrorCode.CORRUPT_MESSAGE, 3, 0)}


def followed_by_broker_2(stage: "Stage", client: "Client") -> None:
    """Partition 0 has a replica in rack-2, which has fetched everything."""
    stage.add_broker(2, BrokerEndpoint("PLAINTEXT", "other", 9092))
    broker = stage.backend.controller.image.broker(2)
    assert broker is not None
    placed = (ReplicaAssignment(PartitionIndex(0), (NodeId(1), NodeId(2))),)
    stage.submit(CreateTopic("orders", TopicId(UUID(int=9)), assignments=placed))
    partition = stage.backend.partitions.find("orders", 0)
    assert partition is not None
    partition.follower_fetched(NodeId(2), broker.epoch, Offset(0), Offset(0))


def test_a_consumer_is_told_once_per_fetch_to_read_in_its_rack(stage: "Stage") -> None:
    client = stage.client()
    followed_by_broker_2(stage, client)

    first = ask(client, fetch({0: 0}, (0, 0), max_wait_ms=500, rack="rack-2"))
    again = ask(client, fetch({}, (first.session_id, 1), max_wait_ms=500, rack="rack-2"))

    for answer in (first, again):
        (row,) = answer.responses[0].partitions
        assert (row.error_code, row.preferred_read_replica, batches_in(row)) == (0, 2, 0)


@pytest.mark.parametrize("rack", ["", "rack-3"])
def test_a_consumer_elsewhere_reads_from_the_leader(stage: "Stage", rack: str) -> None:
    client = stage.client()
    followed_by_broker_2(stage, client)

    (row,) = ask(client, fetch({0: 0}, rack=rack)).responses[0].partitions

    assert (row.error_code, row.preferred_read_replica) == (0, -1)


def test_a_consumer_is_not_sent_where_it_cannot_get(stage: "Stage") -> None:
    client = stage.client(listener="INTERNAL")
    followed_by_broker_2(stage, client)

    (row,) = ask(client, fetch({0: 0}, rack="rack-2")).responses[0].partitions

    assert (row.error_code, row.preferred_read_replica) == (0, -1)
