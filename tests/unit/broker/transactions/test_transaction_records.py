"""Facts of transactions in Kafka's own records."""

from dataclasses import replace

import pytest

from penstock.broker.coordinator.transaction_records import STATES, decode, encode
from penstock.core.model import ProducerEpoch, ProducerId, ProtocolError, Timestamp
from penstock.core.protocol.state_records import TransactionLogKey, TransactionLogValue, write_stored
from penstock.core.transactions import (
    BatchCommitted,
    BatchForgotten,
    BatchMember,
    TransactionForgotten,
    TransactionState,
    TransactionStored,
)
from tests.unit.core.transactions.transaction_driver import at

STORED = TransactionStored(
    "payments",
    ProducerId(7),
    ProducerEpoch(3),
    60_000,
    TransactionState.PREPARE_COMMIT,
    Timestamp(20),
    (at("a", 1), at("a", 0), at("b", 2)),
    Timestamp(10),
    ProducerEpoch(2),
    ProducerId(5),
    ProducerId(9),
    2,
)


@pytest.mark.parametrize("state", STATES[:6])
def test_what_is_stored_is_read_again(state: TransactionState) -> None:
    fact = replace(STORED, state=state)

    assert decode(*encode(fact)) == fact


def test_a_forgotten_id_is_a_tombstone() -> None:
    key, value = encode(TransactionForgotten("payments"))

    assert value is None
    assert key == b"\x00\x00\x00\x08payments"
    assert decode(key, value) == TransactionForgotten("payments")


def test_a_batch_is_stored_under_its_sink_and_number() -> None:
    members = (BatchMember("sink#1", ProducerId(7), ProducerEpoch(3)),)
    fact = BatchCommitted("sink", "12", members, Timestamp(20))

    key, value = encode(fact)

    assert key == b"\x27\x10\x05sink\x0312\x00"
    assert decode(key, value) == fact
    assert encode(BatchForgotten("sink", "12")) == (key, None)
    assert decode(key, None) == BatchForgotten("sink", "12")


def test_the_bytes_are_kafkas() -> None:
    _, value = encode(replace(STORED, last_epoch=ProducerEpoch(-1)))

    assert value is not None
    assert value == bytes.fromhex(
        "0001"  # version
        "0000000000000007"  # producer id
        "0003"  # epoch
        "0000ea60"  # timeout
        "02"  # PrepareCommit
        "03 02 61 03 00000001 00000000 00 02 62 02 00000002 00"  # partitions by topic
        "0000000000000014"  # last update
        "000000000000000a"  # start
        "03 00 08 0000000000000005 01 08 0000000000000009 02 02 0002"  # tags
    )


def test_a_record_of_an_older_kafka_is_read() -> None:
    key = write_stored(TransactionLogKey(transactional_id="x"), 0)
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=0,
        transaction_timeout_ms=5,
        transaction_status=7,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=3,
        transaction_start_timestamp_ms=-1,
    )

    fenced = decode(key, write_stored(value, 0))

    assert isinstance(fenced, TransactionStored)
    assert (fenced.state, fenced.partitions, fenced.client_version) == (TransactionState.PREPARE_ABORT, (), 0)


def test_a_state_from_the_future_is_an_error_and_a_key_from_the_future_is_not() -> None:
    key, value = encode(STORED)
    assert value is not None

    assert decode(b"\x00\x09" + key[2:], value) is None
    with pytest.raises(ProtocolError):
        decode(key, value[:16] + b"\x55" + value[17:])
