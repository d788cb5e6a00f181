"""The topics in a consumer's subscription: the one part of member metadata the broker reads.

    version int16 | topic count int32 | (length int16, UTF-8 bytes)* | user data, later fields …

Members may send anything as metadata, so everything is checked against the bytes that
remain, and what cannot be read is None: "nobody knows what this member subscribes to".
"""

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topic names in the order of the member, or None if these are not a subscription's bytes."""
    if len(metadata) < _HEAD.size:
        return None
    version, count = _HEAD.unpack_from(metadata)
    # A name takes two bytes at least, so a hostile count is refused before anything is built.
    if version < 0 or not 0 <= count <= (len(metadata) - _HEAD.size) // _LENGTH.size:
        return None
    topics: list[str] = []
    position, end = _HEAD.size, len(metadata)
    for _ in range(count):
        start = position + _LENGTH.size
        if start > end:
            return None
        (length,) = _LENGTH.unpack_from(metadata, position)
        position = start + length
        if length < 0 or position > end:
            return None
        try:
            topics.append(metadata[start:position].decode())
        except UnicodeDecodeError:
            return None
    return tuple(topics)
