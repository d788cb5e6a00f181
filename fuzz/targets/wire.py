"""Kafka messages: requests, responses, headers, frames, and what coordinators store."""

import functools
import random

from fuzz.harness import Target
from penstock.core.model import ProtocolError
from penstock.core.protocol import (
    APIS,
    Message,
    RequestHeader,
    api,
    decode_whole,
    decoder,
    read_request_header,
    read_request_header_v0,
    read_response_header,
    request_frame,
    response_frame,
)
from penstock.core.protocol.state_records import (
    OFFSETS_KEYS,
    ConsumerProtocolSubscription,
    GroupMetadataValue,
    TransactionLogValue,
    read_embedded,
    read_key,
    read_stored,
    write_stored,
)
from tests.property.protocol.samples import sample

KEYS = sorted(APIS)
FRAME_BYTES_MAX = 1 << 16
VALUES: dict[bytes, type[Message]] = {
    b"G": GroupMetadataValue,
    b"T": TransactionLogValue,
    b"C": ConsumerProtocolSubscription,
}
CLIENTS = (None, "", "client-1", "é")


@functools.cache
def generate_everything() -> None:
    """Generate every decoder now, because the generator's memory is not the parser's."""
    for found in APIS.values():
        for version in found.versions:
            decoder(found.request, version)
            decoder(found.response, version)
    for message in (*OFFSETS_KEYS.values(), *VALUES.values()):
        for version in message.__schema__.versions:
            decoder(message, version)


def one_request(rng: random.Random) -> bytes:
    generate_everything()
    found = api(rng.choice(KEYS))
    version = rng.choice(found.versions)
    header = RequestHeader(found.key, version, rng.getrandbits(31), rng.choice(CLIENTS))
    return bytes(request_frame(found, header, sample(rng, found.request, version)))[4:]


def read_request(frame: bytes) -> Message:
    header, position = read_request_header(frame)
    found = api(header.api_key)
    if header.api_version not in found.versions:
        raise ProtocolError("no such version")
    return decode_whole(found.request, frame, header.api_version, position)


def one_response(rng: random.Random) -> bytes:
    """A response does not say what it answers, so its key and version go in front."""
    generate_everything()
    found = api(rng.choice(KEYS))
    version = rng.choice(found.versions)
    frame = response_frame(found, version, rng.getrandbits(31), sample(rng, found.response, version))
    return found.key.to_bytes(2, "big") + version.to_bytes(1, "big") + bytes(frame)[4:]


def read_response(data: bytes) -> Message:
    if len(data) < 3:
        raise ProtocolError("too short")
    found, version = api(int.from_bytes(data[:2], "big")), data[2]
    if version not in found.versions:
        raise ProtocolError("no such version")
    frame = memoryview(data)[3:]
    _, position = read_response_header(found, version, frame)
    return decode_whole(found.response, frame, version, position)


def read_headers(frame: bytes) -> object:
    read_request_header_v0(frame)
    return read_request_header(frame)


def one_key(rng: random.Random) -> bytes:
    generate_everything()
    version = rng.choice(list(OFFSETS_KEYS))
    return write_stored(sample(rng, OFFSETS_KEYS[version], version), version)


def one_value(rng: random.Random) -> bytes:
    generate_everything()
    kind = rng.choice(list(VALUES))
    version = rng.choice(VALUES[kind].__schema__.versions)
    return kind + write_stored(sample(rng, VALUES[kind], version), version)


def read_value(data: bytes) -> Message:
    message = VALUES.get(data[:1])
    if message is None:
        raise ProtocolError("no such kind")
    read = read_embedded if message is ConsumerProtocolSubscription else read_stored
    return read(message, memoryview(data)[1:])


TARGETS = (
    Target("wire-request", one_request, read_request, (ProtocolError,)),
    Target("wire-response", one_response, read_response, (ProtocolError,)),
    Target("wire-header", one_request, read_headers, (ProtocolError,)),
    Target("wire-stored-key", one_key, functools.partial(read_key, OFFSETS_KEYS), (ProtocolError,)),
    Target("wire-stored-value", one_value, read_value, (ProtocolError,)),
)
