"""The Kafka protocol as values: messages in all their versions, to bytes and back.

    messages/       the table: one file per API, request and response, every version in one class
    state_records   messages inside records: the coordinators' own topics, in Kafka's formats
    schema          the types of the table (`Int32`, `String`, `Array[...]`), and versions, default and
                    tag of a field
    generator       writes the source of an encoder or decoder for one (message, version)
    primitives      what generated code calls where inlining does not pay
    codec           makes a written class a message; generates, compiles and keeps its codecs
    frames          request and response headers; whole frames
    error_codes     Kafka's error codes

The code for a version is generated on first use (about half a millisecond), as one flat function: parts
and arrays inlined, runs of fixed-width fields and the length after them in one `struct`
call. Produce requests are read without copying their records, and Fetch responses are
written around theirs (`response_pieces`), so that a broker can send them from a file. A
flat generated function beat readable hand-written ones (1.7 against 2.4 µs for a Produce
request), so there are no hand-written codecs.

Bytes from the network are hostile until read. Every count and length is compared with the
bytes that are left before anything is made of it; nothing but `ProtocolError` leaves a
decoder; nesting is as deep as the table and no deeper; a message that does not end where
its frame ends is an error. Tagged fields of versions newer than ours are checked and dropped.

Large messages are read and written in steps (`decoder_in_steps`, `response_frame_in_steps`):
generators that yield every few rows, with a bound on the rows of a request.

A field that is set, but does not exist in the version, is an error when the message is encoded,
unless the table calls the field ignorable.

Left out: record batches (`core.records`), Kafka's requests between brokers and controllers
(Penstock has its own), and checking what a message asks for: that is for handlers.
"""

from penstock.core.protocol.codec import (
    Message,
    Steps,
    decode_whole,
    decoder,
    decoder_in_steps,
    encoder,
    exceeds_entries,
    gap_encoder,
    message,
    part,
)
from penstock.core.protocol.error_codes import ErrorCode
from penstock.core.protocol.frames import (
    RequestHeader,
    read_request_header,
    read_request_header_v0,
    read_response_header,
    request_frame,
    response_frame,
    response_frame_in_steps,
    response_pieces,
    response_pieces_in_steps,
)
from penstock.core.protocol.messages import APIS, Api, api, name_of
from penstock.core.protocol.primitives import Buffer, TooManyEntries
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
    "decoder_in_steps",
    "exceeds_entries",
    "Steps",
    "TooManyEntries",
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
    "response_frame_in_steps",
    "response_pieces",
    "response_pieces_in_steps",
]
