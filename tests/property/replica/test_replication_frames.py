"""Whatever arrives on the replication channel: a frame, or an error."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.replication.protocol import (
    CorruptBatchReport,
    FollowerProgress,
    FollowerProgressPartition,
    Frame,
    ReplicaFetch,
    ReplicaFetchPartition,
    ReplicaFetchResponse,
    ReplicaFetchResponsePartition,
    RestartSession,
    decode,
    encode_corrupt_batch_report,
    encode_fetch,
    encode_progress,
    encode_response,
    encode_restart,
)
from penstock.core.model import ProtocolError

KEY = bytes(range(20))
keys = st.binary(min_size=20, max_size=20)
u32 = st.integers(0, 2**32 - 1)
epochs = st.integers(-1, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
broker_epochs = st.integers(-1, 2**63 - 1)

fetches = st.builds(
    ReplicaFetch,
    broker_epochs,
    u32,
    u32,
    st.lists(st.builds(ReplicaFetchPartition, keys, epochs, offsets, epochs, offsets, offsets), max_size=5),
    st.lists(keys, max_size=3),
)
progresses = st.builds(
    FollowerProgress,
    broker_epochs,
    u32,
    u32,
    st.lists(st.builds(FollowerProgressPartition, keys, epochs, offsets), max_size=5),
)
restarts = st.builds(RestartSession, u32, u32)
answers = st.lists(
    st.tuples(
        st.builds(
            ReplicaFetchResponsePartition,
            keys,
            st.integers(0, 255),
            epochs,
            offsets,
            offsets,
            offsets,
            epochs,
            offsets,
        ),
        st.binary(max_size=50),
    ),
    max_size=5,
)

EXAMPLES = (
    encode_fetch(ReplicaFetch(7, 3, 12, [ReplicaFetchPartition(KEY, 5, 1_000, 4, 900)] * 3, [KEY])),
    b"".join(
        encode_response(
            3, 12, 8, [ReplicaFetchResponsePartition(KEY, 0, 5, 1_000, 950, 10)] * 2, [b"batches", b"more"]
        )
    ),
    encode_progress(FollowerProgress(7, 3, 2, [FollowerProgressPartition(KEY, 5, 1_000)] * 2)),
    encode_restart(RestartSession(3, 12)),
    encode_corrupt_batch_report(CorruptBatchReport(KEY, 5, 1_000)),
)


@given(fetches)
def test_a_fetch_comes_out_as_it_went_in(fetch: ReplicaFetch) -> None:
    assert decode(memoryview(encode_fetch(fetch))) == fetch


@given(progresses)
def test_progress_comes_out_as_it_went_in(progress: FollowerProgress) -> None:
    assert decode(memoryview(encode_progress(progress))) == progress


@given(restarts)
def test_a_restart_comes_out_as_it_went_in(restart: RestartSession) -> None:
    assert decode(memoryview(encode_restart(restart))) == restart


@given(u32, u32, u32, answers)
def test_an_answer_comes_out_as_it_went_in(
    session: int, sequence: int, number: int, said: list[tuple[ReplicaFetchResponsePartition, bytes]]
) -> None:
    rows, contents = [row for row, _ in said], [content for _, content in said]

    answer = decode(memoryview(b"".join(encode_response(session, sequence, number, rows, contents))))

    assert isinstance(answer, ReplicaFetchResponse)
    assert (answer.session, answer.sequence, answer.number) == (session, sequence, number)
    assert [(row, bytes(content)) for row, content in answer.rows] == said


def understood(frame: bytes) -> Frame | None:
    try:
        return decode(memoryview(frame))
    except ProtocolError:
        return None


@settings(max_examples=500)
@given(st.binary(max_size=300))
def test_noise_is_refused_or_makes_a_frame(noise: bytes) -> None:
    understood(noise)


@settings(max_examples=1_000)
@given(st.sampled_from(EXAMPLES), st.data())
def test_a_harmed_frame_is_refused_or_makes_another_that_is_no_larger(
    frame: bytes, data: st.DataObject
) -> None:
    harmed = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 6))):
        harmed[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(frame)))

    found = understood(bytes(harmed[:length]))

    if isinstance(found, ReplicaFetchResponse):
        assert sum(len(content) for _, content in found.rows) <= length
    elif isinstance(found, ReplicaFetch | FollowerProgress):
        assert len(found.rows) * 32 <= length
