"""Frames of replication, whole, cut short, and made up."""

from uuid import UUID

import pytest

from penstock.broker.replication.protocol import (
    CorruptBatchReport,
    FollowerProgress,
    FollowerProgressPartition,
    ReplicaFetch,
    ReplicaFetchPartition,
    ReplicaFetchResponse,
    ReplicaFetchResponsePartition,
    ReplicaFetchStatus,
    RestartSession,
    decode,
    encode_corrupt_batch_report,
    encode_fetch,
    encode_progress,
    encode_response,
    encode_restart,
    key_of,
    partition_of,
)
from penstock.core.model import ProtocolError, TopicId

TOPIC = TopicId(UUID("0190163d-8694-739b-aea5-966c26f8ad91"))
KEY, OTHER = key_of(TOPIC, 0), key_of(TOPIC, 4_711)

FETCH = ReplicaFetch(
    7,
    3,
    12,
    [ReplicaFetchPartition(KEY, 5, 1_000, 4, 900), ReplicaFetchPartition(OTHER, 6, 0, -1, 0)],
    [OTHER],
)
PROGRESS = FollowerProgress(7, 3, 2, [FollowerProgressPartition(KEY, 5, 1_000)])
RESTART = RestartSession(3, 12)
DOUBT = CorruptBatchReport(KEY, 5, 1_000)
ROWS = [
    ReplicaFetchResponsePartition(KEY, ReplicaFetchStatus.OK, 5, 1_000, 950, 10),
    ReplicaFetchResponsePartition(OTHER, ReplicaFetchStatus.DIVERGED, 6, 40, 30, 0, 4, 38),
]
CONTENTS = [b"two batches", b""]


def answer_bytes() -> bytes:
    return b"".join(encode_response(3, 12, 8, ROWS, CONTENTS))


FRAMES = {
    "fetch": encode_fetch(FETCH),
    "answer": answer_bytes(),
    "restart": encode_restart(RESTART),
    "progress": encode_progress(PROGRESS),
    "doubt": encode_corrupt_batch_report(DOUBT),
}


def test_a_partition_is_known_by_topic_id_and_number() -> None:
    assert len(KEY) == 20
    assert partition_of(OTHER) == (TOPIC, 4_711)


def test_frames_come_out_as_they_went_in() -> None:
    assert decode(memoryview(FRAMES["fetch"])) == FETCH
    assert decode(memoryview(FRAMES["progress"])) == PROGRESS
    assert decode(memoryview(FRAMES["restart"])) == RESTART
    assert decode(memoryview(FRAMES["doubt"])) == DOUBT
    answer = decode(memoryview(FRAMES["answer"]))
    assert isinstance(answer, ReplicaFetchResponse)
    assert (answer.session, answer.sequence, answer.number) == (3, 12, 8)
    assert [row for row, _ in answer.rows] == ROWS
    assert [bytes(content) for _, content in answer.rows] == CONTENTS


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_is_cut_short_or_too_long_is_refused(name: str) -> None:
    frame = FRAMES[name]

    for length in range(len(frame)):
        with pytest.raises(ProtocolError):
            decode(memoryview(frame)[:length])
    with pytest.raises(ProtocolError):
        decode(memoryview(frame + b"x"))


@pytest.mark.parametrize("name", FRAMES)
def test_counts_that_cannot_be_true_build_nothing(name: str) -> None:
    frame = bytearray(FRAMES[name])

    for position in range(1, min(len(frame) - 4, 30)):
        harmed = bytearray(frame)
        harmed[position : position + 4] = b"\xff\xff\xff\x7f"
        try:
            decode(memoryview(harmed))
        except ProtocolError:
            continue


def test_positions_before_the_beginning_are_refused() -> None:
    below = ReplicaFetch(7, 3, 12, [ReplicaFetchPartition(KEY, 5, -1, 4, 0)], [])
    unsynced = ReplicaFetch(7, 3, 12, [ReplicaFetchPartition(KEY, 5, 0, 4, -1)], [])
    backwards = FollowerProgress(7, 3, 2, [FollowerProgressPartition(KEY, 5, -2)])

    nowhere = CorruptBatchReport(KEY, 5, -1)

    frames = (
        encode_fetch(below),
        encode_fetch(unsynced),
        encode_progress(backwards),
        encode_corrupt_batch_report(nowhere),
    )
    for frame in frames:
        with pytest.raises(ProtocolError):
            decode(memoryview(frame))
