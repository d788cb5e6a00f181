"""Frames between a follower and its leader, little endian. A changed layout takes a new kind.

    fetch      8 │ broker epoch 8 │ session 4 │ sequence 4 │ rows 4 │ forgotten 4
      row      topic id 16 │ partition 4 │ leader epoch 4 │ position 8 │ last epoch 4 │ synced 8 │ log start 8
      forgotten  topic id 16 │ partition 4
    response  10 │ session 4 │ sequence 4 │ number 4 │ rows 4
      row      topic id 16 │ partition 4 │ status 1 │ leader epoch 4 │ position 8
               │ high watermark 8 │ log start 8 │ epoch 4 │ end 8 │ bytes 4
      then the bytes of all rows: whole batches, as they are in the leader's log
    restart    3 │ session 4 │ sequence 4
    progress   4 │ broker epoch 8 │ session 4 │ number 4 │ rows 4
      row      topic id 16 │ partition 4 │ leader epoch 4 │ synced 8
    corrupt    5 │ topic id 16 │ partition 4 │ leader epoch 4 │ position 8
    range      6 │ topic id 16 │ partition 4 │ number 4 │ start 8 │ end 8
    records    7 │ topic id 16 │ partition 4 │ number 4 │ status 1 │ log start 8, then whole batches
    resigned   9 │ topic id 16 │ partition 4 │ leader epoch 4

A partition's key is the twenty bytes of its topic id and number: both sides look it up by those
bytes, without decoding them. Fetch positions are log ends: the next offset wanted.
"""

import enum
import struct
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.core.model import PartitionIndex, ProtocolError, TopicId
from penstock.runtime import Buffer

_FETCH = struct.Struct("<BqIIII")
_FETCH_ROW = struct.Struct("<20siqiqq")
_KEY = struct.Struct("<20s")
_ANSWER = struct.Struct("<BIIII")
_ANSWER_ROW = struct.Struct("<20sBiqqqiqI")
_RESTART = struct.Struct("<BII")
_PROGRESS = struct.Struct("<BqIII")
_PROGRESS_ROW = struct.Struct("<20siq")
_DOUBT = struct.Struct("<B20siq")
_RANGE = struct.Struct("<B20sIqq")
_RECORDS = struct.Struct("<B20sIBq")
_RESIGNED = struct.Struct("<B20si")
_INDEX = struct.Struct("<i")
_TOPIC_ID_BYTES = 16


class ReplicationFrameKind(enum.IntEnum):
    """What a frame is: its first byte."""

    RESTART = 3
    PROGRESS = 4
    CORRUPT_BATCH = 5
    RANGE_FETCH = 6
    RANGE_RESPONSE = 7
    FETCH = 8
    RESIGNED = 9
    RESPONSE = 10


class ReplicaFetchStatus(enum.IntEnum):
    """What a leader says of one partition."""

    OK = 0
    # The follower's leader epoch is over: its metadata will bring the next one.
    FENCED = 1
    # The follower's last epoch ended earlier in the leader's log: at `end`, under `epoch`.
    DIVERGED = 2
    # The position is not in the leader's log, which begins at `log_start`.
    OUT_OF_RANGE = 3
    # The leader cannot read its own log there.
    DAMAGED = 4


class ReplicaFetchPartition(NamedTuple):
    """What a follower has of one partition. `last_epoch` wrote its last record; -1 if it has none."""

    key: bytes
    leader_epoch: int
    position: int
    last_epoch: int
    synced: int
    log_start: int = 0


class ReplicaFetch(NamedTuple):
    """A follower's fetch. Partitions that it does not name are unchanged."""

    broker_epoch: int
    session: int
    sequence: int
    rows: Sequence[ReplicaFetchPartition]
    forgotten: Sequence[bytes]


class ReplicaFetchResponsePartition(NamedTuple):
    """News of one partition; `position` is the one that was asked for.

    `end` is the leader's log end, unless the status gives it another meaning.
    """

    key: bytes
    status: int
    leader_epoch: int
    position: int
    high_watermark: int
    log_start: int
    epoch: int = -1
    end: int = -1


class ReplicaFetchResponse(NamedTuple):
    """A leader's response to a fetch, with the batches of each row.

    `sequence` is that of the fetch. Not every fetch gets one: `number` counts the responses of the session.
    """

    session: int
    sequence: int
    number: int
    rows: Sequence[tuple[ReplicaFetchResponsePartition, memoryview]]


