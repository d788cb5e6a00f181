"""Facts of delays as records: the page's example, every fact, and what is damaged."""

import re
from itertools import accumulate
from pathlib import Path

import pytest

from penstock.broker.coordinator.delay_records import decode, encode, located
from penstock.core.delays import (
    DelayedRecords,
    DelayFact,
    DelayFinish,
    DelaysEnding,
    DelaysFinished,
    DelaysStored,
)
from penstock.core.model import Offset, ProducerEpoch, ProducerId, ProtocolError
from penstock.core.protocol.delayed_records import DelayedRecordsValue, DelayKey, DelaysFinishedValue
from penstock.core.protocol.state_records import write_stored
from penstock.core.queues import TransactionProducer
from penstock.core.records import read_records
from penstock.core.records.builder import join_bodies, pack_body

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "delayed.md"
FIRST_COLUMN = re.compile(r"^((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", re.MULTILINE)
PRODUCER = TransactionProducer(ProducerId(7), ProducerEpoch(2))
BODIES = [pack_body(b"k", b"hi", (("a", b"1"),)), pack_body(None, b"later")]
RECORDS = DelayedRecords(
    "orders",
    (0x1122334455667788, 0x1122334455667790),
    (1_767_225_600_000, 1_767_225_600_001),
    (-1, 2),
    tuple(accumulate(map(len, BODIES))),
    b"".join(BODIES),
)
STORED = DelaysStored(RECORDS)


def key(kind: int) -> bytes:
    return write_stored(DelayKey(kind=kind), 0)


def value_of(records: DelayedRecords) -> bytes:
    topic, ids, times, partitions, ends, content = records
    stored = DelayedRecordsValue(
        topic=topic,
        ids=ids,
        times=times,
        partitions=partitions,
        ends=ends,
        content=content,
        producer=None,
    )
    return write_stored(stored, 0)


def test_the_example_of_the_page_reads_as_the_page_says() -> None:
    blocks = PAGE.read_text().split("```")[1].split("\n\n")
    shown = [bytes.fromhex(" ".join(FIRST_COLUMN.findall(block))) for block in blocks]

    assert shown == list(encode(STORED))
    assert decode(shown[0], shown[1]) == STORED


@pytest.mark.parametrize(
    "fact",
    [
        DelaysStored(RECORDS._replace(topic="\u00e9" * 100), PRODUCER),
        DelaysStored(DelayedRecords("t", (0,), (0,), (5,), (200_000,), b"v" * 200_000)),
        DelaysFinished((1, 2), DelayFinish.DROPPED),
        DelaysEnding(PRODUCER, (3,)),
    ],
)
def test_facts_are_read_as_they_were_written(fact: DelayFact) -> None:
    assert decode(*encode(fact)) == fact


def test_bodies_that_were_stored_become_the_records_that_they_were() -> None:
    found = decode(*encode(STORED))
    assert isinstance(found, DelaysStored)

    bodies = [found.records.body(at) for at in range(2)]
    records = list(read_records(join_bodies(bodies, 5)))

    assert [(each.key, each.value, each.headers) for each in records] == [
        (b"k", b"hi", (("a", b"1"),)),
        (None, b"later", ()),
    ]


def test_stored_delays_know_where_their_records_are() -> None:
    assert located(STORED, Offset(42)) == STORED._replace(offset=Offset(42))
    assert located(DelaysEnding(PRODUCER, (3,)), Offset(42)) == DelaysEnding(PRODUCER, (3,))


@pytest.mark.parametrize("foreign", [None, b"", b"\x00", b"\x00\x07abc"])
def test_records_of_others_are_skipped(foreign: bytes | None) -> None:
    assert decode(foreign, b"") is None


@pytest.mark.parametrize(
    ("damaged", "value"),
    [
        (key(0), None),
        (key(0), b"\x00\x00abc"),
        (key(1), write_stored(DelaysFinishedValue(cause=9, ids=(1,)), 0)),
        (key(7), b"\x00\x00"),
    ],
)
def test_what_is_damaged_is_an_error(damaged: bytes, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(damaged, value)


@pytest.mark.parametrize(
    "records",
    [
        DelayedRecords("t", (), (), (), (), b""),
        RECORDS._replace(ids=RECORDS.ids[:1]),
        RECORDS._replace(times=RECORDS.times * 2),
        RECORDS._replace(partitions=()),
        RECORDS._replace(content=RECORDS.content + b"x"),
        RECORDS._replace(ends=RECORDS.ends[::-1]),
        RECORDS._replace(ends=(0, RECORDS.ends[1])),
        RECORDS._replace(ids=(-1, 5)),
    ],
)
def test_columns_that_do_not_belong_together_are_an_error(records: DelayedRecords) -> None:
    with pytest.raises(ProtocolError):
        decode(key(0), value_of(records))


def test_a_value_that_is_cut_is_an_error() -> None:
    name, whole = encode(STORED)
    assert whole is not None

    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode(name, whole[:end])
