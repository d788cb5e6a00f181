"""Raft messages and log entries as bytes.

frame     version 1 │ kind 1 │ MessagePack of the message, by field names
record    kind 1 │ nothing, facts, or MessagePack of a configuration      (the value of a log record)
facts     end 8 │ { length 4 │ fact … } …      little endian

`end` counts all facts up to and including these, so that any entry says how many facts a
log holds up to it. Fields that a reader does not know are skipped, those it misses have
their default: a new field needs no new version.
"""

import struct
from collections.abc import Iterable, Sequence

import msgspec

from penstock.core.metadata import Fact, decode_fact, encode_fact
from penstock.core.metadata.fact_checks import problem_with_fact
from penstock.core.model import CorruptionError, Offset, ProtocolError
from penstock.core.raft import Configuration, Content, Entry
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

VERSION = 1
# The log keeps terms in four bytes; how far one may be ahead of ours is checked by `core.raft`.
TERM_MAX = 2**31 - 1_024
# The place in this list is the number on the wire: append only.
MESSAGES: tuple[type[RaftMessage], ...] = (
    VoteRequest,
    VoteResponse,
    AppendRequest,
    AppendResponse,
    AppendConflict,
    RaftHeartbeat,
    RaftHeartbeatResponse,
    SnapshotChunk,
    SnapshotChunkResponse,
    TimeoutNow,
    StaleTerm,
    TermRequest,
    TermResponse,
)
_NUMBERS = {kind: number for number, kind in enumerate(MESSAGES)}
_decoders: dict[int, msgspec.msgpack.Decoder[RaftMessage]] = {}
_encode = msgspec.msgpack.Encoder().encode
_decode_configuration = msgspec.msgpack.Decoder(Configuration).decode
_END = struct.Struct("<q")
FACTS_MAX = 2**62
_LENGTH = struct.Struct("<I")
_BLANK, _FACTS, _CONFIGURATION = b"\0", b"\1", b"\2"


def encode_message(message: RaftMessage) -> bytes:
    return bytes((VERSION, _NUMBERS[type(message)])) + _encode(message)


def decode_message(frame: bytes | memoryview) -> RaftMessage:
    """The message, or ProtocolError."""
    if len(frame) < 2 or frame[0] != VERSION or frame[1] >= len(MESSAGES):
        raise ProtocolError("not a Raft message")
    decoder = _decoders.get(frame[1])
    if decoder is None:
        decoder = _decoders[frame[1]] = msgspec.msgpack.Decoder(MESSAGES[frame[1]])
    try:
        message = decoder.decode(memoryview(frame)[2:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise ProtocolError(f"a damaged {MESSAGES[frame[1]].__name__}: {wrong}") from None
    if not 0 <= message.term <= TERM_MAX:
        raise ProtocolError(f"a {MESSAGES[frame[1]].__name__} of term {message.term}")
    return message


def encode_content(content: Content) -> bytes:
    if content is None:
        return _BLANK
    if isinstance(content, bytes):
        return _FACTS + content
    return _CONFIGURATION + _encode(content)


def decode_content(value: bytes) -> Content:
    """The content, or CorruptionError."""
    kind, rest = value[:1], value[1:]
    if kind == _BLANK:
        return None
    if kind == _FACTS:
        return rest
    if kind == _CONFIGURATION:
        return decode_configuration(rest)
    raise CorruptionError(f"unknown kind of raft log entry: {kind!r}")


def encode_configuration(configuration: Configuration) -> bytes:
    return _encode(configuration)


def decode_configuration(value: bytes | memoryview) -> Configuration:
    try:
        return _decode_configuration(value)
    except msgspec.DecodeError as wrong:
        raise CorruptionError(f"a damaged configuration: {wrong}") from None


def encode_facts(end: Offset, facts: Iterable[Fact]) -> bytes:
    """Facts that are committed together; the last of them is the one before `end`."""
    parts = [_END.pack(end)]
    for fact in facts:
        content = encode_fact(fact)
        parts += (_LENGTH.pack(len(content)), content)
    return b"".join(parts)


def facts_end(payload: bytes) -> Offset:
    """How many facts there are up to and including these, or CorruptionError."""
    if len(payload) < _END.size:
        raise CorruptionError("facts end before their first")
    return Offset(_END.unpack_from(payload)[0])


def check_entries(entries: Iterable[Entry]) -> None:
    """Raise ProtocolError unless what these entries hold can be applied: they are about to be stored.

    LevelTooHigh, which is for the operator of a node that is too old, comes before they are, too.
    """
    for entry in entries:
        if isinstance(entry.content, bytes):
            try:
                problem = problem_with_facts(decode_facts(entry.content), facts_end(entry.content))
            except CorruptionError as wrong:
                raise ProtocolError(f"entry {entry.index}: {wrong}") from None
            if problem is not None:
                raise ProtocolError(f"entry {entry.index}: {problem}")


def problem_with_facts(facts: Iterable[Fact], end: Offset) -> str | None:
    """What makes facts of another node unusable: their bytes are fine, and what they say is impossible."""
    if not 0 <= end <= FACTS_MAX:
        return f"facts end at {end}"
    for fact in facts:
        problem = problem_with_fact(fact)
        if problem is not None:
            return f"{type(fact).__name__}: {problem}"
    return None


def decode_facts(payload: bytes | memoryview) -> Sequence[Fact]:
    """The facts, or CorruptionError."""
    facts: list[Fact] = []
    position = _END.size
    while position < len(payload):
        start = position + _LENGTH.size
        if start > len(payload):
            raise CorruptionError("facts end inside a length")
        position = start + _LENGTH.unpack_from(payload, start - _LENGTH.size)[0]
        if position > len(payload):
            raise CorruptionError("facts end inside a fact")
        facts.append(decode_fact(payload[start:position]))
    return facts
