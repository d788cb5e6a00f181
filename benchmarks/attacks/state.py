"""Things that a node keeps because a client asked: fetch sessions, producers, offsets, transactions."""

import itertools
import time
from typing import Any

from benchmarks.attacks.attack import Attacker, AttackTable
from benchmarks.attacks.batches import PRODUCE_VERSION, plain_batch
from penstock.client.connection import BrokerConnection
from penstock.core.protocol import RequestHeader, api, request_frame
from penstock.core.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
)
from penstock.core.protocol.messages.delay_records import DelayRecordsRequest, DelayRecordsRequestRecord
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)

FETCH_VERSION = 12
state = AttackTable("state")


def fetch_frame(topic: FetchRequestTopic, wait_ms: int, **options: Any) -> bytes:
    """A Fetch by names, of a version that still has them."""
    request = FetchRequest(
        max_wait_ms=wait_ms, topics=(topic,), **{"min_bytes": 1, "max_bytes": 1 << 20, **options}
    )
    return bytes(request_frame(api(1), RequestHeader(1, FETCH_VERSION, 1, "attacker"), request))


def rows(
    topic: str, count: int, partitions: int, fetch_offset: int = 0, partition_max_bytes: int = 1 << 20
) -> FetchRequestTopic:
    """So many rows of a Fetch, for partitions that repeat."""
    return FetchRequestTopic(
        topic=topic,
        partitions=tuple(
            FetchRequestPartition(
                partition=row % partitions,
                fetch_offset=fetch_offset,
                partition_max_bytes=partition_max_bytes,
            )
            for row in range(count)
        ),
    )


@state.attack("fetch-sessions")
def fetch_sessions(attacker: Attacker) -> None:
    """Full fetch requests of 10,000 partitions that do not exist, each of which opens a session."""
    # A session is opened by epoch 0; without waiting, the response comes at once.
    frame = fetch_frame(rows("nowhere", 10_000, 1 << 30), 0, session_id=0, session_epoch=0)

    def step(_unused: BrokerConnection) -> None:
        # A session outlives its connection: take another one each time.
        connection = attacker.connect()
        try:
            attacker.exchange(connection, frame)
        finally:
            connection.close()

    attacker.insist(step)


def _topic_of_producers(attacker: Attacker) -> None:
    attacker.create_topic("producers", partitions=50)


@state.attack("producer-ids", prepare=_topic_of_producers)
def producer_ids(attacker: Attacker) -> None:
    """400,000 producers that send one record each, 50 in a request."""
    ids = itertools.count(1_000_000 * (attacker.number + 1))

    def step(connection: BrokerConnection) -> None:
        if attacker.counts["producers"] >= 400_000:
            attacker.pause()
            return
        data = ProduceRequestTopic(
            name="producers",
            partition_data=tuple(
                ProduceRequestPartition(
                    index=index,
                    records=plain_batch(10, producer_id=next(ids), producer_epoch=0, base_sequence=0),
                )
                for index in range(50)
            ),
        )
        request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=(data,))
        attacker.exchange(
            connection, request_frame(api(0), RequestHeader(0, PRODUCE_VERSION, 1, "attacker"), request)
        )
        attacker.counts["producers"] += 50

    attacker.insist(step)


@state.attack("offsets-of-nothing")
def offsets_of_nothing(attacker: Attacker) -> None:
    """OffsetCommit for 100,000 partitions that do not exist."""
    version = 8
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        topic = OffsetCommitRequestTopic(
            name=f"nowhere-{next(numbers)}",
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata="x" * 8
                )
                for index in range(100_000)
            ),
        )
        request = OffsetCommitRequest(group_id="nobody", topics=(topic,))
        frame = request_frame(api(8), RequestHeader(8, version, 1, "attacker"), request)
        for _ in range(5):
            attacker.exchange(connection, frame)

    attacker.insist(step)


@state.attack("offsets-metadata")
def offsets_metadata(attacker: Attacker) -> None:
    """OffsetCommit of many groups, each with 4 KB of metadata for a partition that exists."""
    attacker.create_topic("producers", partitions=6)
    numbers = itertools.count()

    def step(connection: BrokerConnection) -> None:
        topic = OffsetCommitRequestTopic(
            name="producers",
            partitions=tuple(
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata="x" * 4_000
                )
                for index in range(6)
            ),
        )
        request = OffsetCommitRequest(group_id=f"metadata-{next(numbers)}", topics=(topic,))
        attacker.exchange(connection, request_frame(api(8), RequestHeader(8, 8, 1, "attacker"), request))

    attacker.insist(step)


@state.attack("abandoned-transactions", prepare=_topic_of_producers)
def abandoned_transactions(attacker: Attacker) -> None:
    """Transactions that are begun, get a partition, and are never heard of again."""
    names = itertools.count()

    def step(connection: BrokerConnection) -> None:
        name = f"abandoned-{attacker.number}-{next(names)}"
        begun = attacker.ask(
            connection, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
        )
        if begun.error_code:
            attacker.counts["refused"] += 1
            attacker.pause()
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=(AddPartitionsToTxnRequestTopic(name="producers", partitions=(0, 1, 2)),),
        )
        attacker.exchange(connection, request_frame(api(24), RequestHeader(24, 3, 1, "attacker"), request))
        attacker.counts["transactions"] += 1

    attacker.insist(step)


@state.attack("init-producer-ids")
def init_producer_ids(attacker: Attacker) -> None:
    """InitProducerId as fast as it is answered."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    attacker.insist(lambda connection: attacker.ask(connection, request))


@state.attack("transactional-ids")
def transactional_ids(attacker: Attacker) -> None:
    """InitProducerId under ever new transactional ids, each of nearly 8,000 characters."""

    def step(connection: BrokerConnection) -> None:
        name = f"{attacker.number}-{attacker.counts['requests']}-".ljust(7_900, "x")
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000)
        if attacker.ask(connection, request).error_code:
            attacker.counts["refused"] += 1
            attacker.pause()

    attacker.insist(step)


@state.attack("delayed-records", prepare=_topic_of_producers)
def delayed_records(attacker: Attacker) -> None:
    """Records that are to be published in a year, 100 in a request."""
    value = b"x" * 1_000
    year_ms = 366 * 86_400_000

    def step(connection: BrokerConnection) -> None:
        due_ms = time.time_ns() // 1_000_000 + year_ms
        many = (DelayRecordsRequestRecord(topic="producers", value=value, deliver_at_ms=due_ms),) * 100
        attacker.ask(connection, DelayRecordsRequest(records=many))
        attacker.counts["records"] += 100

    attacker.insist(step)
