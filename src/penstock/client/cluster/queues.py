"""`QueueClient`: topics as work queues, one method per queue API of Penstock.

    received = await queues.receive("mailers", "worker-1", ["emails"], wait_ms=5_000)
    for record in received.records:
        ...
    await queues.ack("mailers", received.records)

Any broker takes these requests and passes them on to whom they belong. What a queue does not want at
the moment (its host starts, or moves) is tried again until the time is over. A response that is lost is
not: a receive has leased records that nobody knows of until the lease ends, and a settlement may have
been made; the caller gets `ConnectionLost`.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.client.backoff import Backoff
from penstock.client.cluster.client import (
    COORDINATOR_CHANGES,
    LEADER_CHANGES,
    REQUEST_SECONDS,
    ClusterClient,
    ClusterTopic,
)
from penstock.client.cluster.errors import ClusterError, expect
from penstock.client.received import Received, ReceivedRecord, leases_of, received, results_of
from penstock.core.delays import ID_BYTES, SLOTS, choose_ids, slot_at
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.cancel_delays import CancelDelaysRequest
from penstock.core.protocol.messages.delay_records import (
    DelayRecordsRequest,
    DelayRecordsRequestHeader,
    DelayRecordsRequestRecord,
)
from penstock.core.protocol.messages.list_delays import ListDelaysRequest, ListDelaysResponse
from penstock.core.protocol.messages.queue_alter import (
    FORGET,
    PAUSE,
    RESET,
    RESUME,
    TO_LATEST,
    QueueAlterRequest,
)
from penstock.core.protocol.messages.queue_describe import QueueDescribeRequest, QueueDescribeResponseQueue
from penstock.core.protocol.messages.queue_peek import QueuePeekRequest, QueuePeekResponse
from penstock.core.protocol.messages.queue_receive import (
    QueueReceiveRequest,
    QueueReceiveRequestTopic,
    QueueReceiveResponse,
)
from penstock.core.protocol.messages.queue_redrive import (
    QueueRedriveRequest,
    QueueRedriveRequestPartition,
    QueueRedriveResponsePartition,
)
from penstock.core.protocol.messages.queue_settle import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RENEW,
    RETURN,
    QueueSettleRequest,
)

# The queue's host is not ready, and has done nothing. A topic that is missing stays missing.
_NOT_READY = (COORDINATOR_CHANGES | LEADER_CHANGES) - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
# How long a topic that was just created may be unknown to some broker.
_CREATED_SECONDS = 5.0
# Receipts that a broker takes in one request.
_SETTLED_MAX = 2_000


class DelayedPublish(NamedTuple):
    """A record to be published at a time, in milliseconds since 1970."""

    topic: str
    key: bytes | None
    value: bytes | None
    deliver_at_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


class AckTransaction(NamedTuple):
    """The open transaction that an acknowledgement is to be part of."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class QueueClient:
    """Asks for any number of consumers of one event loop."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._first_slot = os.urandom(1)[0] % SLOTS

    async def receive(  # noqa: PLR0913 - one per field of the request
        self,
        group: str,
        consumer: str,
        topics: Sequence[str] | Mapping[str, Sequence[int]],
        *,
        records_max: int = 500,
        bytes_max: int = 1 << 20,
        wait_ms: int = 0,
        lease_ms: int = -1,
    ) -> Received:
        """Lease records of topics, or of some of their partitions; wait for the first one."""
        places = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, ())
        request = QueueReceiveRequest(
            group_id=group,
            consumer=consumer,
            topics=tuple(
                QueueReceiveRequestTopic(topic=topic, partitions=tuple(partitions))
                for topic, partitions in places.items()
            ),
            records_max=records_max,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            lease_ms=lease_ms,
        )
        answer = await self._ask(request, wait_ms)
        assert isinstance(answer, QueueReceiveResponse)
        return received(answer)

    async def settle(  # noqa: PLR0913 - one per field of the request
        self,
        group: str,
        action: int,
        receipts: Sequence[str] | Sequence[ReceivedRecord],
        *,
        consumer: str | None = None,
        delay_ms: int = -1,
        lease_ms: int = -1,
        reason: str = "",
        transaction: AckTransaction | None = None,
    ) -> list[ClusterError | None]:
        """Say what became of records; for each None, or why it was refused.

        By their receipts, or as they were received: that is less to send.
        """
        if not receipts:
            return []
        if len(receipts) > _SETTLED_MAX:
            return await self._settle_in_portions(
                group,
                action,
                receipts,
                consumer=consumer,
                delay_ms=delay_ms,
                lease_ms=lease_ms,
                reason=reason,
                transaction=transaction,
            )
        records = [each for each in receipts if not isinstance(each, str)]
        joined = transaction or AckTransaction("", -1, -1)
        request = QueueSettleRequest(
            group_id=group,
            consumer=consumer,
            action=action,
            receipts=tuple([each for each in receipts if isinstance(each, str)]),
            leases=leases_of(records),
            delay_ms=delay_ms,
            lease_ms=lease_ms,
            reason=reason,
            transactional_id=joined.transactional_id or None,
            producer_id=joined.producer_id,
            producer_epoch=joined.producer_epoch,
        )
        return _outcomes(results_of(await self._ask(request)))

    async def _settle_in_portions(
        self, group: str, action: int, receipts: Sequence[str] | Sequence[ReceivedRecord], **details: Any
    ) -> list[ClusterError | None]:
        found: list[ClusterError | None] = []
        for start in range(0, len(receipts), _SETTLED_MAX):
            portion = receipts[start : start + _SETTLED_MAX]
            try:
                found += await self.settle(group, action, portion, **details)
            except ClusterError as error:
                # What came before counts.
                found += [error] * len(portion)
        return found

    async def ack(
        self,
        group: str,
        receipts: Sequence[str] | Sequence[ReceivedRecord],
        *,
        transaction: AckTransaction | None = None,
    ) -> list[ClusterError | None]:
        """Finish records."""
        return await self.settle(group, ACKNOWLEDGE, receipts, transaction=transaction)

    async def nack(
        self,
        group: str,
        receipts: Sequence[str] | Sequence[ReceivedRecord],
        *,
        delay_ms: int = -1,
        reason: str = "",
    ) -> list[ClusterError | None]:
        """Give records back, to be delivered again after a delay (-1: the group's backoff)."""
        return await self.settle(group, RELEASE, receipts, delay_ms=delay_ms, reason=reason)

    async def reject(
        self, group: str, receipts: Sequence[str] | Sequence[ReceivedRecord], *, reason: str = ""
    ) -> list[ClusterError | None]:
        """Records that nobody can handle: to the dead letters, without another try."""
        return await self.settle(group, REJECT, receipts, reason=reason)

    async def give_back(
        self, group: str, receipts: Sequence[str] | Sequence[ReceivedRecord]
    ) -> list[ClusterError | None]:
        """Records that nobody has worked on: others get them at once, and this delivery does not count."""
        return await self.settle(group, RETURN, receipts)

    async def renew(
        self, group: str, receipts: Sequence[str] | Sequence[ReceivedRecord], *, lease_ms: int = -1
    ) -> list[ClusterError | None]:
        """Keep records for another lease."""
        return await self.settle(group, RENEW, receipts, lease_ms=lease_ms)

    async def describe(
        self, groups: Sequence[str] = (), topics: Sequence[str] = ()
    ) -> Sequence[QueueDescribeResponseQueue]:
        """The queues of these groups and topics, in numbers; no names means all."""
        answer = await self._ask(QueueDescribeRequest(groups=tuple(groups), topics=tuple(topics)))
        found: Sequence[QueueDescribeResponseQueue] = answer.queues
        return found

    async def pause(self, group: str, topic: str, partitions: Sequence[int] = ()) -> None:
        """Deliver nothing for now; no partitions means all."""
        await self.alter(group, topic, PAUSE, partitions)

    async def resume(self, group: str, topic: str, partitions: Sequence[int] = ()) -> None:
        """Deliver again."""
        await self.alter(group, topic, RESUME, partitions)

    async def reset(
        self, group: str, topic: str, offset: int = TO_LATEST, partitions: Sequence[int] = ()
    ) -> None:
        """Begin anew at an offset (-1: the end, -2: the start)."""
        await self.alter(group, topic, RESET, partitions, offset)

    async def forget(self, group: str, topic: str, partitions: Sequence[int] = ()) -> None:
        """Drop the queue, which keeps nothing of the group on these partitions."""
        await self.alter(group, topic, FORGET, partitions)

    async def alter(
        self, group: str, topic: str, action: int, partitions: Sequence[int] = (), offset: int = TO_LATEST
    ) -> None:
        """Change queues; the first partition that could not be changed is raised."""
        request = QueueAlterRequest(
            group_id=group, topic=topic, partitions=tuple(partitions), action=action, offset=offset
        )
        for row in (await self._ask(request)).partitions:
            expect(row.error_code, row.error_message)

    async def peek(
        self, group: str, topic: str, partition: int, *, from_offset: int = 0, count: int = 10
    ) -> QueuePeekResponse:
        """Records that are not finished, without leasing them."""
        request = QueuePeekRequest(
            group_id=group, topic=topic, partition=partition, from_offset=from_offset, count=count
        )
        answer = await self._ask(request)
        assert isinstance(answer, QueuePeekResponse)
        return answer

    async def redrive(
        self,
        topic: str,
        partitions: Mapping[int, Sequence[int]] | None = None,
        *,
        to_topic: str | None = None,
        is_dry_run: bool = False,
        records_max: int = 200,
        from_offset: int = 0,
    ) -> Sequence[QueueRedriveResponsePartition]:
        """Move dead letters back, some at a time: ask until nothing is moved.

        `partitions` has the offsets to move of each, none for the oldest; without it all are meant. A dry run
        looks from an offset on, and says in `next_offset` where to go on.
        """
        request = QueueRedriveRequest(
            topic=topic,
            partitions=tuple(
                QueueRedriveRequestPartition(
                    partition=partition, offsets=tuple(offsets), from_offset=from_offset
                )
                for partition, offsets in (partitions or {}).items()
            ),
            to_topic=to_topic,
            is_dry_run=is_dry_run,
            records_max=records_max,
        )
        found: Sequence[QueueRedriveResponsePartition] = (await self._ask(request)).partitions
        return found

    async def delay(self, records: Sequence[DelayedPublish]) -> list[str | ClusterError]:
        """Publish records later; for each the id to cancel it with, or the error.

        A topic that is missing is created, if brokers are set up so, as if the records were published now.
        """
        if not records:
            return []
        slot = slot_at(self._first_slot, time.time_ns() // 1_000_000)
        rows = tuple(map(_delayed, records, choose_ids(os.urandom(ID_BYTES * len(records)), slot)))
        found = await self._delay(rows)
        missing = [index for index, outcome in enumerate(found) if _is_unknown(outcome)]
        if not missing:
            return found
        names = dict.fromkeys([records[index].topic for index in missing])
        topics = {name: await self._created(name) for name in names}
        problems: dict[int, ClusterError] = {}
        for index in missing:
            problem = _problem(records[index], topics[records[index].topic])
            if problem is not None:
                problems[index] = problem
        # The broker that keeps the delays may learn of a topic a moment after it is there.
        backoff, loop = Backoff(50), asyncio.get_running_loop()
        until = loop.time() + _CREATED_SECONDS
        while (left := [index for index in missing if index not in problems]) and loop.time() < until:
            again = await self._delay([rows[index] for index in left])
            for index, outcome in zip(left, again, strict=True):
                found[index] = outcome
            missing = [index for index in left if _is_unknown(found[index])]
            if missing:
                await asyncio.sleep(backoff.next_seconds())
        return [problems.get(index, outcome) for index, outcome in enumerate(found)]

    async def _created(self, name: str) -> ClusterTopic | ClusterError:
        """A topic that was unknown, whatever the cache says."""
        self._cluster.forget_topic(name)
        try:
            return await self._cluster.topic(name, create=True)
        except ClusterError as error:
            return error

    async def _delay(self, rows: Sequence[DelayRecordsRequestRecord]) -> list[str | ClusterError]:
        answer = await self._ask(DelayRecordsRequest(records=tuple(rows)))
        return [
            row.delay_id
            if row.error_code == ErrorCode.NONE
            else ClusterError(row.error_code, row.error_message)
            for row in answer.results
        ]

    async def cancel(self, delay_ids: Sequence[str]) -> list[ClusterError | None]:
        """Do not publish these; for each None, or why it is too late."""
        if not delay_ids:
            return []
        return _outcomes((await self._ask(CancelDelaysRequest(delay_ids=tuple(delay_ids)))).results)

    async def delays(
        self, topic: str | None = None, *, count: int = 500, after: str | None = None
    ) -> ListDelaysResponse:
        """Records that are to be published later, some at a time."""
        answer = await self._ask(ListDelaysRequest(topic=topic, count=count, after=after))
        assert isinstance(answer, ListDelaysResponse)
        return answer

    async def _ask(self, request: Message, wait_ms: int = 0) -> Any:
        """Ask any broker, and again while the queue's host is not ready; ClusterError if that was refused."""
        backoff, loop = Backoff(50), asyncio.get_running_loop()
        until = loop.time() + REQUEST_SECONDS
        while True:
            answer = await self._cluster.ask(
                request, seconds=REQUEST_SECONDS + wait_ms / 1_000, waits=wait_ms > 0
            )
            pause = backoff.next_seconds()
            if answer.error_code not in _NOT_READY or loop.time() + pause > until:
                expect(answer.error_code, answer.error_message)
                return answer
            await asyncio.sleep(pause)


def _problem(record: DelayedPublish, topic: ClusterTopic | ClusterError) -> ClusterError | None:
    """Why a record cannot be published to a topic."""
    if isinstance(topic, ClusterError):
        return topic
    if topic.is_internal:
        return ClusterError(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to internal topics")
    if record.partition is not None and record.partition >= len(topic.partitions):
        detail = f"topic {record.topic} has no partition {record.partition}"
        return ClusterError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
    return None


def _is_unknown(outcome: str | ClusterError) -> bool:
    return isinstance(outcome, ClusterError) and outcome.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _outcomes(rows: Sequence[Any]) -> list[ClusterError | None]:
    return [
        None if row.error_code == ErrorCode.NONE else ClusterError(row.error_code, row.error_message)
        for row in rows
    ]


def _delayed(record: DelayedPublish, delay_id: int) -> DelayRecordsRequestRecord:
    return DelayRecordsRequestRecord(
        topic=record.topic,
        partition=-1 if record.partition is None else record.partition,
        key=record.key,
        value=record.value,
        headers=tuple(DelayRecordsRequestHeader(key=key, value=value) for key, value in record.headers),
        deliver_at_ms=record.deliver_at_ms,
        # With an id of ours the request may come twice, and there is one delay.
        id=delay_id,
    )
