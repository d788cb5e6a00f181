"""The Kafka protocol as values: messages in all their versions, to bytes and back.

    kafka/       the table: one file per API, request and response, every version in one class
    stored/      messages inside records: the coordinators' own topics, in Kafka's formats
    types        the words of the table (`Int32`, `String`, `Array[...]`)
    schema       what is known of a field beside its type: versions, default, tag
    message      how a written class becomes a frozen one with a schema
    decoding     writes the source of a decoder for one (message, version); `encoding` likewise
    codec        generates, compiles and keeps them when first asked
    headers      what stands before a message; whole frames

The code for a version is generated on first use (about half a millisecond), as one flat function: parts
and arrays inlined, runs of fixed-width fields and the length after them in one `struct`
call. Produce requests are read without copying their records, and Fetch responses are
written around theirs (`response_pieces`), so that a broker can send them from a file. A
flat generated function beat hand-written ones that keep to our limits on function size (1.7
against 2.4 µs for a Produce request), so there are no hand-written codecs.

Bytes from the network are hostile until read. Every count and length is compared with the
bytes that are left before anything is made of it; nothing but `ProtocolError` leaves a
decoder; nesting is as deep as the table and no deeper; a message that does not end where
its frame ends is refused. Tagged fields of versions newer than ours are checked and dropped.

A message that says something its version has no words for is refused when it is encoded,
unless the table calls the field ignorable.

Left out: record batches (`core.records`), Kafka's requests between brokers and controllers
(Penstock has its own), and judging what a message says: that is for handlers.
"""

from penstock.core.protocol.codec import Message, decode_whole, decoder, encoder, gap_encoder, message, part
from penstock.core.protocol.error_codes import ErrorCode
from penstock.core.protocol.frames import (
    RequestHeader,
    read_request_header,
    read_request_header_v0,
    read_response_header,
    request_frame,
    response_frame,
    response_pieces,
)
from penstock.core.protocol.messages import APIS, Api, api, name_of
from penstock.core.protocol.primitives import Buffer
from penstock.core.protocol.schema import ZERO_UUID, ExternalRecords, Part, Piece, since, tagged, until

__all__ = [
    "APIS",
    "Api",
    "api",
    "name_of",
    "ErrorCode",
    "Message",
    "Part",
    "message",
    "part",
    "since",
    "until",
    "tagged",
    "encoder",
    "gap_encoder",
    "decoder",
    "decode_whole",
    "Buffer",
    "ExternalRecords",
    "Piece",
    "ZERO_UUID",
    "RequestHeader",
    "read_request_header",
    "read_request_header_v0",
    "read_response_header",
    "request_frame",
    "response_frame",
    "response_pieces",
]
