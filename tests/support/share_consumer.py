"""A share consumer (KIP-932) that says when it asked, and what it was told about each acknowledgement.

Those of other people fetch ahead in a thread of their own: with them nobody knows when a lease began.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from penstock.client.connection import BrokerAddress, BrokerConnection
from penstock.client.endpoint import ClientError
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.core.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestAcknowledgementBatch,
    ShareAcknowledgeRequestPartition,
    ShareAcknowledgeRequestTopic,
)
from penstock.core.protocol.messages.share_fetch import (
    ShareFetchRequest,
    ShareFetchRequestPartition,
    ShareFetchRequestTopic,
)
from penstock.core.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.core.records import Record, read_header, read_records

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
REQUEST_SECONDS = 10.0
LEAVE, JOIN = -1, 0


class ShareConsumerAway(ClientError):
    """The consumer has to begin anew: a broker is away, or does not know it."""


class SharedRecord(NamedTuple):
    """A record that was acquired, and its how-manieth delivery that is."""

    partition: int
    offset: int
    value: bytes
    delivery_count: int


class _Leader:
    """The session with one leader."""

    def __init__(self, connection: BrokerConnection, partitions: Sequence[int]) -> None:
        self.connection = connection
        self.partitions = partitions
        self.epoch = 0


class WireShareConsumer:
    """One member of a share group, on one topic. Any error means: close it, and make another."""

    def __init__(self, bootstrap: Sequence[BrokerAddress], group: str, member_id: str, topic: str) -> None:
        self.lock_ms = 0
        self._group, self._member_id, self._topic = group, member_id, topic
        self._addresses: dict[int, BrokerAddress] = {}
        self._connections: dict[BrokerAddress, BrokerConnection] = {}
        self._topic_id = UUID(int=0)
        self._leaders: list[_Leader] = []
        self._turn = 0
        self._member_epoch = JOIN
        try:
            self._look_up(bootstrap)
            self.heartbeat()
        except ClientError:
            self.close()
            raise

    def close(self) -> None:
        """Hang up without a word."""
        for connection in self._connections.values():
            connection.close()

    def leave(self) -> None:
        """Say goodbye: what is acquired goes to others."""
        self._member_epoch = LEAVE
        with suppress(ClientError):
            self.heartbeat()
        self.close()

    def heartbeat(self) -> None:
        """Join the group, or stay in it."""
        reply = self._coordinator.ask(
            ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member_id,
                member_epoch=self._member_epoch,
                subscribed_topic_names=(self._topic,) if self._member_epoch == JOIN else None,
            )
        )
        _expect("ShareGroupHeartbeat", reply.error_code)
        self._member_epoch = reply.member_epoch

    def fetch(self, records_max: int, wait_ms: int) -> list[SharedRecord]:
        """Acquire records of the next leader's partitions."""
        self._turn = (self._turn + 1) % len(self._leaders)
        leader = self._leaders[self._turn]
        reply = leader.connection.ask(
            ShareFetchRequest(
                group_id=self._group,
                member_id=self._member_id,
                share_session_epoch=leader.epoch,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_records=records_max,
                batch_size=records_max,
                topics=self._fetched(leader) if leader.epoch == 0 else (),
                forgotten_topics_data=(),
            )
        )
        _expect("ShareFetch", reply.error_code)
        leader.epoch += 1
        self.lock_ms = reply.acquisition_lock_timeout_ms
        found: list[SharedRecord] = []
        for row in self._rows(reply):
            _expect("ShareFetch", row.error_code)
            found += _acquired(row)
        return found

    def acknowledge(self, partition: int, offsets: Sequence[int], kind: int) -> ErrorCode:
        """Say what became of records of one partition; those that can count do, whatever is returned."""
        leader = next(each for each in self._leaders if partition in each.partitions)
        batches = tuple(
            ShareAcknowledgeRequestAcknowledgementBatch(
                first_offset=offset, last_offset=offset, acknowledge_types=(kind,)
            )
            for offset in sorted(offsets)
        )
        asked = ShareAcknowledgeRequestPartition(partition_index=partition, acknowledgement_batches=batches)
        reply = leader.connection.ask(
            ShareAcknowledgeRequest(
                group_id=self._group,
                member_id=self._member_id,
                share_session_epoch=leader.epoch,
                is_renew_ack=kind == RENEW,
                topics=(ShareAcknowledgeRequestTopic(topic_id=self._topic_id, partitions=(asked,)),),
            )
        )
        _expect("ShareAcknowledge", reply.error_code)
        leader.epoch += 1
        (row,) = self._rows(reply)
        return ErrorCode(row.error_code)

    def _look_up(self, bootstrap: Sequence[BrokerAddress]) -> None:
        """Find the coordinator and the leaders, from whoever responds."""
        found, coordinator = self._ask_any(
            bootstrap,
            MetadataRequest(
                topics=(MetadataRequestTopic(name=self._topic),), allow_auto_topic_creation=False
            ),
            FindCoordinatorRequest(key_type=0, coordinator_keys=(self._group,)),
        )
        (topic,) = found.topics
        _expect("Metadata", topic.error_code)
        (place,) = coordinator.coordinators
        _expect("FindCoordinator", place.error_code)
        self._coordinator = self._connection((place.host, place.port))
        self._topic_id = topic.topic_id
        by_node: dict[int, list[int]] = {}
        for each in topic.partitions:
            by_node.setdefault(each.leader_id, []).append(each.partition_index)
        for broker in found.brokers:
            partitions = by_node.pop(broker.node_id, ())
            if partitions:
                self._leaders.append(_Leader(self._connection((broker.host, broker.port)), partitions))
        if by_node:
            raise ShareConsumerAway(f"no leader has {list(by_node.values())}")

    def _ask_any(self, bootstrap: Sequence[BrokerAddress], *requests: Message) -> list[Any]:
        for address in bootstrap:
            with suppress(ClientError):
                connection = self._connection(address)
                return [connection.ask(request) for request in requests]
        raise ShareConsumerAway("no broker responds")

    def _connection(self, address: BrokerAddress) -> BrokerConnection:
        if address not in self._connections:
            self._connections[address] = BrokerConnection(address, request_seconds=REQUEST_SECONDS)
        return self._connections[address]

    def _fetched(self, leader: _Leader) -> tuple[ShareFetchRequestTopic, ...]:
        partitions = tuple(
            ShareFetchRequestPartition(partition_index=each, acknowledgement_batches=())
            for each in leader.partitions
        )
        return (ShareFetchRequestTopic(topic_id=self._topic_id, partitions=partitions),)

    def _rows(self, reply: Any) -> Iterator[Any]:
        for topic in reply.responses:
            yield from topic.partitions


def _acquired(row: Any) -> Iterator[SharedRecord]:
    counts = {
        offset: run.delivery_count
        for run in row.acquired_records
        for offset in range(run.first_offset, run.last_offset + 1)
    }
    for record in _records(bytes(row.records or b"")):
        if record.offset in counts:
            yield SharedRecord(row.partition_index, record.offset, record.value or b"", counts[record.offset])


def _records(batches: bytes) -> Iterator[Record]:
    at = 0
    while at < len(batches):
        batch = batches[at:]
        yield from read_records(batch)
        at += read_header(batch).size_bytes


def _expect(what: str, code: int) -> None:
    if code != ErrorCode.NONE:
        raise ShareConsumerAway(f"{what}: {ErrorCode(code).name}")
