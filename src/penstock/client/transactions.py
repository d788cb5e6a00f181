"""Transactions from the outside: what is open, who coordinates it, what hangs, and ending it.

A transaction hangs in a partition when its first record is there, but no coordinator will ever write the
marker that ends it: nobody reads past it with `read_committed`. Brokers that verify transactions do not
let that happen; older ones, and lost coordinators, may have.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.connection import BrokerConnection, connect
from penstock.client.coordinator import (
    COORDINATOR_CHANGES,
    PAUSE_SECONDS,
    TRANSACTION,
    Deadline,
    coordinator,
    expect,
)
from penstock.client.endpoint import ClientError, Endpoint
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
)
from penstock.core.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.core.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from penstock.runtime.loop import MachineClock

NOT_OPEN = -1
# Ending an open transaction takes its markers; the coordinator says CONCURRENT_TRANSACTIONS meanwhile.
PATIENCE_SECONDS = 30
FENCE_TIMEOUT_MS = 60_000
RETRIABLE = COORDINATOR_CHANGES | {ErrorCode.CONCURRENT_TRANSACTIONS}


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """One line of a listing."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDetail:
    """One transactional id; without a transaction it has no start and no partitions."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    duration_ms: int | None
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition, as the partition's leader sees it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    duration_ms: int


class _Broker(NamedTuple):
    node_id: int
    host: str
    port: int


class TransactionAdmin:
    """The transactions of one cluster."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def listed(
        self,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        duration_ms: int = -1,
    ) -> list[TransactionSummary]:
        """The transactional ids of all coordinators that pass the filters, by id."""
        found = []
        for broker, connection in self._brokers():
            answer = connection.ask(
                ListTransactionsRequest(
                    state_filters=tuple(states),
                    producer_id_filters=tuple(producer_ids),
                    duration_filter=duration_ms,
                )
            )
            expect(f"broker {broker.node_id}", answer.error_code)
            if answer.unknown_state_filters:
                raise ClientError(f"there is no state {', '.join(answer.unknown_state_filters)}")
            found += [
                TransactionSummary(
                    row.transactional_id, broker.node_id, row.producer_id, row.transaction_state
                )
                for row in answer.transaction_states
            ]
        return sorted(found, key=lambda one: one.transactional_id)

    def describe(self, transactional_id: str) -> TransactionDetail:
        """One transactional id, as its coordinator has it."""
        with self._coordinator(transactional_id) as (node_id, connection):
            answer = connection.ask(DescribeTransactionsRequest(transactional_ids=(transactional_id,)))
        (row,) = answer.transaction_states
        expect(f"transactional id {transactional_id}", row.error_code)
        is_open = row.transaction_state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        started_ms = row.transaction_start_time_ms if is_open else None
        return TransactionDetail(
            transactional_id,
            node_id,
            row.producer_id,
            row.producer_epoch,
            row.transaction_state,
            row.transaction_timeout_ms,
            started_ms,
            None if started_ms is None else max(0, _now_ms() - started_ms),
            tuple((topic.topic, index) for topic in row.topics for index in topic.partitions),
        )

    def abort(self, transactional_id: str) -> None:
        """Fence the producer of an id, which aborts the transaction that it has open."""
        self.describe(transactional_id)
        deadline = Deadline(PATIENCE_SECONDS)
        while True:
            with self._coordinator(transactional_id) as (_, connection):
                answer = connection.ask(
                    InitProducerIdRequest(
                        transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS
                    )
                )
            if answer.error_code not in RETRIABLE or deadline.is_over():
                expect(f"transactional id {transactional_id}", answer.error_code)
                return
            time.sleep(PAUSE_SECONDS)

    def abort_at(self, topic: str, partition: int, start_offset: int) -> OpenTransaction:
        """End the transaction that began at this offset in one partition, whatever its coordinator says."""
        for leader, connection in self._brokers():
            for one in self._open(connection, {topic: self._led(connection, leader, topic)}):
                if (one.partition, one.start_offset) == (partition, start_offset):
                    _write_abort(connection, one)
                    return one
        raise ClientError(f"no transaction is open at offset {start_offset} of {topic}/{partition}")

    def find_hanging(self, topics: Sequence[str] = (), older_than_ms: int = 900_000) -> list[OpenTransaction]:
        """Transactions that are open in partitions for longer than any may be, and at no coordinator."""
        candidates = []
        for leader, connection in self._brokers():
            wanted = {
                topic: self._led(connection, leader, topic) for topic in topics or _all_topics(connection)
            }
            candidates += [one for one in self._open(connection, wanted) if one.duration_ms >= older_than_ms]
        known = self._known_partitions({one.producer_id for one in candidates})
        return [one for one in candidates if (one.producer_id, one.topic, one.partition) not in known]

    def _known_partitions(self, producer_ids: Iterable[int]) -> set[tuple[int, str, int]]:
        """What coordinators will end some day."""
        wanted = tuple(producer_ids)
        if not wanted:
            return set()
        described = [self.describe(one.transactional_id) for one in self.listed(producer_ids=wanted)]
        return {
            (one.producer_id, topic, partition) for one in described for topic, partition in one.partitions
        }

    def _open(self, connection: BrokerConnection, partitions: dict[str, list[int]]) -> list[OpenTransaction]:
        topics = tuple(
            DescribeProducersRequestTopic(name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in partitions.items()
            if indexes
        )
        if not topics:
            return []
        answer = connection.ask(DescribeProducersRequest(topics=topics))
        return [
            OpenTransaction(
                topic.name,
                part.partition_index,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp,
                max(0, _now_ms() - producer.last_timestamp),
            )
            for topic in answer.topics
            for part in topic.partitions
            for producer in part.active_producers
            if producer.current_txn_start_offset != NOT_OPEN
        ]

    def _led(self, connection: BrokerConnection, leader: "_Broker", topic: str) -> list[int]:
        answer = connection.ask(
            MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        )
        (row,) = answer.topics
        expect(f"topic {topic}", row.error_code)
        return [part.partition_index for part in row.partitions if part.leader_id == leader.node_id]

    def _brokers(self) -> Iterator[tuple["_Broker", BrokerConnection]]:
        """A connection to each broker in turn."""
        with contextlib.closing(connect(self._endpoint)) as first:
            answer = first.ask(MetadataRequest(topics=()))
        for row in sorted(answer.brokers, key=lambda one: one.node_id):
            broker = _Broker(row.node_id, row.host, row.port)
            with contextlib.closing(first.sibling((row.host, row.port))) as connection:
                yield broker, connection

    def _coordinator(
        self, transactional_id: str
    ) -> contextlib.AbstractContextManager[tuple[int, BrokerConnection]]:
        what = f"transactional id {transactional_id}"
        return coordinator(self._endpoint, TRANSACTION, transactional_id, what, Deadline(PATIENCE_SECONDS))


def _all_topics(connection: BrokerConnection) -> list[str]:
    answer = connection.ask(MetadataRequest(topics=None))
    return [row.name for row in answer.topics if row.name]


def _write_abort(connection: BrokerConnection, one: OpenTransaction) -> None:
    marker = WriteTxnMarkersRequestMarker(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        transaction_result=False,
        topics=(WriteTxnMarkersRequestTopic(name=one.topic, partition_indexes=(one.partition,)),),
        coordinator_epoch=max(0, one.coordinator_epoch),
    )
    answer = connection.ask(WriteTxnMarkersRequest(markers=(marker,)))
    for row in answer.markers:
        for topic in row.topics:
            for part in topic.partitions:
                expect(f"{one.topic}/{one.partition}", part.error_code)


def _now_ms() -> int:
    return MachineClock().wall()
