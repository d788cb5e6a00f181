"""Transactions of a whole node, from InitProducerId to the marker in the log."""

from typing import TYPE_CHECKING

import pytest

from penstock.core.model import ProducerId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
)
from penstock.core.protocol.messages.batch_commit import (
    BatchCommitRequest,
    BatchCommitRequestTransaction,
    BatchCommitResponse,
)
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.core.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
)
from penstock.core.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.core.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from penstock.core.transactions import PARTITIONS_MAX
from penstock.security import AclOperation

if TYPE_CHECKING:
    from tests.unit.server.kafka.handlers.conftest import Stage

ID = "payments"


class Transactions:
    """A producer's requests, and what its coordinator says."""

    def __init__(self, stage: "Stage") -> None:
        self.stage = stage
        self.id = ID
        topic = CreateTopicsRequestTopic(
            name="t", num_partitions=2, replication_factor=1, assignments=(), configs=()
        )
        stage.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=1_000), CreateTopicsResponse, 5)
        found = self._find()
        assert (found.error_code, found.node_id) == (0, 1)

    def _find(self) -> FindCoordinatorResponse:
        return self.stage.ask(FindCoordinatorRequest(key=ID, key_type=1), FindCoordinatorResponse, 3)

    def init(
        self, version: int = 5, *, timeout_ms: int = 60_000, producer: tuple[int, int] = (-1, -1)
    ) -> InitProducerIdResponse:
        return self.stage.ask(
            InitProducerIdRequest(
                transactional_id=self.id,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer[0],
                producer_epoch=producer[1],
            ),
            InitProducerIdResponse,
            version,
        )

    def begin(self) -> tuple[int, int]:
        granted = self.init()
        assert granted.error_code == 0
        return granted.producer_id, granted.producer_epoch

    def add(
        self, producer: tuple[int, int], *partitions: int, topic: str = "t", version: int = 3
    ) -> list[int]:
        response = self.stage.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=(AddPartitionsToTxnRequestTopic(name=topic, partitions=partitions),),
            ),
            AddPartitionsToTxnResponse,
            version,
        )
        (results,) = response.results_by_topic_v3_and_below
        return [each.partition_error_code for each in results.results_by_partition]

    def end(
        self, producer: tuple[int, int], *, commit: bool = True, version: int = 5
    ) -> tuple[int, int, int]:
        response = self.stage.ask(
            EndTxnRequest(
                transactional_id=self.id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                committed=commit,
            ),
            EndTxnResponse,
            version,
        )
        return response.error_code, response.producer_id, response.producer_epoch

    def describe(self) -> DescribeTransactionsResponseTransaction:
        request = DescribeTransactionsRequest(transactional_ids=(self.id,))
        return self.stage.ask(request, DescribeTransactionsResponse, 0).transaction_states[0]

    def last_epoch(self, partition: int, producer_id: int) -> int | None:
        """The producer's epoch in a partition, which a marker raises; None without batch and marker."""
        led = self.stage.backend.partitions.find("t", partition)
        assert led is not None
        known = led.log.producers.get(ProducerId(producer_id))
        return None if known is None else known.epoch

    def ends(self) -> list[int]:
        found = [self.stage.backend.partitions.find("t", index) for index in (0, 1)]
        return [led.log.end for led in found if led is not None]


@pytest.fixture
def transactions(stage: "Stage") -> Transactions:
    return Transactions(stage)


def test_a_transaction_is_committed_with_a_marker_in_every_partition(transactions: Transactions) -> None:
    producer = transactions.begin()
    assert transactions.add(producer, 0, 1) == [0, 0]
    ongoing = transactions.describe()

    assert transactions.end(producer) == (0, producer[0], 1)

    assert (ongoing.transaction_state, ongoing.topics[0].partitions) == ("Ongoing", (0, 1))
    described = transactions.describe()
    assert (described.transaction_state, described.topics) == ("CompleteCommit", ())
    assert transactions.ends() == [1, 1]
    assert [transactions.last_epoch(index, producer[0]) for index in (0, 1)] == [1, 1]


def test_an_older_client_commits_and_aborts_under_one_epoch(transactions: Transactions) -> None:
    producer = transactions.begin()
    for commit in (True, False):
        assert transactions.add(producer, 0) == [0]
        assert transactions.end(producer, commit=commit, version=3)[0] == 0

    assert transactions.describe().transaction_state == "CompleteAbort"
    assert transactions.describe().producer_epoch == 0
    assert transactions.ends() == [2, 0]


