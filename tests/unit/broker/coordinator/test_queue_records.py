"""Facts of queues in their records."""

import re
from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker.coordinator.queue_records import QueueTransactions, decode, encode
from penstock.core.model import Offset, PartitionIndex, ProducerId, ProtocolError, TopicId
from penstock.core.protocol.queue_records import (
    OffsetRun,
    QueueKey,
    QueueRecordAttributes,
    RecordLease,
    RecordsFinishedValue,
    RecordsStoredValue,
    UnfinishedRecord,
)
from penstock.core.protocol.state_records import write_stored
from penstock.core.queues import (
    FinishCause,
    Lease,
    QueueForgotten,
    QueueId,
    QueueTransactionEnded,
    RecordsEnding,
    RecordsFinished,
    RecordsLeased,
    Run,
)
from penstock.core.records import ControlRecord, ControlType
from tests.unit.core.queues.queue_driver import producer

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "queue-state.md"
FIRST_COLUMN = re.compile(r"^((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  |$)", re.MULTILINE)
QUEUE = QueueId("workers", TopicId(UUID(int=7)), PartitionIndex(3))
RUNS = (Run(Offset(10), Offset(12)), Run(Offset(15), Offset(16)))
LEASED = RecordsLeased(QUEUE, Lease(258, "c1", 30_000), RUNS)
ATTRIBUTES = QueueRecordAttributes(offset=1, has_key=False, key=0, priority=0, deliver_at=-1, expires_at=-1)


def finished(cause: int, *runs: tuple[int, int]) -> bytes:
    stored = tuple(OffsetRun(start=start, end=end) for start, end in runs)
    return write_stored(RecordsFinishedValue(cause=cause, runs=stored), 0)


def unfinished(state: int, lease: RecordLease | None = None) -> bytes:
    record = UnfinishedRecord(record=ATTRIBUTES, state=state, attempts=1, delay_ms=0, lease=lease)
    return write_stored(RecordsStoredValue(records=(record,)), 0)


def key(kind: int) -> bytes:
    fields = {"group_id": "workers", "topic_id": UUID(int=7), "partition": 3}
    return write_stored(QueueKey(kind=kind, **fields), 0)  # type: ignore[arg-type]


def test_the_example_of_the_page_reads_as_the_page_says() -> None:
    blocks = PAGE.read_text().split("```")[1].split("\n\n")
    shown = [bytes.fromhex(" ".join(FIRST_COLUMN.findall(block))) for block in blocks]

    assert shown == list(encode(LEASED))
    assert decode(shown[0], shown[1]) == LEASED


def test_a_forgotten_queue_has_no_value() -> None:
    forgotten = QueueForgotten(QUEUE)

    assert encode(forgotten) == (key(0), None)
    assert decode(key(0), None) == forgotten


@pytest.mark.parametrize("foreign", [None, b"", b"\x00", b"\x00\x07abc", key(1)[:-3]])
def test_records_of_others_are_skipped(foreign: bytes | None) -> None:
    assert decode(foreign, b"\x00\x00") is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (77, b"\x00\x00"),
        (1, None),
        (6, b""),
        (6, b"\x00\x01" + finished(0)[2:]),
        (6, finished(9, (1, 2))),
        (6, finished(0, (2, 2))),
        (6, finished(0, (5, 7), (6, 9))),
        (6, finished(0, (-4, 2))),
        (6, finished(0, (0, 2**62))),
        (9, unfinished(5)),
        (9, unfinished(1)),
        (9, unfinished(0, RecordLease(token=1, consumer="a", lease_ms=1))),
        (9, unfinished(2)),
    ],
)
def test_a_record_that_says_nothing_sensible_is_an_error(kind: int, value: bytes | None) -> None:
    with pytest.raises(ProtocolError):
        decode(key(kind), value)


def test_what_a_transaction_finishes_stands_in_its_batch() -> None:
    transactions = QueueTransactions()
    ending = RecordsEnding(QUEUE, producer(5, 2), RUNS)

    assert transactions.producer_of(ending) == (5, 2)
    assert transactions.producer_of(RecordsFinished(QUEUE, RUNS, FinishCause.MOVED)) is None
    assert transactions.in_transaction(ending, 5, 2) == ending


@pytest.mark.parametrize(
    ("control_type", "is_commit"), [(ControlType.COMMIT, True), (ControlType.ABORT, False)]
)
def test_a_marker_is_the_end_of_a_transaction(control_type: ControlType, is_commit: bool) -> None:
    marker = ControlRecord(0, 0, control_type, 5, 2, 0)

    assert QueueTransactions().ended(marker) == QueueTransactionEnded(ProducerId(5), is_commit)
