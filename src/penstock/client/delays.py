"""Records that are published later: scheduled, listed and cancelled through any broker.

Each record has an id that the client chooses, so that one whose answer was lost can be sent again.
"""

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.client.connection import connect
from penstock.client.coordinator import COORDINATOR_CHANGES, PAUSE_SECONDS, Deadline, error_name
from penstock.client.endpoint import ClientError, Endpoint
from penstock.core.delays import ID_BYTES, SLOTS, choose_ids, slot_at
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.cancel_delays import CancelDelaysRequest
from penstock.core.protocol.messages.delay_records import (
    DelayRecordsRequest,
    DelayRecordsRequestHeader,
    DelayRecordsRequestRecord,
)
from penstock.core.protocol.messages.list_delays import ListDelaysRequest
from penstock.core.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

PATIENCE_SECONDS = 30
RECORDS_MAX = 1_000
REQUEST_BYTES_MAX = 1 << 20
LIST_COUNT = 1_000
# How long a topic that was just created may be unknown to some broker.
CREATED_SECONDS = 5.0
CREATED_SOON = frozenset({ErrorCode.LEADER_NOT_AVAILABLE})


class LaterRecord(NamedTuple):
    """A record, and when to publish it: in milliseconds since 1970."""

    topic: str
    deliver_at_ms: int
    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PendingRecord:
    """One line of a listing."""

    delay_id: str
    topic: str
    deliver_at_ms: int
    size_bytes: int


class DelayAdmin:
    """The delayed records of one cluster."""

    def __init__(self, endpoint: Endpoint, seconds: float = PATIENCE_SECONDS) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._first_slot = secrets.randbelow(SLOTS)

    def schedule(self, records: Sequence[LaterRecord]) -> list[str]:
        """Publish records later; the ids of their delays. Raises at the first that is refused.

        A topic that is missing is created, if brokers are set up so, as if the records were published now.
        """
        ids: list[str] = []
        for part in _portions(records):
            # What is sent together is stored together.
            slot = slot_at(self._first_slot, time.time_ns() // 1_000_000)
            chosen = choose_ids(secrets.token_bytes(ID_BYTES * len(part)), slot)
            request = DelayRecordsRequest(records=tuple(map(_row, part, chosen)))
            answer = self._ask(request)
            missing = _unknown_topics(part, answer)
            if missing:
                answer = self._ask_when_created(request, part, missing)
            for result in answer.results:
                if result.error_code:
                    raise ClientError(f"not delayed: {result.error_message or error_name(result.error_code)}")
                ids.append(result.delay_id)
        return ids

    def cancel(self, delay_ids: Sequence[str]) -> list[str | None]:
        """Cancel delays; for each the reason why it was not, or None."""
        found: list[str | None] = []
        for start in range(0, len(delay_ids), RECORDS_MAX):
            request = CancelDelaysRequest(delay_ids=tuple(delay_ids[start : start + RECORDS_MAX]))
            for result in self._ask(request).results:
                reason = result.error_message or error_name(result.error_code)
                found.append(reason if result.error_code else None)
        return found

    def listed(self, topic: str | None = None, count: int = LIST_COUNT) -> list[PendingRecord]:
        """Up to `count` pending delays, in the order of their ids."""
        found: list[PendingRecord] = []
        after: str | None = None
        while len(found) < count:
            wanted = min(LIST_COUNT, count - len(found))
            answer = self._ask(ListDelaysRequest(topic=topic, count=wanted, after=after))
            found += [
                PendingRecord(row.delay_id, row.topic, row.deliver_at_ms, row.size_bytes)
                for row in answer.delays
            ]
            after = answer.next_after
            if after is None:
                break
        return found

    def _ask_when_created(
        self, request: DelayRecordsRequest, part: Sequence[LaterRecord], topics: Sequence[str]
    ) -> Any:
        """Ask again once topics are there, or are not to be had; by their ids no delay is doubled."""
        deadline = Deadline(min(self._seconds, CREATED_SECONDS))
        rows = tuple(MetadataRequestTopic(name=topic) for topic in topics)
        with closing(connect(self._endpoint)) as connection:
            while True:
                found = connection.ask(MetadataRequest(topics=rows, allow_auto_topic_creation=True))
                is_to_come = all(_is_to_come(row, part) for row in found.topics)
                answer = self._ask(request)
                if not _unknown_topics(part, answer) or not is_to_come or deadline.is_over():
                    return answer
                time.sleep(PAUSE_SECONDS)

    def _ask(self, request: Message) -> Any:
        deadline = Deadline(self._seconds)
        with closing(connect(self._endpoint)) as connection:
            while True:
                answer = connection.ask(request)
                codes = [answer.error_code, *(row.error_code for row in getattr(answer, "results", ()))]
                if not any(code in COORDINATOR_CHANGES for code in codes) or deadline.is_over():
                    break
                time.sleep(PAUSE_SECONDS)
        if answer.error_code != ErrorCode.NONE:
            raise ClientError(answer.error_message or error_name(answer.error_code))
        return answer


def _unknown_topics(part: Sequence[LaterRecord], answer: Any) -> list[str]:
    """Topics of records that were refused for want of them."""
    return list(
        dict.fromkeys(
            record.topic
            for record, row in zip(part, answer.results, strict=False)
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    )


def _is_to_come(topic: Any, part: Sequence[LaterRecord]) -> bool:
    """Whether records can be delayed once every broker knows the topic."""
    if topic.error_code:
        return topic.error_code in CREATED_SOON
    wanted = max(record.partition for record in part if record.topic == topic.name)
    return not topic.is_internal and wanted < len(topic.partitions)


def _row(record: LaterRecord, delay_id: int) -> DelayRecordsRequestRecord:
    return DelayRecordsRequestRecord(
        topic=record.topic,
        partition=record.partition,
        key=record.key,
        value=record.value,
        headers=tuple(DelayRecordsRequestHeader(key=name, value=value) for name, value in record.headers),
        deliver_at_ms=record.deliver_at_ms,
        id=delay_id,
    )


def _portions(records: Sequence[LaterRecord]) -> Iterator[list[LaterRecord]]:
    """As many as one request takes."""
    part: list[LaterRecord] = []
    size = 0
    for record in records:
        size += len(record.key or b"") + len(record.value or b"")
        if part and (len(part) >= RECORDS_MAX or size > REQUEST_BYTES_MAX):
            yield part
            part, size = [], len(record.key or b"") + len(record.value or b"")
        part.append(record)
    if part:
        yield part