def test_a_fenced_producer_gets_the_code_that_its_version_knows(transactions: Transactions) -> None:
    old = transactions.begin()
    transactions.begin()

    assert transactions.add(old, 0, version=2) == [ErrorCode.PRODUCER_FENCED]
    assert transactions.add(old, 0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert transactions.end(old)[0] == ErrorCode.PRODUCER_FENCED
    assert transactions.end(old, version=1)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactions.init(4, producer=old).error_code == ErrorCode.PRODUCER_FENCED
    assert transactions.init(3, producer=old).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_second_instance_ends_the_first_ones_transaction(transactions: Transactions) -> None:
    producer = transactions.begin()
    transactions.add(producer, 1)

    first = transactions.init()
    second = transactions.init()

    assert first.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert (second.error_code, second.producer_id, second.producer_epoch) == (0, producer[0], 2)
    assert transactions.ends() == [0, 1]


def test_a_transaction_that_takes_too_long_is_aborted(transactions: Transactions) -> None:
    granted = transactions.init(timeout_ms=2_000)
    producer = (granted.producer_id, granted.producer_epoch)
    transactions.add(producer, 0)

    transactions.stage.run(3)

    assert transactions.describe().transaction_state == "CompleteAbort"
    assert transactions.end(producer, version=3)[0] == ErrorCode.PRODUCER_FENCED
    assert transactions.last_epoch(0, producer[0]) == 1


def test_a_group_joins_a_transaction_by_its_partition_of_the_offsets_topic(
    transactions: Transactions,
) -> None:
    producer = transactions.begin()
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id="readers"
    )

    answer = transactions.stage.ask(request, AddOffsetsToTxnResponse, 3)

    assert answer.error_code == 0
    (topic,) = transactions.describe().topics
    assert topic.topic == "__consumer_offsets"
    assert len(topic.partitions) == 1


def test_a_request_names_a_bounded_number_of_partitions(transactions: Transactions) -> None:
    producer = transactions.begin()
    everything = tuple(range(PARTITIONS_MAX + 1))
    half = AddPartitionsToTxnRequestTopic(name="t", partitions=everything[: PARTITIONS_MAX // 2 + 1])
    asked = tuple(
        AddPartitionsToTxnRequestTransaction(
            transactional_id=ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=True,
            topics=(half,),
        )
        for _ in range(2)
    )

    by_brokers = transactions.stage.ask(
        AddPartitionsToTxnRequest(transactions=asked), AddPartitionsToTxnResponse, 5
    )

    assert transactions.add(producer, *everything) == [ErrorCode.INVALID_REQUEST] * PARTITIONS_MAX
    assert (by_brokers.error_code, by_brokers.results_by_transaction) == (ErrorCode.INVALID_REQUEST, ())


def test_brokers_add_and_verify_partitions_of_several_transactions(transactions: Transactions) -> None:
    producer = transactions.begin()

    def ask(verify_only: bool, partition: int, version: int = 5) -> list[int]:
        topics = (AddPartitionsToTxnRequestTopic(name="t", partitions=(partition,)),)
        asked = tuple(
            AddPartitionsToTxnRequestTransaction(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=topics,
            )
            for transactional_id in (ID, "another")
        )
        answer = transactions.stage.ask(
            AddPartitionsToTxnRequest(transactions=asked), AddPartitionsToTxnResponse, version
        )
        assert answer.error_code == 0
        return [
            row.topic_results[0].results_by_partition[0].partition_error_code
            for row in answer.results_by_transaction
        ]

    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert ask(True, 0) == [ErrorCode.TRANSACTION_ABORTABLE, unknown]
    assert ask(True, 0, version=4) == [ErrorCode.INVALID_TXN_STATE, unknown]
    assert ask(False, 0) == [0, unknown]
    assert ask(True, 0) == [0, unknown]
    transactions.stage.authorizer.denied = {(AclOperation.CLUSTER_ACTION, "kafka-cluster")}
    refused = transactions.stage.ask(
        AddPartitionsToTxnRequest(transactions=()), AddPartitionsToTxnResponse, 5
    )
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_brokers_add_no_partitions_that_are_not_there(transactions: Transactions) -> None:
    producer = transactions.begin()
    asked = AddPartitionsToTxnRequestTransaction(
        transactional_id=ID,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=False,
        topics=tuple(AddPartitionsToTxnRequestTopic(name=name, partitions=(0,)) for name in ("t", "absent")),
    )

    answer = transactions.stage.ask(
        AddPartitionsToTxnRequest(transactions=(asked,)), AddPartitionsToTxnResponse, 5
    )

    (row,) = answer.results_by_transaction
    assert [topic.results_by_partition[0].partition_error_code for topic in row.topic_results] == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert transactions.describe().topics == ()


def test_if_one_partition_cannot_be_added_none_is(transactions: Transactions) -> None:
    producer = transactions.begin()

    assert transactions.add(producer, 0, 7) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    internal = transactions.add(producer, 0, topic="__transaction_state")
    assert internal == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert transactions.describe().transaction_state == "Empty"


def test_who_may_not_use_the_id_learns_nothing(transactions: Transactions) -> None:
    producer = transactions.begin()
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    transactions.stage.authorizer.denied = {(AclOperation.WRITE, ID), (AclOperation.DESCRIBE, ID)}

    assert transactions.init().error_code == denied
    assert transactions.add(producer, 0) == [denied]
    assert transactions.end(producer)[0] == denied
    assert transactions.describe().error_code == denied
    assert listed(transactions) == []
    transactions.stage.authorizer.denied = {(AclOperation.READ, "readers")}
    request = AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id="readers"
    )
    answer = transactions.stage.ask(request, AddOffsetsToTxnResponse, 3)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def listed(transactions: Transactions, *states: str, duration_ms: int = -1) -> list[tuple[str, str]]:
    answer = transactions.stage.ask(
        ListTransactionsRequest(state_filters=states, producer_id_filters=(), duration_filter=duration_ms),
        ListTransactionsResponse,
        1,
    )
    assert answer.unknown_state_filters == tuple(state for state in states if state == "Nonsense")
    return [(row.transactional_id, row.transaction_state) for row in answer.transaction_states]


def test_transactions_are_listed(transactions: Transactions) -> None:
    producer = transactions.begin()
    assert listed(transactions) == [(ID, "Empty")]
    transactions.add(producer, 0)

    assert listed(transactions, "Ongoing", "Nonsense") == [(ID, "Ongoing")]
    assert listed(transactions, "Nonsense") == []
    assert listed(transactions, duration_ms=600_000) == []


def test_what_is_not_offered_is_refused(transactions: Transactions) -> None:
    def init(**fields: object) -> int:
        request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1_000, **fields)  # type: ignore[arg-type]
        return transactions.stage.ask(request, InitProducerIdResponse, 6).error_code

    assert init(enable_2pc=True) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert init(keep_prepared_txn=True) == ErrorCode.UNSUPPORTED_VERSION
    assert transactions.init(timeout_ms=10**9).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert transactions.init(timeout_ms=0).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def commit_batch(
    transactions: Transactions, batch: str, *listed: tuple[str, int, int]
) -> BatchCommitResponse:
    rows = tuple(
        BatchCommitRequestTransaction(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch
        )
        for transactional_id, producer_id, epoch in listed
    )
    request = BatchCommitRequest(sink="sink", batch=batch, transactions=rows)
    return transactions.stage.ask(request, BatchCommitResponse, 0)


