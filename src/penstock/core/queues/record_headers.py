"""Headers of records that matter to queues: those that producers set, and those of dead letters.

    penstock-deliver-at    milliseconds since 1970: queues do not deliver the record before
    penstock-ttl-ms        milliseconds from the record's timestamp on: queues do not deliver it after
    penstock-priority      0 to 9, the most urgent; 0 without the header

Values are decimal digits in ASCII. The last header of a name counts. One that is none of this is as good as
none: by the time a queue reads it, there is nobody left to refuse it to.

A dead letter is the record as it was, headers included, with those of `dead_letter_headers` behind them.
"""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from penstock.core.model import Offset, Timestamp, TopicPartition
from penstock.core.queues.commands import DeadLetter
from penstock.core.queues.facts import NO_TIME, PRIORITY_MAX, QueueRecord, Run, runs_of
from penstock.core.records import Record, RecordSlice

DELIVER_AT = "penstock-deliver-at"
TTL_MS = "penstock-ttl-ms"
PRIORITY = "penstock-priority"
ORIGIN_TOPIC = "penstock-origin-topic"
ORIGIN_PARTITION = "penstock-origin-partition"
ORIGIN_OFFSET = "penstock-origin-offset"
ORIGIN_TIMESTAMP = "penstock-origin-timestamp"
ATTEMPTS = "penstock-attempts"
FIRST_FAILURE = "penstock-first-failure"
LAST_FAILURE = "penstock-last-failure"
ERROR = "penstock-error"
# Of all of them, and of nothing else in most records.
_PREFIX = b"penstock-"
# Until the year 33,658.
_DIGITS_MAX = 15
# Of a queue's facts. Producers write any timestamp.
_TIME_MAX = (1 << 63) - 1


class QueueOffer(NamedTuple):
    """Records of the log as `OfferRecords` takes them."""

    plain: tuple[Run, ...]
    records: tuple[QueueRecord, ...]


def may_matter(piece: RecordSlice, *, is_key_ordered: bool) -> bool:
    """Whether something about these records may matter to a queue. If not, they need not be decoded."""
    return is_key_ordered or _PREFIX in piece.content


def offer_of(records: Iterable[Record], *, is_key_ordered: bool) -> QueueOffer:
    """What matters to a queue about these records, which are in the order of the log."""
    plain: list[Offset] = []
    special: list[QueueRecord] = []
    for record in records:
        attributes = None
        if record.headers or (is_key_ordered and record.key is not None):
            attributes = attributes_of(record, is_key_ordered=is_key_ordered)
        if attributes is None:
            plain.append(Offset(record.offset))
        else:
            special.append(attributes)
    return QueueOffer(runs_of(plain), tuple(special))


def attributes_of(record: Record, *, is_key_ordered: bool) -> QueueRecord | None:
    """What matters to a queue about the record; None if nothing does."""
    deliver_at = ttl_ms = -1
    priority = 0
    for name, value in record.headers:
        if name == DELIVER_AT:
            deliver_at = _number(value)
        elif name == TTL_MS:
            ttl_ms = _number(value)
        elif name == PRIORITY:
            priority = _number(value)
    found = QueueRecord(
        Offset(record.offset),
        key_hash(record.key) if is_key_ordered and record.key is not None else None,
        priority if 0 <= priority <= PRIORITY_MAX else 0,
        Timestamp(deliver_at) if deliver_at >= 0 else NO_TIME,
        Timestamp(min(max(0, record.timestamp) + ttl_ms, _TIME_MAX)) if ttl_ms >= 0 else NO_TIME,
    )
    return None if found == QueueRecord(found.offset) else found


def key_hash(key: bytes) -> int:
    """64 bits with a sign, the same on every node: it is stored."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big", signed=True)


def dead_letter_headers(
    origin: TopicPartition, record: Record, letter: DeadLetter
) -> tuple[tuple[str, bytes], ...]:
    """Where the record was, how often it was delivered, and why it was given up."""
    found = {
        ORIGIN_TOPIC: origin.topic,
        ORIGIN_PARTITION: origin.partition,
        ORIGIN_OFFSET: record.offset,
        ORIGIN_TIMESTAMP: record.timestamp,
        ATTEMPTS: letter.attempts,
        FIRST_FAILURE: letter.failure.first_at,
        LAST_FAILURE: letter.failure.last_at,
        ERROR: letter.failure.reason,
    }
    return tuple((name, str(value).encode("utf-8", "replace")) for name, value in found.items())


def _number(value: bytes | None) -> int:
    if value is None or not 0 < len(value) <= _DIGITS_MAX or not value.isdigit():
        return -1
    return int(value)
