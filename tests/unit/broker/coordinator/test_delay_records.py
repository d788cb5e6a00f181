"""Facts of delays as records: the page's example, every fact, and what is damaged."""

import re
from pathlib import Path

import pytest

from penstock.broker.coordinator import delay_records
from penstock.broker.coordinator.delay_records import (
    DelayTransactions,
    decode,
    encode,
    load_batch,
    located,
)
from penstock.broker.coordinator.runtime import write_batches
from penstock.core.delays import (
    DelayCoordinator,
    DelayedRecord,
    DelayFact,
    DelayFinish,
    DelaysEnding,
    DelaysFinished,
    DelayStored,
)
from penstock.core.model import Offset, ProducerEpoch, ProducerId, ProtocolError, Timestamp
from penstock.core.protocol.delayed_records import DelayedRecordValue, DelayKey, DelaysFinishedValue
from penstock.core.protocol.state_records import read_stored, write_stored
from penstock.core.queues import TransactionProducer
from penstock.core.records import read_records
from penstock.core.records.batch import HEADER_BYTES

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "delayed.md"
FIRST_COLUMN = re.compile(r"^((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", re.MULTILINE)
PRODUCER = TransactionProducer(ProducerId(7), ProducerEpoch(2))
RECORD = DelayedRecord("orders", -1, b"k", b"hi", (("a", b"1"),))
STORED = DelayStored(0x1122334455667788, Timestamp(1_767_225_600_000), RECORD)


def key(kind: int, delay_id: int = -1) -> bytes:
    return write_stored(DelayKey(kind=kind, id=delay_id), 0)


def test_the_example_of_the_page_reads_as_the_page_says() -> None:
    blocks = PAGE.read_text().split("```")[1].split("\n\n")
    shown = [bytes.fromhex(" ".join(FIRST_COLUMN.findall(block))) for block in blocks]

    assert shown == list(encode(STORED))
    assert decode(shown[0], shown[1]) == STORED


@pytest.mark.parametrize(
    "fact",
    [
        DelayStored(1, Timestamp(2), DelayedRecord("t", 5, None, None, (("\udcff", None),)), PRODUCER),
        DelaysFinished((1, 2), DelayFinish.DROPPED),
        DelaysEnding(PRODUCER, (3,)),
    ],
)
def test_facts_are_read_as_they_were_written(fact: DelayFact) -> None:
    assert decode(*encode(fact)) == fact


def schema_bytes(fact: DelayStored) -> tuple[bytes, bytes]:
    """The delay as the schemas write it."""
    value = DelayedRecordValue(
        deliver_at=fact.deliver_at,
        topic=fact.record.topic,
        partition=fact.record.partition,
        key=fact.record.key,
        value=fact.record.value,
        headers=(),
        producer=None,
    )
    return key(0, fact.id), write_stored(value, 0)


@pytest.mark.parametrize("topic", ["t", "\u00e9", "x" * 126, "x" * 127, "x" * 249])
@pytest.mark.parametrize("size", [None, 0, 1, 126, 127, 16_382, 16_383, 16_384, 100_000])
def test_a_plain_delay_has_the_bytes_that_the_schemas_say(topic: str, size: int | None) -> None:
    content = None if size is None else b"v" * size
    for record in (DelayedRecord(topic, -1, content, b""), DelayedRecord(topic, 3, None, content)):
        fact = DelayStored(5, Timestamp(1_767_225_600_000), record)

        assert encode(fact) == schema_bytes(fact)
        assert decode(*encode(fact)) == fact


def test_a_plain_delay_that_is_cut_or_changed_is_read_as_the_schemas_do_or_is_an_error() -> None:
    name, whole = encode(DelayStored(5, Timestamp(9), DelayedRecord("orders", -1, b"key", b"v" * 200)))
    assert whole is not None
    damaged = [whole[:end] for end in range(len(whole))]
    for at in range(len(whole)):
        damaged += [whole[:at] + bytes((byte,)) + whole[at + 1 :] for byte in (0, 1, 0x7F, 0x80, 0xFF)]
    for value in damaged:
        try:
            expected = read_stored(DelayedRecordValue, value)
        except ProtocolError:
            with pytest.raises(ProtocolError):
                decode(name, value)
            continue
        found = decode(name, value)
        assert isinstance(found, DelayStored)
        assert found.deliver_at == expected.deliver_at
        assert found.record == DelayedRecord(
            expected.topic, expected.partition, expected.key, expected.value, found.record.headers
        )


