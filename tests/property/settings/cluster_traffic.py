"""What clients do while settings are changed: write, read, commit, join, lease, delay.

Each use returns the error code that it ended with. What passes by itself is asked for again until a deadline,
so a code that means "ask again" is only returned if asking again did not help.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.client.connection import BrokerAddress, BrokerConnection
from penstock.client.endpoint import Disconnected
from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.core.protocol.messages.delay_records import DelayRecordsRequest, DelayRecordsRequestRecord
from penstock.core.protocol.messages.end_txn import EndTxnRequest
from penstock.core.protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.core.protocol.messages.init_producer_id import InitProducerIdRequest
from penstock.core.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.core.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from penstock.core.protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from penstock.core.protocol.messages.queue_receive import QueueReceiveRequest, QueueReceiveRequestTopic
from penstock.core.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.core.records import Record, write_batch
from penstock.runtime.loop import MachineClock
from penstock.sim.values import end_of, values_of

REQUEST_SECONDS = 20.0
RETRY_SECONDS = 0.01
# The last versions that name topics.
PRODUCE, FETCH, OFFSET_COMMIT, OFFSET_FETCH = 12, 12, 9, 7
GROUPS, TRANSACTIONS = 0, 1
EARLIEST = -2
JOIN, LEAVE = 0, -1
ALL = -1
FETCH_BYTES = 1 << 20
PASSING = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)


class ClusterTraffic:
    """One client of a broker: of all its nodes, wherever partitions and groups are led."""

    def __init__(self, bootstrap: Callable[[], Sequence[BrokerAddress]]) -> None:
        self._bootstrap = bootstrap
        self._clock = MachineClock()
        self._connections: dict[BrokerAddress, _Connection] = {}
        self._leaders: dict[str, BrokerAddress] = {}
        self._coordinators: dict[tuple[str, int], BrokerAddress] = {}
        self._sent = 0
        # What is asked for again for a shorter time than a use says.
        self._brief_codes: Sequence[ErrorCode] = ()
        self._brief_ms = 0

    @contextmanager
    def brief(self, codes: Sequence[ErrorCode], deadline_ms: int) -> Iterator[None]:
        """Uses that end with one of these codes are repeated for no longer than this."""
        self._brief_codes, self._brief_ms = codes, deadline_ms
        try:
            yield
        finally:
            self._brief_codes = ()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()
        self._coordinators.clear()

    @property
    def now_ms(self) -> int:
        return self._clock.wall()

    def produce(self, topic: str, value: bytes, *, deadline_ms: int = 15_000) -> ErrorCode:
        """Write one record to the topic's first partition, with acks=all."""
        record = Record(0, self.now_ms, b"key-%d" % (self._sent % 7), value)
        self._sent += 1
        return self._repeat(lambda: self._produce(topic, write_batch([record])), deadline_ms)

    def produce_at(self, topic: str, value: bytes) -> ErrorCode:
        """Write one record, to the first node whoever leads; the first error counts."""
        record = Record(0, self.now_ms, b"key", value)
        self._leaders[topic] = self._bootstrap()[0]
        return ErrorCode(self._produce(topic, write_batch([record])))

    def read(self, topic: str, *, deadline_ms: int = 15_000) -> ErrorCode:
        """Read the first records of the topic's first partition that are still there."""
        found: list[bytes] = []
        return self._repeat(lambda: self._read(topic, found), deadline_ms)

    def read_all(self, topic: str) -> list[bytes]:
        """Every value in the topic's first partition."""
        found: list[bytes] = []
        code = self._repeat(lambda: self._read(topic, found, to_end=True), 30_000)
        assert code is ErrorCode.NONE, code
        return found

    def committed_offset(self, group: str, topic: str) -> int:
        """What a group has committed."""
        wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=(0,))
        request = OffsetFetchRequest(group_id=group, topics=(wanted,))
        found: list[int] = []

        def fetch() -> int:
            answer = self._at_coordinator(group, GROUPS, request, OFFSET_FETCH)
            if answer.error_code:
                return int(answer.error_code)
            row = answer.topics[0].partitions[0]
            found.append(int(row.committed_offset))
            return int(row.error_code)

        code = self._repeat(fetch, 30_000)
        assert code is ErrorCode.NONE, code
        return found[-1]

    def commit_offset(
        self, group: str, topic: str, offset: int = 1, *, deadline_ms: int = 15_000
    ) -> ErrorCode:
        """Commit an offset of a group without members."""
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=group, topics=(OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
        )
        return self._repeat(
            lambda: (
                self._at_coordinator(group, GROUPS, request, OFFSET_COMMIT).topics[0].partitions[0].error_code
            ),
            deadline_ms,
        )

    def join(self, group: str, topic: str, *, deadline_ms: int = 15_000) -> ErrorCode:
        """Join a consumer group, and leave it."""

        def heartbeat(member: str, epoch: int) -> Any:
            request = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=epoch,
                rebalance_timeout_ms=10_000 if epoch == JOIN else -1,
                subscribed_topic_names=(topic,) if epoch == JOIN else None,
                topic_partitions=() if epoch == JOIN else None,
            )
            return self._at_coordinator(group, GROUPS, request)

        return self._repeat(lambda: _joined(heartbeat, f"member-{group}"), deadline_ms)

    def join_share_group(self, group: str, topic: str, *, deadline_ms: int = 15_000) -> ErrorCode:
        """Join a share group, and leave it."""

        def heartbeat(member: str, epoch: int) -> Any:
            topics = (topic,) if epoch == JOIN else None
            request = ShareGroupHeartbeatRequest(
                group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=topics
            )
            return self._at_coordinator(group, GROUPS, request)

        return self._repeat(lambda: _joined(heartbeat, f"member-{group}"), deadline_ms)

    def transact(self, transactional_id: str, topic: str, *, deadline_ms: int = 15_000) -> ErrorCode:
        """Write one record in a transaction of its own."""
        return self._repeat(lambda: self._transact(transactional_id, topic), deadline_ms)

    def receive(self, group: str, topic: str, *, deadline_ms: int = 90_000) -> ErrorCode:
        """Lease a record of a queue. If records are compressed, a worker process has to start first."""
        request = QueueReceiveRequest(
            group_id=group,
            consumer="worker",
            topics=(QueueReceiveRequestTopic(topic=topic, partitions=(0,)),),
            records_max=1,
            wait_ms=1_000,
        )
        return self._repeat(lambda: self._ask(request).error_code, deadline_ms)

    def delay(self, topic: str, *, deadline_ms: int = 15_000) -> ErrorCode:
        """Have a record published in an hour."""
        record = DelayRecordsRequestRecord(topic=topic, value=b"later", deliver_at_ms=self.now_ms + 3_600_000)
        return self._repeat(
            lambda: self._ask(DelayRecordsRequest(records=(record,))).results[0].error_code, deadline_ms
        )

    def admin(self, request: Message, code: Callable[[Any], int], *, deadline_ms: int = 10_000) -> Any:
        """Ask something of the controller, through any node; returns the response."""
        answers: list[Any] = []

        def ask() -> int:
            answers.append(self._ask(request))
            return code(answers[-1])

        self._repeat(ask, deadline_ms)
        assert answers, "no node answers"
        return answers[-1]

    def _produce(
        self, topic: str, batch: bytearray, version: int = PRODUCE, transactional_id: str | None = None
    ) -> int:
        data = ProduceRequestTopic(
            name=topic, partition_data=(ProduceRequestPartition(index=0, records=bytes(batch)),)
        )
        request = ProduceRequest(
            transactional_id=transactional_id, acks=ALL, timeout_ms=1_000, topic_data=(data,)
        )
        answer = self._at_leader(topic, request, version)
        return int(answer.responses[0].partition_responses[0].error_code)

    def _read(self, topic: str, found: list[bytes], *, to_end: bool = False) -> int:
        found.clear()
        wanted = ListOffsetsRequestPartition(partition_index=0, timestamp=EARLIEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=(ListOffsetsRequestTopic(name=topic, partitions=(wanted,)),)
        )
        start = self._at_leader(topic, request, 7).topics[0].partitions[0]
        if start.error_code:
            return int(start.error_code)
        offset = start.offset
        while True:
            row = self._fetch(topic, offset)
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                # Retention has just deleted what was there.
                return ErrorCode.NONE
            if row.error_code or not row.records:
                return int(row.error_code)
            content = bytes(row.records)
            found += [value for _, value in values_of(content)]
            offset = end_of(content)
            if not to_end:
                return ErrorCode.NONE

    def _fetch(self, topic: str, offset: int) -> Any:
        wanted = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=(FetchRequestTopic(topic=topic, partitions=(wanted,)),)
        )
        return self._at_leader(topic, request, FETCH).responses[0].partitions[0]

    def _transact(self, transactional_id: str, topic: str) -> int:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=5_000)
        producer = self._at_coordinator(transactional_id, TRANSACTIONS, request)
        if producer.error_code:
            return int(producer.error_code)
        batch = write_batch(
            [Record(0, self.now_ms, b"key", b"transactional")],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        code = self._produce(topic, batch, transactional_id=transactional_id)
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=code == ErrorCode.NONE,
        )
        ended = int(self._at_coordinator(transactional_id, TRANSACTIONS, end).error_code)
        return code or ended

    def _at_leader(self, topic: str, request: Message, version: int) -> Any:
        address = self._leaders.get(topic)
        if address is None:
            address = self._leaders[topic] = self._find_leader(topic)
        return self._connection(address).ask_as(request, version)

    def _find_leader(self, topic: str) -> BrokerAddress:
        request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
        answer = self._ask(request)
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        rows = answer.topics[0].partitions
        first = [row for row in rows if row.partition_index == 0]
        if not first or first[0].leader_id not in brokers:
            code = first[0].error_code if first else answer.topics[0].error_code
            raise NotFound(ErrorCode(code or ErrorCode.LEADER_NOT_AVAILABLE))
        return brokers[first[0].leader_id]

    def _at_coordinator(self, key: str, kind: int, request: Message, version: int | None = None) -> Any:
        address = self._coordinators.get((key, kind))
        if address is None:
            answer = self._ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,)))
            found = answer.coordinators[0]
            if found.error_code:
                raise NotFound(ErrorCode(found.error_code))
            address = self._coordinators[key, kind] = (found.host, found.port)
        return self._connection(address).ask_as(request, version)

    def _ask(self, request: Message) -> Any:
        """Ask any node that is there."""
        for address in self._bootstrap():
            try:
                return self._connection(address).ask(request)
            except Disconnected:
                self._forget(address)
        raise NotFound(ErrorCode.NETWORK_EXCEPTION)

    def _connection(self, address: BrokerAddress) -> "_Connection":
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = _Connection(address, request_seconds=REQUEST_SECONDS)
        return found

    def _forget(self, address: BrokerAddress) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _repeat(self, use: Callable[[], int], deadline_ms: int) -> ErrorCode:
        began = self._clock.now()
        while True:
            try:
                code = ErrorCode(use())
            except NotFound as missing:
                code = missing.code
            except Disconnected:
                self.close()
                code = ErrorCode.NETWORK_EXCEPTION
            most_ms = min(self._brief_ms, deadline_ms) if code in self._brief_codes else deadline_ms
            if code not in PASSING or self._clock.now() > began + most_ms * SECOND // 1000:
                return code
            self._leaders.clear()
            self._coordinators.clear()
            time.sleep(RETRY_SECONDS)


class NotFound(Exception):
    """Nobody is known to ask; `code` says why."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class _Connection(BrokerConnection):
    def ask_as(self, request: Message, version: int | None) -> Any:
        self.send(request, version)
        return self.receive()


def _joined(heartbeat: Callable[[str, int], Any], member: str) -> int:
    code = int(heartbeat(member, JOIN).error_code)
    return code or int(heartbeat(member, LEAVE).error_code)
