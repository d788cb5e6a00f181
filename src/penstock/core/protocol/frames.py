"""Request and response headers, and whole frames.

    request     size int32 | api key int16 | version int16 | correlation id int32 | client id | [tags]
    response    size int32 | correlation id int32 | [tags]

Tags are there when the message is flexible, with one exception: the response to ApiVersions
never has them, since the client cannot know yet which versions the broker supports. The client
id keeps its old form (two bytes of length) even in flexible requests. Request header version
0, without a client id, belonged to ControlledShutdown alone and is not written any more; it can
be read.
"""

import struct
from typing import Final, NamedTuple

from penstock.core.model import Fault, ProtocolError
from penstock.core.protocol.codec import (
    ENCODERS,
    GAP_ENCODERS,
    Message,
    Steps,
    encoder,
    encoder_in_steps,
    gap_encoder,
    gap_encoder_in_steps,
)
from penstock.core.protocol.messages.registry import APIS, Api
from penstock.core.protocol.primitives import (
    Buffer,
    past_the_end,
    skip_counted_tags,
    skip_tags,
    unexpected_null,
)
from penstock.core.protocol.schema import Piece

_SIZE: Final = struct.Struct(">i")
_REQUEST: Final = struct.Struct(">hhih")
_REQUEST_V0: Final = struct.Struct(">hhi")
_RESPONSE: Final = struct.Struct(">ii")
_SIZE_MAX: Final = 2**31 - 1
API_VERSIONS_KEY: Final = 18
# Kafka has defined none for requests so far. Skipping a frame full of them would take long.
HEADER_TAGS_MAX: Final = 100


class RequestHeader(NamedTuple):
    """Which API and version, from which client, under which correlation id."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a request frame (without its size): the header, and where the message starts.

    The version is not checked here: a request of an unknown one still gets a response.
    """
    try:
        key, version, correlation_id, client_bytes = _REQUEST.unpack_from(frame)
        position = 10
        client_id = None
        if client_bytes >= 0:
            position += client_bytes
            if position > len(frame):
                raise past_the_end("client id", client_bytes)
            client_id = str(frame[10:position], "utf-8")
        elif client_bytes != -1:
            raise unexpected_null("client id", client_bytes)
        api = APIS.get(key)
        if api is not None and version >= api.flexible_from:
            if frame[position]:
                position, _ = skip_counted_tags(frame, position, len(frame), HEADER_TAGS_MAX)
            else:
                position += 1
    except (struct.error, IndexError, UnicodeDecodeError) as cause:
        raise ProtocolError(f"request header: {cause}") from None
    # Not by its constructor, which is a Python call: this runs for every request.
    return tuple.__new__(RequestHeader, (key, version, correlation_id, client_id)), position


def read_request_header_v0(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the oldest form of a request header, which names no client."""
    try:
        key, version, correlation_id = _REQUEST_V0.unpack_from(frame)
    except struct.error as cause:
        raise ProtocolError(f"request header: {cause}") from None
    return RequestHeader(key, version, correlation_id, None), _REQUEST_V0.size


def read_response_header(api: Api, version: int, frame: Buffer) -> tuple[int, int]:
    """Read the header of a response frame: the correlation id, and where the message starts."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
        position = 4
        if has_response_tags(api, version):
            position = skip_tags(frame, position, len(frame))
    except (struct.error, IndexError) as cause:
        raise ProtocolError(f"response header: {cause}") from None
    return correlation_id, position


def has_response_tags(api: Api, version: int) -> bool:
    return version >= api.flexible_from and api.key != API_VERSIONS_KEY


def request_frame(api: Api, header: RequestHeader, message: Message) -> bytearray:
    """Return a whole request, size included, ready to be sent."""
    client = b"" if header.client_id is None else header.client_id.encode()
    client_bytes = -1 if header.client_id is None else len(client)
    frame = bytearray(_SIZE.size)
    frame += _REQUEST.pack(api.key, header.api_version, header.correlation_id, client_bytes)
    frame += client
    if header.api_version >= api.flexible_from:
        frame.append(0)
    encoder(type(message), header.api_version)(message, frame)
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    return frame


def response_frame(api: Api, version: int, correlation_id: int, message: Message) -> bytearray:
    """Return a whole response, size included, ready to be sent."""
    frame = bytearray(_RESPONSE.pack(0, correlation_id))
    if version >= api.flexible_from and api.key != API_VERSIONS_KEY:
        frame.append(0)
    kind = type(message)
    (ENCODERS.get((kind, version)) or encoder(kind, version))(message, frame)
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    return frame


def response_frame_in_steps(
    api: Api, version: int, correlation_id: int, message: Message
) -> Steps[bytearray]:
    """Likewise for a large response, in steps."""
    frame = bytearray(_RESPONSE.pack(0, correlation_id))
    if has_response_tags(api, version):
        frame.append(0)
    yield from encoder_in_steps(type(message), version)(message, frame)
    _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    return frame


def response_pieces_in_steps(
    api: Api, version: int, correlation_id: int, message: Message
) -> Steps[list[Piece]]:
    """Return a large response as `response_pieces` does, in steps."""
    start = bytearray(_RESPONSE.pack(0, correlation_id))
    if has_response_tags(api, version):
        start.append(0)
    pieces = yield from gap_encoder_in_steps(type(message), version)(message, start)
    size = sum(map(len, pieces)) - _SIZE.size
    if size > _SIZE_MAX:
        raise ProtocolError(f"a response of {size} bytes cannot be sent", Fault.OURS)
    _SIZE.pack_into(start, 0, size)
    return pieces


def response_pieces(api: Api, version: int, correlation_id: int, message: Message) -> list[Piece]:
    """Return a whole response as small buffers with the records, untouched, between them."""
    start = bytearray(_RESPONSE.pack(0, correlation_id))
    if version >= api.flexible_from and api.key != API_VERSIONS_KEY:
        start.append(0)
    kind = type(message)
    pieces = (GAP_ENCODERS.get((kind, version)) or gap_encoder(kind, version))(message, start)
    size = sum(map(len, pieces)) - _SIZE.size
    if size > _SIZE_MAX:
        raise ProtocolError(f"a response of {size} bytes cannot be sent", Fault.OURS)
    _SIZE.pack_into(start, 0, size)
    return pieces
