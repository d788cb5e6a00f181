"""Headers of records that matter to queues, and whatever else stands in their place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.model import Offset, PartitionIndex, Timestamp, TopicName, TopicPartition
from penstock.core.queues import DeadLetter, Failure, QueueRecord, Run
from penstock.core.queues.record_headers import (
    DELIVER_AT,
    PRIORITY,
    TTL_MS,
    attributes_of,
    dead_letter_headers,
    key_hash,
    offer_of,
)
from penstock.core.records import Record

AT = 1_700_000_000_000


def record(offset: int = 4, key: bytes | None = None, **headers: bytes | None) -> Record:
    names = {"deliver_at": DELIVER_AT, "ttl_ms": TTL_MS, "priority": PRIORITY, "other": "other"}
    return Record(offset, AT, key, b"value", tuple((names[name], value) for name, value in headers.items()))


def test_headers_say_when_a_record_is_delivered_and_how_urgently() -> None:
    found = attributes_of(
        record(deliver_at=b"1700000005000", ttl_ms=b"60000", priority=b"7"), is_key_ordered=False
    )

    assert found == (4, None, 7, 1_700_000_005_000, AT + 60_000)


@pytest.mark.parametrize(
    "value", [None, b"", b"-5", b"1.5", b"soon", b" 5", b"1e3", "²".encode(), b"9" * 16, b"9" * 100_000]
)
def test_values_that_are_no_numbers_are_ignored(value: bytes | None) -> None:
    found = attributes_of(record(deliver_at=value, ttl_ms=value, priority=value), is_key_ordered=False)

    assert found is None


@pytest.mark.parametrize("timestamp", [2**63 - 1, 2**63 - 5, 2**64])
def test_a_time_to_live_behind_any_timestamp_ends_at_a_time_that_can_be_stored(timestamp: int) -> None:
    found = attributes_of(record(ttl_ms=b"10")._replace(timestamp=timestamp), is_key_ordered=False)

    assert found == QueueRecord(Offset(4), expires_at=Timestamp(2**63 - 1))


@pytest.mark.parametrize(("value", "priority"), [(b"9", 9), (b"10", 0), (b"007", 7)])
def test_a_priority_is_0_to_9(value: bytes, priority: int) -> None:
    found = attributes_of(record(ttl_ms=b"1", priority=value), is_key_ordered=False)

    assert found is not None
    assert found.priority == priority


def test_the_last_header_of_a_name_counts() -> None:
    twice = Record(4, AT, None, None, ((PRIORITY, b"3"), (PRIORITY, b"5")))

    assert attributes_of(twice, is_key_ordered=False) == QueueRecord(Offset(4), priority=5)


def test_a_key_matters_in_key_order_alone() -> None:
    keyed = record(key=b"customer-1")

    assert attributes_of(keyed, is_key_ordered=False) is None
    assert attributes_of(keyed, is_key_ordered=True) == QueueRecord(Offset(4), key_hash(b"customer-1"))
    # It is stored: another version must compute the same.
    assert key_hash(b"customer-1") == -0xBC354BE6649A943  # what b2sum -l 64 prints, with a sign
    assert key_hash(b"") != key_hash(b"customer-1")


def test_records_without_anything_special_are_offered_as_runs() -> None:
    records = [record(0), record(1, other=b"x"), record(2, priority=b"1"), record(5), record(6, b"key")]

    assert offer_of(records, is_key_ordered=False) == (
        (Run(Offset(0), Offset(2)), Run(Offset(5), Offset(7))),
        (QueueRecord(Offset(2), priority=1),),
    )
    in_order = offer_of(records, is_key_ordered=True)
    assert [each.offset for each in in_order.records] == [2, 6]


@given(st.binary(max_size=20), st.integers(-1, 2**62))
def test_no_header_does_harm(value: bytes, timestamp: int) -> None:
    headers = ((DELIVER_AT, value), (TTL_MS, value), (PRIORITY, value))

    found = attributes_of(Record(1, timestamp, value, None, headers), is_key_ordered=True)

    assert found is not None
    assert -(2**63) <= found.key < 2**63 if found.key is not None else False
    assert found.deliver_at < 2**63
    assert found.expires_at < 2**63
    assert 0 <= found.priority <= 9


def test_a_dead_letter_says_where_it_is_from_and_what_happened() -> None:
    origin = TopicPartition(TopicName("orders"), PartitionIndex(3))
    failure = Failure(Timestamp(AT + 1), Timestamp(AT + 2), "no such customer: Zoë")

    headers = dead_letter_headers(origin, record(4), DeadLetter(Offset(4), 4, failure))

    assert dict(headers) == {
        "penstock-origin-topic": b"orders",
        "penstock-origin-partition": b"3",
        "penstock-origin-offset": b"4",
        "penstock-origin-timestamp": str(AT).encode(),
        "penstock-attempts": b"4",
        "penstock-first-failure": str(AT + 1).encode(),
        "penstock-last-failure": str(AT + 2).encode(),
        "penstock-error": "no such customer: Zoë".encode(),
    }
