import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from penstock.broker.cluster.raft_codec import (
    MESSAGES,
    decode_content,
    decode_facts,
    decode_message,
    encode_content,
    encode_facts,
    encode_message,
    facts_end,
)
from penstock.core.metadata import ClusterIdSet
from penstock.core.model import CorruptionError, Offset, ProtocolError
from penstock.core.raft import Configuration, Content, Entry, Index, SnapshotMeta, Term
from penstock.core.raft.messages import (
    AppendConflict,
    AppendRequest,
    AppendResponse,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    RaftMessage,
    SnapshotChunk,
    SnapshotChunkResponse,
    StaleTerm,
    TermRequest,
    TermResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from tests.property.raft.raft_arena import member_of

TERM, INDEX = Term(7), Index(1 << 40)
MEMBERS = Configuration((member_of(1), member_of(2)), (member_of(3, 1),))
EXAMPLES: list[RaftMessage] = [
    VoteRequest(TERM, INDEX, Term(6), is_pre_vote=True),
    VoteResponse(TERM, is_granted=True, is_doubtful=True),
    AppendRequest(
        TERM,
        INDEX,
        Term(6),
        (Entry(Index(1), TERM, b"\x00\xff"), Entry(Index(2), TERM, None), Entry(Index(3), TERM, MEMBERS)),
        Index(5),
    ),
    AppendResponse(TERM, INDEX),
    AppendConflict(TERM, INDEX, Index(3), Term(2), is_doubtful=True),
    RaftHeartbeat(TERM, INDEX, 9),
    RaftHeartbeatResponse(TERM, 9, INDEX, Term(6)),
    SnapshotChunk(TERM, SnapshotMeta(INDEX, TERM, MEMBERS), 300, b"chunk", is_last=True),
    SnapshotChunkResponse(TERM, INDEX, 300),
    TimeoutNow(TERM),
    StaleTerm(TERM),
    TermRequest(TERM, 1 << 61),
    TermResponse(TERM, 1 << 61),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: RaftMessage) -> None:
    assert decode_message(encode_message(message)) == message


def test_there_is_an_example_of_every_message() -> None:
    assert [type(message) for message in EXAMPLES] == list(MESSAGES)


@given(st.binary(max_size=200))
def test_random_bytes_are_a_protocol_error_at_worst(frame: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_message(frame)


@given(st.sampled_from(EXAMPLES), st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_message_is_a_protocol_error_at_worst(message: RaftMessage, where: int, value: int) -> None:
    frame = bytearray(encode_message(message))
    frame[where % len(frame)] = value

    with contextlib.suppress(ProtocolError):
        decode_message(bytes(frame))


@pytest.mark.parametrize("term", [-1, 2**31, 2**40, 2**64 - 1])
def test_a_term_that_no_log_can_hold_is_not_believed(term: int) -> None:
    for message in EXAMPLES:
        with pytest.raises(ProtocolError, match="of term"):
            decode_message(encode_message(structs.replace(message, term=Term(term))))


@pytest.mark.parametrize("content", [None, b"", b"facts", MEMBERS])
def test_an_entry_is_read_as_it_was_written(content: Content) -> None:
    assert decode_content(encode_content(content)) == content


def test_an_entry_of_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(CorruptionError):
        decode_content(b"\x07whatever")


def test_facts_say_how_many_there_are_up_to_them() -> None:
    facts = [ClusterIdSet("AAAAAAAAAAAAAAAAAAAAAQ"), ClusterIdSet("AAAAAAAAAAAAAAAAAAAAAg")]

    payload = encode_facts(Offset(12), facts)

    assert facts_end(payload) == 12
    assert list(decode_facts(payload)) == facts


@pytest.mark.parametrize("cut", [1, 3, 20])
def test_facts_that_are_cut_off_are_corrupt(cut: int) -> None:
    payload = encode_facts(Offset(1), [ClusterIdSet("AAAAAAAAAAAAAAAAAAAAAQ")])

    with pytest.raises(CorruptionError):
        decode_facts(payload[:-cut])


def test_facts_without_a_whole_count_are_corrupt() -> None:
    with pytest.raises(CorruptionError):
        facts_end(b"\0\0\0\0\0\0\0")
