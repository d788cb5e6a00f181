"""What the echo's client and server say to each other, and what the server writes down.

request   kind 1 | request id 16 | payload
answer    kind 2 | request id 16 | payload
entry     crc32 uint32 | length uint32 | request id 16 | payload      (length: of id and payload)
"""

import struct
import zlib
from typing import NamedTuple

from penstock.core.model import ProtocolError

REQUEST = 1
ANSWER = 2
ID_BYTES = 16

_ENTRY = struct.Struct(">II")


class Message(NamedTuple):
    """A request or an answer."""

    kind: int
    request_id: bytes
    payload: bytes


def write_message(kind: int, request_id: bytes, payload: bytes) -> bytes:
    return bytes((kind,)) + request_id + payload


def read_message(frame: bytes) -> Message:
    if len(frame) < 1 + ID_BYTES or frame[0] not in (REQUEST, ANSWER):
        raise ProtocolError("not an echo message")
    return Message(frame[0], frame[1 : 1 + ID_BYTES], frame[1 + ID_BYTES :])


class Entry(NamedTuple):
    """One request in the server's file."""

    request_id: bytes
    payload: bytes


def write_entry(entry: Entry) -> bytes:
    body = entry.request_id + entry.payload
    return _ENTRY.pack(zlib.crc32(body), len(body)) + body


def read_entries(content: bytes) -> tuple[list[Entry], int]:
    """Read entries up to the first that is torn; also answers where the good ones end."""
    entries: list[Entry] = []
    position = 0
    while position + _ENTRY.size <= len(content):
        crc, length = _ENTRY.unpack_from(content, position)
        start = position + _ENTRY.size
        body = content[start : start + length]
        if length < ID_BYTES or len(body) < length or zlib.crc32(body) != crc:
            break
        entries.append(Entry(body[:ID_BYTES], body[ID_BYTES:]))
        position = start + length
    return entries, position
