"""Every fact of a queue is read as it was written, and no bytes do harm."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.coordinator.queue_records import decode, encode
from penstock.core.model import Offset, ProtocolError
from penstock.core.queues import (
    Failure,
    FinishCause,
    Lease,
    LeasesProlonged,
    QueueFact,
    QueueForgotten,
    QueueId,
    QueueRecord,
    QueueSettings,
    QueueStored,
    RecordsDropped,
    RecordsEnding,
    RecordsFinished,
    RecordsGivenUp,
    RecordsLeased,
    RecordsReleased,
    RecordsReturned,
    RecordsStored,
    RecordsTaken,
    RecordState,
    ReleasedRecord,
    StoredRecord,
    TransactionProducer,
    runs_of,
)

INT32, INT64 = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
TIME = st.integers(-1, 2**62)
TEXT = st.text(max_size=20)
QUEUES = st.builds(QueueId, TEXT, st.uuids(), INT32)
RUNS: Any = st.lists(st.integers(0, 500).map(Offset), unique=True).map(sorted).map(runs_of)
RECORDS = st.builds(
    QueueRecord, INT64, st.none() | st.integers(-(2**63), 2**63 - 1), st.integers(0, 9), TIME, TIME
)
LEASES = st.builds(Lease, INT64, TEXT, INT32)
FAILURES = st.builds(Failure, TIME, TIME, TEXT)
PRODUCERS = st.builds(TransactionProducer, INT64, st.integers(0, 2**15 - 1))


@st.composite
def stored_records(draw: st.DrawFn) -> StoredRecord:
    state = draw(st.sampled_from(RecordState))
    return StoredRecord(
        draw(RECORDS),
        state,
        draw(INT32),
        draw(INT32),
        draw(LEASES) if state is RecordState.LEASED else None,
        draw(FAILURES if state is RecordState.MOVING else st.none() | FAILURES),
        draw(st.none() | PRODUCERS),
    )


def tuples(of: Any) -> Any:
    return st.lists(of, max_size=4).map(tuple)


SETTINGS = st.builds(QueueSettings, st.booleans(), INT32, st.booleans(), INT32, INT32, INT32)
FACTS: st.SearchStrategy[QueueFact] = st.one_of(
    st.builds(QueueStored, QUEUES, INT64, INT32, SETTINGS, st.booleans()),
    st.builds(QueueForgotten, QUEUES),
    st.builds(RecordsTaken, QUEUES, INT64, RUNS, tuples(RECORDS)),
    st.builds(RecordsLeased, QUEUES, LEASES, RUNS),
    st.builds(LeasesProlonged, QUEUES, INT32, RUNS),
    st.builds(RecordsReleased, QUEUES, tuples(st.builds(ReleasedRecord, INT64, INT32)), TIME, TEXT),
    st.builds(RecordsGivenUp, QUEUES, RUNS, TIME, TEXT),
    st.builds(RecordsFinished, QUEUES, RUNS, st.sampled_from(FinishCause)),
    st.builds(RecordsEnding, QUEUES, PRODUCERS, RUNS),
    st.builds(RecordsDropped, QUEUES, INT64, INT64),
    st.builds(RecordsReturned, QUEUES, RUNS),
    st.builds(RecordsStored, QUEUES, tuples(stored_records())),
)


@given(FACTS)
def test_a_fact_is_read_as_it_was_written(fact: QueueFact) -> None:
    assert decode(*encode(fact)) == fact


@given(FACTS, st.data())
def test_damaged_records_are_skipped_or_refused(fact: QueueFact, data: st.DataObject) -> None:
    key, value = encode(fact)
    damaged = bytearray(value or b"\x00\x00")
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))

    for stored in (bytes(damaged), bytes(damaged[:cut])):
        try:
            decode(key, stored)
        except ProtocolError:
            continue
