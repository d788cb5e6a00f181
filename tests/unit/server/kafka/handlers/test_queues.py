"""QueueReceive, QueueSettle and what else is asked about queues on the Kafka port."""

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from penstock.broker.queues.delayed_receive import DelayedReceive
from penstock.client.received import leases_of, received, results_of
from penstock.core.metadata import ConfigResource, ConfigResourceType, CreateTopic
from penstock.core.metadata.commands import AlterConfigs
from penstock.core.model import SECOND, ApiError, TopicId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from penstock.core.protocol.messages.queue_alter import (
    FORGET,
    PAUSE,
    RESET,
    RESUME,
    TO_EARLIEST,
    TO_LATEST,
    QueueAlterRequest,
    QueueAlterResponse,
)
from penstock.core.protocol.messages.queue_describe import (
    QueueDescribeRequest,
    QueueDescribeResponse,
    QueueDescribeResponseQueue,
)
from penstock.core.protocol.messages.queue_peek import (
    AVAILABLE,
    DELAYED,
    LEASED,
    QueuePeekRequest,
    QueuePeekResponse,
)
from penstock.core.protocol.messages.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveRequestTopic,
    QueueReceiveResponse,
)
from penstock.core.protocol.messages.queue_settle import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RENEW,
    RETURN,
    QueueSettleRequest,
    QueueSettleRequestLease,
    QueueSettleResponse,
)
from penstock.core.records import Record, write_batch
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Client, Stage

TOPIC = "orders"