class RestartSession(NamedTuple):
    """The leader does not know the session that this fetch belongs to."""

    session: int
    sequence: int


class FollowerProgressPartition(NamedTuple):
    """What a follower has synced since its last fetch."""

    key: bytes
    leader_epoch: int
    synced: int


class FollowerProgress(NamedTuple):
    """Sent between fetches, without a response; the highest `number` counts."""

    broker_epoch: int
    session: int
    number: int
    rows: Sequence[FollowerProgressPartition]


class CorruptBatchReport(NamedTuple):
    """What the leader sent for this position was damaged; without a response."""

    key: bytes
    leader_epoch: int
    position: int


class LeaderResigned(NamedTuple):
    """The sender led before this epoch, knows of it, and keeps no replica any more; without a response."""

    key: bytes
    leader_epoch: int


class RangeFetch(NamedTuple):
    """A replica asks another one, whatever its role, for committed records that are damaged here."""

    key: bytes
    number: int
    start: int
    end: int


class RangeFetchResponse(NamedTuple):
    """The first batches of the range; none: there is nothing between `start` and `end`."""

    key: bytes
    number: int
    status: int
    log_start: int
    batches: Buffer


Frame: TypeAlias = (
    ReplicaFetch
    | ReplicaFetchResponse
    | RestartSession
    | FollowerProgress
    | CorruptBatchReport
    | RangeFetch
    | RangeFetchResponse
    | LeaderResigned
)


def key_of(topic_id: TopicId, index: int) -> bytes:
    """The twenty bytes that stand for a partition."""
    return topic_id.bytes + _INDEX.pack(index)


def partition_of(key: bytes) -> tuple[TopicId, PartitionIndex]:
    topic_id = TopicId(UUID(bytes=key[:_TOPIC_ID_BYTES]))
    return topic_id, PartitionIndex(_INDEX.unpack_from(key, _TOPIC_ID_BYTES)[0])


def encode_fetch(fetch: ReplicaFetch) -> bytes:
    head = _FETCH.pack(
        ReplicationFrameKind.FETCH,
        fetch.broker_epoch,
        fetch.session,
        fetch.sequence,
        len(fetch.rows),
        len(fetch.forgotten),
    )
    rows = [_FETCH_ROW.pack(*row) for row in fetch.rows]
    return b"".join((head, *rows, *fetch.forgotten))


def encode_response(
    session: int,
    sequence: int,
    number: int,
    rows: Sequence[ReplicaFetchResponsePartition],
    contents: Sequence[Buffer],
) -> list[Buffer]:
    """The parts of a response; `contents` has the batches of each row, perhaps none."""
    parts = [_ANSWER.pack(ReplicationFrameKind.RESPONSE, session, sequence, number, len(rows))]
    parts += [_ANSWER_ROW.pack(*row, len(content)) for row, content in zip(rows, contents, strict=True)]
    return [b"".join(parts), *(content for content in contents if len(content))]


def encode_restart(restart: RestartSession) -> bytes:
    return _RESTART.pack(ReplicationFrameKind.RESTART, *restart)


def encode_progress(progress: FollowerProgress) -> bytes:
    head = _PROGRESS.pack(ReplicationFrameKind.PROGRESS, *progress[:3], len(progress.rows))
    return b"".join((head, *(_PROGRESS_ROW.pack(*row) for row in progress.rows)))


def encode_corrupt_batch_report(doubt: CorruptBatchReport) -> bytes:
    return _DOUBT.pack(ReplicationFrameKind.CORRUPT_BATCH, *doubt)


def encode_resigned(resigned: LeaderResigned) -> bytes:
    return _RESIGNED.pack(ReplicationFrameKind.RESIGNED, *resigned)


def encode_range_fetch(fetch: RangeFetch) -> bytes:
    return _RANGE.pack(ReplicationFrameKind.RANGE_FETCH, *fetch)


def encode_range_response(response: RangeFetchResponse) -> list[Buffer]:
    """The parts of a response."""
    return [_RECORDS.pack(ReplicationFrameKind.RANGE_RESPONSE, *response[:4]), response.batches]


