"""What a consumer makes of the responses to QueueReceive and QueueSettle."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from penstock.core.model import Offset, PartitionIndex, TopicId
from penstock.core.protocol.messages.queue_receive import QueueReceiveResponse
from penstock.core.protocol.messages.queue_settle import (
    QueueSettleRequestLease,
    QueueSettleResponse,
    QueueSettleResponseResult,
)
from penstock.core.queues import Receipt, write_receipt
from penstock.core.records import RecordSlice, records_in

Headers = tuple[tuple[str, bytes | None], ...]


class Acquisition(NamedTuple):
    """What the receipts of one response have in common."""

    topic_id: UUID
    token: int


class ReceivedRecord(NamedTuple):
    """A record that is leased to the consumer; `attempt` is 1 for its first delivery."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    attempt: int
    acquisition: Acquisition

    @property
    def receipt(self) -> str:
        """What to settle it with, in words that anyone can pass on."""
        topic_id, token = self.acquisition
        return write_receipt(
            Receipt(
                TopicId(topic_id), PartitionIndex(self.partition), Offset(self.offset), self.attempt, token
            )
        )


class Received(NamedTuple):
    """What a response brought, the most urgent first. `lease_ms` counts from when it was asked for."""

    records: list[ReceivedRecord]
    lease_ms: int
    is_paused: bool


def received(response: QueueReceiveResponse) -> Received:
    """The records of a response that is no error."""
    records = list(chain.from_iterable(_records(response)))
    return Received(records, response.lease_ms, response.is_paused)


def _records(response: QueueReceiveResponse) -> Iterator[list[ReceivedRecord]]:
    topic, partition = response.topic, response.partition
    acquisition = Acquisition(response.topic_id, response.token)
    new = tuple.__new__
    for row in response.slices:
        attempt = row.attempt
        piece = RecordSlice(row.base_offset, row.base_timestamp, row.append_time, row.records)
        yield [
            new(ReceivedRecord, (topic, partition, *record, attempt, acquisition))
            for record in records_in(piece)
        ]


def leases_of(records: Iterable[ReceivedRecord]) -> tuple[QueueSettleRequestLease, ...]:
    """What the receipts of these say, neighbours together."""
    leases: list[QueueSettleRequestLease] = []
    first: ReceivedRecord | None = None
    end = count = 0
    known: tuple[object, ...] = ()
    for record in records:
        offset = record[2]
        if offset != end or (record[1], record[7], record[8]) != known:
            if first is not None:
                leases.append(_lease(first, count))
            first, count, known = record, 0, (record[1], record[7], record[8])
        end = offset + 1
        count += 1
    if first is not None:
        leases.append(_lease(first, count))
    return tuple(leases)


def _lease(first: ReceivedRecord, count: int) -> QueueSettleRequestLease:
    topic_id, token = first.acquisition
    return QueueSettleRequestLease(
        topic_id=topic_id,
        partition=first.partition,
        token=token,
        attempt=first.attempt,
        offset=first.offset,
        count=count,
    )


def results_of(response: QueueSettleResponse) -> list[QueueSettleResponseResult]:
    """What became of each record."""
    return [row for row in response.results for _ in range(row.count)]
