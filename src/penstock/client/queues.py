"""Queues from the outside, one request at a time: for the command line, and for scripts.

Any broker answers, wherever the queue is. What failed because a coordinator or a leader moves is tried again.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from penstock.client.connection import connect
from penstock.client.coordinator import COORDINATOR_CHANGES, PAUSE_SECONDS, Deadline, error_name
from penstock.client.endpoint import ClientError, Endpoint
from penstock.client.received import received, results_of
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.queue_alter import QueueAlterRequest
from penstock.core.protocol.messages.queue_describe import QueueDescribeRequest
from penstock.core.protocol.messages.queue_peek import QueuePeekRequest
from penstock.core.protocol.messages.queue_receive import QueueReceiveRequest, QueueReceiveRequestTopic
from penstock.core.protocol.messages.queue_settle import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RENEW,
    QueueSettleRequest,
)

PATIENCE_SECONDS = 30
RETRIABLE = COORDINATOR_CHANGES | {ErrorCode.NOT_LEADER_OR_FOLLOWER}
STATES = ("available", "delayed", "leased", "moving")
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class QueuedRecord:
    """A record that was received: the how-manieth delivery it is, and what to settle it with."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    attempt: int
    receipt: str


@dataclass(frozen=True, slots=True)
class WaitingRecord:
    """A record that is not finished, and what its queue knows of it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    state: str
    attempts: int
    consumer: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """What one group has to do of one partition."""

    group_id: str
    topic: str
    partition: int
    end: int
    finished_below: int
    ready: int
    blocked: int
    delayed: int
    leased: int
    moving: int
    is_paused: bool
    lease_ms: int
    deliveries_max: int
    has_dead_letters: bool
    backoff_ms: int
    backoff_max_ms: int
    is_key_ordered: bool


class GroupQueues:
    """The queues of one group."""

    def __init__(self, endpoint: Endpoint, group_id: str) -> None:
        self._endpoint = endpoint
        self._group_id = group_id

    def receive(
        self,
        topics: Sequence[tuple[str, Sequence[int]]],
        *,
        consumer: str,
        count: int = 10,
        wait_ms: int = 0,
        lease_ms: int | None = None,
    ) -> list[QueuedRecord]:
        """Lease records of any of these topics and partitions; no partitions means all."""
        rows = tuple(
            QueueReceiveRequestTopic(topic=topic, partitions=tuple(parts)) for topic, parts in topics
        )
        answer = _ask(
            self._endpoint,
            QueueReceiveRequest(
                group_id=self._group_id,
                consumer=consumer,
                topics=rows,
                records_max=count,
                wait_ms=wait_ms,
                lease_ms=-1 if lease_ms is None else lease_ms,
            ),
        )
        return [
            QueuedRecord(
                row.topic,
                row.partition,
                row.offset,
                row.timestamp,
                row.key,
                row.value,
                row.headers,
                row.attempt,
                row.receipt,
            )
            for row in received(answer).records
        ]

    def acknowledge(self, receipts: Sequence[str]) -> None:
        """The records are done."""
        self._settle(ACKNOWLEDGE, receipts)

    def release(self, receipts: Sequence[str], *, delay_ms: int | None = None, reason: str = "") -> None:
        """Deliver the records again, after a delay or the group's backoff."""
        self._settle(RELEASE, receipts, delay_ms=-1 if delay_ms is None else delay_ms, reason=reason)

    def reject(self, receipts: Sequence[str], *, reason: str = "") -> None:
        """Give the records up."""
        self._settle(REJECT, receipts, reason=reason)

    def renew(self, receipts: Sequence[str], *, lease_ms: int | None = None) -> None:
        """Count the leases in full from now on."""
        self._settle(RENEW, receipts, lease_ms=-1 if lease_ms is None else lease_ms)

    def peek(
        self, topic: str, partition: int, *, from_offset: int = 0, count: int = 10
    ) -> list[WaitingRecord]:
        """Records that are not finished, without leasing them."""
        answer = _ask(
            self._endpoint,
            QueuePeekRequest(
                group_id=self._group_id,
                topic=topic,
                partition=partition,
                from_offset=from_offset,
                count=count,
            ),
        )
        return [
            WaitingRecord(
                topic,
                partition,
                row.offset,
                row.timestamp,
                row.key,
                row.value,
                _headers(row),
                STATES[row.state],
                row.attempts,
                row.consumer,
                row.reason,
            )
            for row in answer.records
        ]

    def alter(self, action: int, topic: str, partitions: Sequence[int] = (), *, offset: int = -1) -> None:
        """Pause, resume, reset or forget; ClientError names the first partition where that failed."""
        answer = _ask(
            self._endpoint,
            QueueAlterRequest(
                group_id=self._group_id,
                topic=topic,
                partitions=tuple(partitions),
                action=action,
                offset=offset,
            ),
        )
        for row in answer.partitions:
            _expect(row, f"{topic}/{row.partition}: ")

    def _settle(self, action: int, receipts: Sequence[str], **fields: Any) -> None:
        request = QueueSettleRequest(
            group_id=self._group_id, action=action, receipts=tuple(receipts), **fields
        )
        answer = _ask(self._endpoint, request)
        failed = [row for row in results_of(answer) if row.error_code]
        for row in failed[:1]:
            _expect(row, f"{len(failed)} of {len(receipts)} receipts: " if len(receipts) > 1 else "")


def describe_queues(
    endpoint: Endpoint, groups: Sequence[str] = (), topics: Sequence[str] = ()
) -> list[QueueNumbers]:
    """The queues of these groups and topics, none means all; also those that nobody consumes."""
    answer = _ask(endpoint, QueueDescribeRequest(groups=tuple(groups), topics=tuple(topics)))
    return [
        QueueNumbers(**{name: getattr(row, name) for name in QueueNumbers.__slots__}) for row in answer.queues
    ]


def _ask(endpoint: Endpoint, request: Message) -> Any:
    """The response; ClientError if it is an error that stays."""
    with closing(connect(endpoint)) as connection:
        return _patiently(lambda: connection.ask(request))


def _patiently(ask: Callable[[], Any]) -> Any:
    deadline = Deadline(PATIENCE_SECONDS)
    while True:
        answer = ask()
        if answer.error_code not in RETRIABLE or deadline.is_over():
            _expect(answer)
            return answer
        time.sleep(PAUSE_SECONDS)


def _expect(row: Any, where: str = "") -> None:
    if row.error_code:
        reason = row.error_message or error_name(row.error_code).lower().replace("_", " ")
        raise ClientError(f"{where}{reason}")


def _headers(row: Any) -> Headers:
    return tuple(
        (header.key, None if header.value is None else bytes(header.value)) for header in row.headers
    )