def test_a_batch_of_transactions_is_committed_once(transactions: Transactions) -> None:
    listed = []
    for task in range(2):
        transactions.id = f"sink#{task}"
        producer = transactions.begin()
        transactions.add(producer, task)
        listed.append((transactions.id, *producer))

    stale = commit_batch(transactions, "5", listed[0], (transactions.id, listed[1][1], 9))
    assert stale.error_code == ErrorCode.PRODUCER_FENCED
    assert stale.error_message is not None
    assert "sink#1" in stale.error_message
    assert transactions.ends() == [0, 0]
    first, second = commit_batch(transactions, "5", *listed), commit_batch(transactions, "5", *listed)

    assert (first.error_code, first.is_repeat) == (0, False)
    assert (second.error_code, second.is_repeat) == (0, True)
    assert transactions.ends() == [1, 1]
    assert transactions.describe().transaction_state == "CompleteCommit"
    transactions.stage.authorizer.denied = {(AclOperation.WRITE, "sink#1")}
    denied = commit_batch(transactions, "6", *listed)
    assert denied.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    transactions.stage.authorizer.denied = set()
    assert commit_batch(transactions, "").error_code == ErrorCode.INVALID_REQUEST


def listed_by(transactions: Transactions, pattern: str) -> tuple[int, list[str]]:
    request = ListTransactionsRequest(
        state_filters=(), producer_id_filters=(), duration_filter=-1, transactional_id_pattern=pattern
    )
    answer = transactions.stage.ask(request, ListTransactionsResponse, 2)
    return answer.error_code, [row.transactional_id for row in answer.transaction_states]


def test_transactions_are_listed_by_a_pattern_for_the_whole_id(transactions: Transactions) -> None:
    transactions.begin()

    assert listed_by(transactions, "pay.*") == (0, [ID])
    assert listed_by(transactions, "pay") == (0, [])
    assert listed_by(transactions, "") == (0, [ID])
    assert listed_by(transactions, "(") == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


def test_whoever_may_not_use_the_ids_of_a_sink_cannot_take_its_batches(transactions: Transactions) -> None:
    transactions.stage.authorizer.denied = {(AclOperation.WRITE, "sink#")}

    answer = commit_batch(transactions, "7")
    transactions.stage.authorizer.denied = set()

    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not commit_batch(transactions, "7").is_repeat