class QueueClient:
    """Asks one node on the Kafka port."""

    def __init__(self, stage: "Stage", partitions: int = 3) -> None:
        self.stage = stage
        stage.submit(CreateTopic(TOPIC, TopicId(UUID(int=1)), partitions, 1))

    def produce(self, partition: int, *values: str, duration_ns: int = 6 * SECOND) -> None:
        records = bytes(write_batch([Record(0, 5, None, value.encode()) for value in values]))
        part = ProduceRequestPartition(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1_000,
            topic_data=(ProduceRequestTopic(name=TOPIC, partition_data=(part,)),),
        )
        client = self.stage.client()
        client.send(request, 9)
        self.stage.run(duration_ns)
        answer = client.receive(ProduceResponse, 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    def request(self, *partitions: int, **fields: object) -> QueueReceiveRequest:
        topic = QueueReceiveRequestTopic(topic=str(fields.pop("topic", TOPIC)), partitions=partitions)
        known = {"group_id": "workers", "consumer": "c1", "topics": (topic,), **fields}
        return QueueReceiveRequest(**known)  # type: ignore[arg-type]

    def receive(self, *partitions: int, **fields: object) -> QueueReceiveResponse:
        return self.stage.ask(self.request(*partitions, **fields), QueueReceiveResponse, 0)

    def values(self, *partitions: int, **fields: object) -> list[str]:
        answer = self.receive(*partitions, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        return [(each.value or b"").decode() for each in received(answer).records]

    def waiting(self, *partitions: int, **fields: object) -> "Client":
        """A connection whose consumer waits."""
        client = self.stage.client()
        client.send(self.request(*partitions, wait_ms=60_000, **fields), 0)
        self.stage.run()
        assert not client.tcp.written
        return client

    def settle(self, action: int, *receipts: str, **fields: object) -> list[int]:
        known = {"group_id": "workers", "action": action, "receipts": receipts, **fields}
        answer = self.stage.ask(QueueSettleRequest(**known), QueueSettleResponse, 0)  # type: ignore[arg-type]
        if answer.error_code:
            assert answer.error_message
            return [answer.error_code]
        return [each.error_code for each in results_of(answer)]

    def describe(self, **fields: object) -> tuple[QueueDescribeResponseQueue, ...]:
        request = QueueDescribeRequest(**fields)  # type: ignore[arg-type]
        answer = self.stage.ask(request, QueueDescribeResponse, 0)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer.queues

    def alter(self, action: int, *partitions: int, **fields: object) -> list[int]:
        known = {"group_id": "workers", "topic": TOPIC, "partitions": partitions, "action": action, **fields}
        answer = self.stage.ask(QueueAlterRequest(**known), QueueAlterResponse, 0)  # type: ignore[arg-type]
        if answer.error_code:
            assert answer.error_message
            return [answer.error_code]
        return [each.error_code for each in answer.partitions]

    def peek(self, partition: int = 0, **fields: object) -> QueuePeekResponse:
        known = {"group_id": "workers", "topic": TOPIC, "partition": partition, **fields}
        return self.stage.ask(QueuePeekRequest(**known), QueuePeekResponse, 0)  # type: ignore[arg-type]

    def leases(self) -> int:
        service = self.stage.backstage._queues
        assert service is not None
        orders = [queue.order for each in service for queue in each.machine.queues.values()]
        return sum(order.leased for order in orders if order is not None)


@pytest.fixture
def queues(stage: "Stage") -> QueueClient:
    return QueueClient(stage)


def test_a_consumer_gets_the_records_of_any_partition_and_finishes_them(queues: QueueClient) -> None:
    queues.produce(2, "a", "b")

    answer = queues.receive()

    assert [(each.topic, each.partition, each.offset, each.attempt) for each in received(answer).records] == [
        (TOPIC, 2, 0, 1),
        (TOPIC, 2, 1, 1),
    ]
    assert answer.lease_ms == 30_000
    assert queues.settle(ACKNOWLEDGE, *[each.receipt for each in received(answer).records]) == [0, 0]
    assert queues.values() == []


def test_partitions_take_turns(queues: QueueClient) -> None:
    for partition in range(3):
        queues.produce(partition, *[f"{partition}"] * 4)

    first = [queues.values(records_max=1)[0] for _ in range(3)]

    assert sorted(first) == ["0", "1", "2"]


@pytest.mark.parametrize("partitions", [(), (1,)])
def test_a_consumer_that_waits_gets_what_comes(queues: QueueClient, partitions: tuple[int, ...]) -> None:
    client = queues.waiting(*partitions)

    queues.produce(1, "a")

    assert [each.value for each in received(client.receive(QueueReceiveResponse, 0)).records] == [b"a"]


def test_consumers_that_wait_for_all_partitions_get_a_record_each(queues: QueueClient) -> None:
    clients = [queues.waiting(consumer=f"c{number}", records_max=1) for number in range(4)]

    # Sooner than the queues are asked without a reason.
    queues.produce(0, "a", "b", "c", "d", duration_ns=SECOND // 4)

    answers = [client.receive(QueueReceiveResponse, 0) for client in clients]
    assert sorted(each.value or b"" for answer in answers for each in received(answer).records) == [
        b"a",
        b"b",
        b"c",
        b"d",
    ]


def test_a_wait_ends_without_records(queues: QueueClient) -> None:
    answer = queues.receive(wait_ms=500)

    assert (answer.error_code, answer.slices) == (ErrorCode.NONE, ())


def test_a_consumer_that_hung_up_gets_no_lease(queues: QueueClient) -> None:
    queues.waiting().leave()

    queues.produce(1, "a")
    queues.stage.run()

    assert queues.leases() == 0
    assert [each.attempt for each in received(queues.receive()).records] == [1]


def test_a_lease_that_comes_after_its_consumer_has_gone_does_not_count(
    queues: QueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = queues.waiting()
    ask = DelayedReceive._ask

    def ask_and_leave(self: DelayedReceive, queue: object) -> None:
        ask(self, queue)  # type: ignore[arg-type]
        partition = queues.stage.backend.partitions.find(TOPIC, 1)
        if queue.partition == 1 and partition is not None and partition.log.end:  # type: ignore[attr-defined]
            client.leave()

    monkeypatch.setattr(DelayedReceive, "_ask", ask_and_leave)
    queues.produce(1, "a")
    queues.stage.run()
    monkeypatch.undo()

    assert queues.leases() == 0
    assert [each.attempt for each in received(queues.receive()).records] == [1]


def test_a_released_record_is_delivered_again_after_its_delay(queues: QueueClient) -> None:
    queues.produce(0, "a")
    (record,) = received(queues.receive()).records

    assert queues.settle(RELEASE, record.receipt, delay_ms=60_000, reason="not now") == [0]

    assert queues.values() == []
    queues.stage.run(60 * SECOND)
    (again,) = received(queues.receive()).records
    assert again.attempt == 2
    assert queues.settle(ACKNOWLEDGE, record.receipt, again.receipt) == [ErrorCode.INVALID_RECORD_STATE, 0]


def test_a_returned_record_is_delivered_at_once_as_if_it_had_not_been(queues: QueueClient) -> None:
    queues.produce(0, "a")
    (record,) = received(queues.receive()).records

    assert queues.settle(RETURN, record.receipt) == [0]

    (again,) = received(queues.receive()).records
    assert again.attempt == 1
    assert queues.settle(ACKNOWLEDGE, record.receipt, again.receipt) == [ErrorCode.INVALID_RECORD_STATE, 0]


def test_a_renewed_lease_lasts_longer(queues: QueueClient) -> None:
    queues.produce(0, "a")
    (record,) = received(queues.receive(lease_ms=20_000)).records

    assert queues.settle(RENEW, record.receipt, lease_ms=600_000) == [0]

    queues.stage.run(100 * SECOND)
    assert queues.values() == []
    assert queues.settle(REJECT, record.receipt, reason="broken") == [0]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"consumer": ""}, ErrorCode.INVALID_REQUEST),
        ({"topics": ()}, ErrorCode.INVALID_REQUEST),
        ({"topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "__queue_state"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"wait_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"wait_ms": 10**8}, ErrorCode.INVALID_REQUEST),
        ({"records_max": 0}, ErrorCode.INVALID_REQUEST),
        ({"bytes_max": -5}, ErrorCode.INVALID_REQUEST),
        ({"lease_ms": 0}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_received_gets_one_clear_error(
    queues: QueueClient, fields: dict[str, object], code: int
) -> None:
    answer = queues.receive(**fields)

    assert answer.error_code == code
    assert answer.error_message


def test_a_partition_that_does_not_exist_is_an_error(queues: QueueClient) -> None:
    assert queues.receive(7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "code"),
    [("workers", ErrorCode.GROUP_AUTHORIZATION_FAILED), (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
)
def test_a_consumer_needs_the_group_and_the_topic(queues: QueueClient, name: str, code: int) -> None:
    queues.stage.authorizer.denied = {(AclOperation.READ, name)}

    assert queues.receive().error_code == code


@pytest.mark.parametrize(
    ("name", "code"),
    [("workers", ErrorCode.GROUP_AUTHORIZATION_FAILED), (TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
)
def test_a_consumer_that_waits_gets_nothing_once_a_right_is_taken_back(
    queues: QueueClient, name: str, code: int
) -> None:
    waiting = queues.waiting()
    queues.stage.authorizer.denied = {(AclOperation.READ, name)}

    queues.produce(0, "a")

    answer = waiting.receive(QueueReceiveResponse, 0)
    assert (answer.error_code, answer.slices) == (code, ())


def test_a_receipt_that_is_none_does_not_keep_the_others_from_being_settled(queues: QueueClient) -> None:
    queues.produce(0, "a")
    queues.produce(1, "b")
    receipts = [each.receipt for _ in range(2) for each in received(queues.receive()).records]

    results = queues.settle(ACKNOWLEDGE, receipts[0], "nonsense", receipts[1])

    assert results == [0, ErrorCode.INVALID_REQUEST, 0]


def test_records_are_settled_as_they_were_received(queues: QueueClient) -> None:
    queues.produce(0, "a", "b", "c", "d")
    queues.produce(0, "e")
    answers = [received(queues.receive(0, records_max=3)).records, received(queues.receive(0)).records]
    a, b, c, d, e = (each for answer in answers for each in answer)
    leases = leases_of([a, b, d, e])

    assert [(each.offset, each.count, each.attempt) for each in leases] == [(0, 2, 1), (3, 2, 1)]
    assert queues.settle(ACKNOWLEDGE, c.receipt, leases=leases) == [0] * 5
    assert queues.settle(ACKNOWLEDGE, leases=leases_of([a])) == [ErrorCode.INVALID_RECORD_STATE]
    (queue,) = queues.describe(groups=("workers",))
    assert (queue.finished_below, queue.leased) == (5, 0)


def test_a_lease_that_has_ended_is_refused_and_those_beside_it_are_not(queues: QueueClient) -> None:
    queues.produce(0, "a", "b", "c")
    a, b, c = received(queues.receive(0)).records
    queues.settle(RELEASE, b.receipt, delay_ms=0)
    (again,) = received(queues.receive(0)).records

    stale = ErrorCode.INVALID_RECORD_STATE
    assert queues.settle(ACKNOWLEDGE, leases=leases_of([a, b, c])) == [0, stale, 0]
    assert queues.settle(ACKNOWLEDGE, leases=leases_of([again])) == [0]


def lease(**fields: object) -> QueueSettleRequestLease:
    known = {"topic_id": UUID(int=1), "partition": 0, "token": 1, "attempt": 1, "offset": 0, "count": 1}
    return QueueSettleRequestLease(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"action": 9},
        {"receipts": ()},
        {"leases": (lease(count=0),)},
        {"leases": (lease(count=-1),)},
        {"leases": (lease(count=2_000),)},
        {"leases": (lease(offset=-1),)},
        {"leases": (lease(token=-1),)},
        {"receipts": ("x",) * 2_001},
        {"transactional_id": "t"},
        {"producer_id": 1, "producer_epoch": 0},
        {"action": RELEASE, "transactional_id": "t", "producer_id": 1, "producer_epoch": 0},
    ],
)
def test_what_cannot_be_settled_gets_one_clear_error(queues: QueueClient, fields: dict[str, object]) -> None:
    known = {"group_id": "workers", "action": ACKNOWLEDGE, "receipts": ("x",), **fields}

    answer = queues.stage.ask(QueueSettleRequest(**known), QueueSettleResponse, 0)  # type: ignore[arg-type]

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message


def test_a_group_that_may_not_be_read_may_not_be_settled_for(queues: QueueClient) -> None:
    queues.stage.authorizer.denied = {(AclOperation.READ, "workers")}

    assert queues.settle(ACKNOWLEDGE, "x") == [ErrorCode.GROUP_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("action", [ACKNOWLEDGE, RELEASE, REJECT, RENEW, RETURN])
def test_records_of_a_topic_that_may_not_be_read_any_more_are_not_settled(
    queues: QueueClient, action: int
) -> None:
    queues.produce(0, "a", "b", "c")
    a, b, c = received(queues.receive(0, records_max=3)).records
    queues.stage.authorizer.denied.add((AclOperation.READ, TOPIC))

    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    results = queues.settle(action, c.receipt, "nonsense", leases=leases_of([a, b]))
    assert results == [denied, ErrorCode.INVALID_REQUEST, denied, denied]

    queues.stage.authorizer.denied.clear()
    assert queues.settle(ACKNOWLEDGE, c.receipt, leases=leases_of([a, b])) == [0] * 3


def test_a_wait_does_not_ask_all_the_time(queues: QueueClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    ask = DelayedReceive._ask

    def count(self: DelayedReceive, queue: object) -> None:
        asked.append(queue)
        ask(self, queue)  # type: ignore[arg-type]

    monkeypatch.setattr(DelayedReceive, "_ask", count)
    queues.waiting()
    queues.stage.run()

    # Each of the three queues at first, and once a second.
    assert 3 <= len(asked) <= 3 * 14


def test_queues_are_described_also_when_nobody_consumes(queues: QueueClient) -> None:
    queues.produce(1, "a", "b", "c")
    (first, _) = received(queues.receive(1, records_max=2)).records
    queues.settle(ACKNOWLEDGE, first.receipt)
    queues.receive(0, group_id="others")
    # Long enough for the leader to close the queues.
    queues.stage.run(200 * SECOND)

    described = queues.describe()

    assert [(each.group_id, each.topic, each.partition) for each in described] == [
        ("others", TOPIC, 0),
        ("workers", TOPIC, 1),
    ]
    assert (described[1].end, described[1].finished_below, described[1].deliveries_max) == (3, 1, 4)
    assert described[1].ready + described[1].leased == 2
    assert [each.group_id for each in queues.describe(groups=("others",))] == ["others"]
    assert queues.describe(groups=("nobody",)) == ()
    assert len(queues.describe(topics=(TOPIC,))) == 2


def test_queues_of_others_are_not_described(queues: QueueClient) -> None:
    queues.receive(0)
    queues.stage.authorizer.denied = {(AclOperation.DESCRIBE, "workers")}

    assert queues.describe() == ()
    answer = queues.stage.ask(QueueDescribeRequest(groups=("workers",)), QueueDescribeResponse, 0)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_a_topic_that_may_not_be_seen_is_described_like_one_that_is_not_there(queues: QueueClient) -> None:
    queues.receive(0)
    queues.stage.authorizer.denied = {(AclOperation.DESCRIBE, name) for name in (TOPIC, "nothing")}

    answers = [
        queues.stage.ask(QueueDescribeRequest(topics=(name,)), QueueDescribeResponse, 0)
        for name in (TOPIC, "nothing")
    ]

    assert [answer.error_code for answer in answers] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert queues.describe() == ()


def test_a_paused_queue_delivers_nothing_until_it_is_resumed(queues: QueueClient) -> None:
    queues.produce(0, "a")
    queues.receive(0)
    queues.receive(1)
    queues.stage.run(40 * SECOND)

    assert queues.alter(PAUSE, 0) == [0]
    answer = queues.receive(0)
    assert (answer.slices, answer.is_paused) == ((), True)
    assert [each.is_paused for each in queues.describe()] == [True, False]

    client = queues.waiting(0)
    assert queues.alter(RESUME, 0) == [0]
    assert [each.value for each in received(client.receive(QueueReceiveResponse, 0)).records] == [b"a"]


def test_a_queue_begins_again_where_it_is_told(queues: QueueClient) -> None:
    queues.produce(0, "a", "b", "c")
    queues.settle(ACKNOWLEDGE, *[each.receipt for each in received(queues.receive(0)).records])

    assert queues.alter(RESET, 0, offset=TO_EARLIEST) == [0]
    assert queues.values(0) == ["a", "b", "c"]
    assert queues.alter(RESET, 0, offset=TO_LATEST) == [0]
    assert queues.values(0) == []
    assert queues.alter(RESET, 0, offset=2) == [0]
    assert queues.values(0) == ["c"]
    assert queues.alter(RESET, 0, offset=9) == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_a_forgotten_queue_is_gone(queues: QueueClient) -> None:
    queues.receive(0)

    assert queues.alter(FORGET, 0, 1) == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert queues.describe() == ()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"action": 9}, ErrorCode.INVALID_REQUEST),
        ({"action": RESET, "offset": -3}, ErrorCode.INVALID_REQUEST),
        ({"topic": "other"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_what_cannot_be_altered_gets_one_clear_error(
    queues: QueueClient, fields: dict[str, object], code: int
) -> None:
    action = fields.pop("action", PAUSE)
    assert isinstance(action, int)

    assert queues.alter(action, **fields) == [code]


def test_a_peek_shows_what_is_not_finished(queues: QueueClient) -> None:
    queues.produce(0, "a", "b", "c", "d")
    records = received(queues.receive(0, records_max=3, lease_ms=600_000)).records
    queues.settle(ACKNOWLEDGE, records[0].receipt)
    queues.settle(RELEASE, records[1].receipt, delay_ms=600_000, reason="later")

    peeked = queues.peek()

    assert [(each.value, each.state, each.attempts) for each in peeked.records] == [
        (b"b", DELAYED, 1),
        (b"c", LEASED, 1),
        (b"d", AVAILABLE, 0),
    ]
    assert [(each.consumer, each.reason) for each in peeked.records] == [
        (None, "later"),
        ("c1", None),
        (None, None),
    ]
    assert peeked.next_offset == -1
    assert queues.leases() == 1


def test_a_peek_goes_on_where_it_ended(queues: QueueClient) -> None:
    queues.receive(0)
    queues.produce(0, *"abcde")

    found, position = "", 0
    while position >= 0:
        peeked = queues.peek(from_offset=position, count=2)
        found += "".join((each.value or b"").decode() for each in peeked.records)
        position = peeked.next_offset

    assert found == "abcde"


def test_a_peek_into_nothing_is_an_error(queues: QueueClient) -> None:
    assert queues.peek().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert queues.peek(9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert queues.peek(count=0).error_code == ErrorCode.INVALID_REQUEST


def configure(queues: QueueClient, **values: str) -> object:
    changes = tuple((name.replace("_", "."), value) for name, value in values.items())
    resource = ConfigResource(ConfigResourceType.GROUP, "workers")
    return queues.stage.submit(AlterConfigs(resource, changes))


def test_the_settings_of_a_group_count_for_its_queues(queues: QueueClient) -> None:
    configure(queues, queue_visibility_timeout_ms="5000", queue_retries_max="0", queue_start="latest")
    queues.produce(0, "old")
    assert queues.values(0) == []
    queues.produce(0, "new")

    answer = queues.receive(0)

    assert (answer.lease_ms, [each.value for each in received(answer).records]) == (5_000, [b"new"])
    assert [each.deliveries_max for each in queues.describe()] == [1]
    assert [each.value for each in received(queues.receive(0, group_id="others")).records] == [b"old", b"new"]


def test_no_more_records_are_in_flight_than_the_window_of_the_group_has_room_for(queues: QueueClient) -> None:
    configure(queues, queue_window_max="3")
    queues.produce(0, *"abcde")

    first = received(queues.receive(0)).records

    assert [each.value for each in first] == [b"a", b"b", b"c"]
    assert queues.values(0) == []
    queues.settle(ACKNOWLEDGE, first[0].receipt, first[1].receipt)
    assert queues.values(0) == ["d", "e"]
    assert len(received(queues.receive(0, group_id="others")).records) == 5


def test_a_change_of_settings_reaches_queues_that_are_in_use(queues: QueueClient) -> None:
    queues.produce(0, "a", "b")
    assert queues.receive(0, records_max=1).lease_ms == 30_000

    configure(queues, queue_visibility_timeout_ms="7000")

    assert queues.receive(0).lease_ms == 7_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("queue.visibility.timeout.ms", "0"),
        ("queue.retries.max", "100"),
        ("queue.start", "here"),
        ("queue.key.ordered", "maybe"),
        ("queue.backoff.ms", "-1"),
    ],
)
def test_settings_that_a_queue_cannot_have_are_refused(queues: QueueClient, key: str, value: str) -> None:
    assert isinstance(configure(queues, **{key: value}), ApiError)


def point_to_point(queues: QueueClient, policy: str = "consumed") -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC)
    queues.stage.submit(AlterConfigs(resource, (("cleanup.policy", policy),)))


def log_start(queues: QueueClient, partition: int = 0) -> int:
    queues.stage.run(25 * SECOND)
    found = queues.stage.backend.partitions.find(TOPIC, partition)
    assert found is not None
    return found.log.start


def test_a_record_of_a_point_to_point_topic_is_deleted_once_every_group_has_finished_it(
    queues: QueueClient,
) -> None:
    point_to_point(queues)
    queues.produce(0, "a", "b", "c")
    assert log_start(queues) == 0
    first = [each.receipt for each in received(queues.receive(0, lease_ms=600_000)).records]
    second = [
        each.receipt for each in received(queues.receive(0, group_id="others", lease_ms=600_000)).records
    ]

    queues.settle(ACKNOWLEDGE, *first)
    assert log_start(queues) == 0
    queues.settle(ACKNOWLEDGE, second[0], second[2], group_id="others")
    assert log_start(queues) == 1
    queues.settle(ACKNOWLEDGE, second[1], group_id="others")
    assert log_start(queues) == 3

    queues.produce(0, "d")
    assert queues.values(0) == ["d"]


def test_a_group_that_has_not_begun_on_a_partition_has_finished_nothing_of_it(queues: QueueClient) -> None:
    point_to_point(queues)
    queues.produce(0, "a")
    queues.receive(1, group_id="others")
    (record,) = received(queues.receive(0)).records

    queues.settle(ACKNOWLEDGE, record.receipt)

    assert log_start(queues) == 0
    assert [each.value for each in received(queues.receive(0, group_id="others")).records] == [b"a"]


def test_other_topics_keep_what_queues_have_finished(queues: QueueClient) -> None:
    queues.produce(0, "a")
    (record,) = received(queues.receive(0)).records
    queues.settle(ACKNOWLEDGE, record.receipt)

    assert log_start(queues) == 0
    point_to_point(queues, "consumed,delete")
    assert log_start(queues) == 1


def test_a_topic_is_not_compacted_and_consumed_at_once(queues: QueueClient) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, TOPIC)

    refused = queues.stage.submit(AlterConfigs(resource, (("cleanup.policy", "compact,consumed"),)))

    assert isinstance(refused, ApiError)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_acknowledgement_can_be_part_of_a_transaction(queues: QueueClient, is_commit: bool) -> None:
    stage = queues.stage
    queues.produce(0, "a")
    (record,) = received(queues.receive(0, lease_ms=600_000)).records
    stage.ask(FindCoordinatorRequest(key="t", key_type=1), FindCoordinatorResponse, 3)
    init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    granted = stage.ask(init, InitProducerIdResponse, 5)
    assert granted.error_code == ErrorCode.NONE
    producer = {"producer_id": granted.producer_id, "producer_epoch": granted.producer_epoch}

    assert queues.settle(ACKNOWLEDGE, record.receipt, transactional_id="t", **producer) == [0]
    # Nobody else decides meanwhile.
    assert queues.settle(ACKNOWLEDGE, record.receipt) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    end = EndTxnRequest(transactional_id="t", committed=is_commit, **producer)
    assert stage.ask(end, EndTxnResponse, 5).error_code == ErrorCode.NONE

    finished = [each.finished_below for each in queues.describe()]
    assert finished == [1 if is_commit else 0]
    assert queues.settle(ACKNOWLEDGE, record.receipt) == [ErrorCode.INVALID_RECORD_STATE if is_commit else 0]