def test_a_stored_delay_knows_where_its_record_is() -> None:
    found = located(STORED, Offset(42))

    assert isinstance(found, DelayStored)
    assert found.offset == 42
    assert located(DelaysEnding(PRODUCER, (3,)), Offset(42)) == DelaysEnding(PRODUCER, (3,))


def replayed(facts: list[DelayFact]) -> tuple[DelayCoordinator, DelayCoordinator, list[bool]]:
    """The facts in a log, read one by one, and by batches where these are taken whole."""
    content, headers = write_batches(facts, delay_records, Timestamp(1), DelayTransactions(), 16 << 10)
    single, whole, taken, at = DelayCoordinator(Timestamp(1)), DelayCoordinator(Timestamp(1)), list[bool](), 0
    for number, header in enumerate(headers):
        stamped = header._replace(base_offset=1_000 * number)
        batch = memoryview(content)[at : at + header.size_bytes]
        at += header.size_bytes
        read = [
            located(fact, Offset(stamped.base_offset + index))
            for index, record in enumerate(read_records(batch))
            if (fact := decode(record.key, record.value)) is not None
        ]
        taken.append(load_batch(whole, batch, stamped))
        for fact in read:
            single.apply(fact)
            if not taken[-1]:
                whole.apply(fact)
    return single, whole, taken


def test_a_batch_of_plain_delays_is_taken_over_as_its_records_would_be() -> None:
    sizes = [None, 0, 1, 63, 64, 126, 127, 200, 5_000]
    facts: list[DelayFact] = [
        DelayStored(
            at, Timestamp(at + 7), DelayedRecord(f"t{at % 3 * 50}", at % 5 - 1, b"k" * (at % 70), content)
        )
        for at, size in enumerate(sizes * 50)
        for content in (None if size is None else b"v" * size,)
    ]

    single, whole, taken = replayed(facts)

    assert taken == [True] * len(taken)
    assert len(taken) > 2
    assert len(single.pending) == len(facts)
    assert list(whole.pending.after(-1)) == list(single.pending.after(-1))


def test_a_batch_with_anything_else_is_taken_record_by_record() -> None:
    plain = DelayStored(9, Timestamp(9), DelayedRecord("t", -1, None, b"v"))
    large = DelayStored(8, Timestamp(9), DelayedRecord("t", -1, None, b"v" * 20_000))

    for other in (
        STORED,
        large,
        plain._replace(id=7, producer=PRODUCER),
        DelaysFinished((9,), DelayFinish.DROPPED),
    ):
        single, whole, taken = replayed([plain, other])
        assert False in taken
        assert list(whole.pending.after(-1)) == list(single.pending.after(-1))
        assert whole.ending == single.ending


def test_a_batch_that_is_damaged_is_not_taken_over() -> None:
    facts: list[DelayFact] = [
        DelayStored(at, Timestamp(9), DelayedRecord("orders", -1, None, b"v" * 70)) for at in range(1, 4)
    ]
    content, (header,) = write_batches(facts, delay_records, Timestamp(1), DelayTransactions(), 16 << 10)
    machine = DelayCoordinator(Timestamp(1))

    for end in range(HEADER_BYTES, len(content)):
        assert not load_batch(machine, memoryview(content)[:end], header)
    assert not load_batch(machine, memoryview(content + b"\x00"), header)
    for at in range(HEADER_BYTES, len(content)):
        for byte in (0x7F, 0xFF):
            changed = bytearray(content)
            changed[at] = byte
            load_batch(DelayCoordinator(Timestamp(1)), memoryview(changed), header)
    assert len(machine.pending) == 0


@pytest.mark.parametrize("foreign", [None, b"", b"\x00", b"\x00\x07abc"])
def test_records_of_others_are_skipped(foreign: bytes | None) -> None:
    assert decode(foreign, b"") is None


@pytest.mark.parametrize(
    ("damaged", "value"),
    [
        (key(0, 1), None),
        (key(0, -1), encode(STORED)[1]),
        (key(0, 1), b"\x00\x00abc"),
        (key(1), write_stored(DelaysFinishedValue(cause=9, ids=(1,)), 0)),
        (key(7), b"\x00\x00"),
    ],
)
def test_what_is_damaged_is_an_error(damaged: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(damaged, value)