def decode(frame: memoryview) -> Frame:  # noqa: C901 - one case per kind
    """Decode a peer's frame, or raise ProtocolError."""
    kind = frame[0] if len(frame) else 0
    try:
        match kind:
            case ReplicationFrameKind.FETCH:
                return _decode_fetch(frame)
            case ReplicationFrameKind.RESPONSE:
                return _decode_answer(frame)
            case ReplicationFrameKind.RESTART:
                return _decode_restart(frame)
            case ReplicationFrameKind.PROGRESS:
                return _decode_progress(frame)
            case ReplicationFrameKind.CORRUPT_BATCH:
                return _decode_doubt(frame)
            case ReplicationFrameKind.RANGE_FETCH:
                return _decode_range(frame)
            case ReplicationFrameKind.RANGE_RESPONSE:
                return _decode_records(frame)
            case ReplicationFrameKind.RESIGNED:
                return _decode_resigned(frame)
            case _:
                raise ProtocolError(f"unknown replication frame kind {kind}")
    except struct.error:
        raise ProtocolError("a replication frame ends early") from None


def _decode_fetch(frame: memoryview) -> ReplicaFetch:
    _, broker_epoch, session, sequence, row_count, forgotten_count = _FETCH.unpack_from(frame)
    rows_end = _FETCH.size + row_count * _FETCH_ROW.size
    _expect(frame, rows_end + forgotten_count * _KEY.size)
    rows = [ReplicaFetchPartition._make(row) for row in _FETCH_ROW.iter_unpack(frame[_FETCH.size : rows_end])]
    for row in rows:
        if row.position < 0 or row.synced < 0 or row.log_start < 0:
            raise ProtocolError("a replica fetch has a negative offset")
    forgotten = [key for (key,) in _KEY.iter_unpack(frame[rows_end:])]
    return ReplicaFetch(broker_epoch, session, sequence, rows, forgotten)


def _decode_answer(frame: memoryview) -> ReplicaFetchResponse:
    _, session, sequence, number, row_count = _ANSWER.unpack_from(frame)
    position = _ANSWER.size + row_count * _ANSWER_ROW.size
    if position > len(frame):
        raise ProtocolError(f"a replica fetch response of {len(frame)} bytes cannot have {row_count} rows")
    rows = []
    for *fields, length in _ANSWER_ROW.iter_unpack(frame[_ANSWER.size : position]):
        row = ReplicaFetchResponsePartition._make(fields)
        if row.high_watermark < 0 or row.log_start < 0:
            raise ProtocolError("a replica fetch response has a negative offset")
        rows.append((row, frame[position : position + length]))
        position += length
    _expect(frame, position)
    return ReplicaFetchResponse(session, sequence, number, rows)


def _decode_restart(frame: memoryview) -> RestartSession:
    _, session, sequence = _RESTART.unpack_from(frame)
    _expect(frame, _RESTART.size)
    return RestartSession(session, sequence)


def _decode_progress(frame: memoryview) -> FollowerProgress:
    _, broker_epoch, session, number, row_count = _PROGRESS.unpack_from(frame)
    _expect(frame, _PROGRESS.size + row_count * _PROGRESS_ROW.size)
    rows = [
        FollowerProgressPartition._make(row) for row in _PROGRESS_ROW.iter_unpack(frame[_PROGRESS.size :])
    ]
    if any(row.synced < 0 for row in rows):
        raise ProtocolError("a progress frame has a negative offset")
    return FollowerProgress(broker_epoch, session, number, rows)


def _decode_doubt(frame: memoryview) -> CorruptBatchReport:
    _, key, leader_epoch, position = _DOUBT.unpack_from(frame)
    _expect(frame, _DOUBT.size)
    if position < 0:
        raise ProtocolError("a corrupt-batch report has a negative offset")
    return CorruptBatchReport(key, leader_epoch, position)


def _decode_resigned(frame: memoryview) -> LeaderResigned:
    _, key, leader_epoch = _RESIGNED.unpack_from(frame)
    _expect(frame, _RESIGNED.size)
    return LeaderResigned(key, leader_epoch)


def _decode_range(frame: memoryview) -> RangeFetch:
    _, key, number, start, end = _RANGE.unpack_from(frame)
    _expect(frame, _RANGE.size)
    if not 0 <= start < end:
        raise ProtocolError(f"a range fetch asks for {start}..{end}")
    return RangeFetch(key, number, start, end)


def _decode_records(frame: memoryview) -> RangeFetchResponse:
    _, key, number, status, log_start = _RECORDS.unpack_from(frame)
    return RangeFetchResponse(key, number, status, log_start, frame[_RECORDS.size :])


def _expect(frame: memoryview, length: int) -> None:
    """Check the length before anything is decoded."""
    if len(frame) != length:
        raise ProtocolError(f"a replication frame of {len(frame)} bytes should have {length}")
