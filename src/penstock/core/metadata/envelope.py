"""Facts as bytes: one byte of format version, then the fact as a MessagePack row.

01 │ 93 ad "topic_created" a6 "orders" c4 10 <16 bytes of topic id>
└ format version 1
"""

import msgspec

from penstock.core.metadata.facts import Fact
from penstock.core.model import CorruptionError

FORMAT_VERSION = 1

_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")
_decoder: msgspec.msgpack.Decoder[Fact] = msgspec.msgpack.Decoder(Fact)
_VERSION = bytes((FORMAT_VERSION,))


def encode_fact(fact: Fact) -> bytes:
    return _VERSION + _encoder.encode(fact)


def decode_fact(content: bytes | bytearray | memoryview) -> Fact:
    """The fact in `content`; CorruptionError if it is none that this version knows.

    An unknown fact must not be skipped: the image would silently differ from everybody
    else's from there on.
    """
    view = memoryview(content)
    if len(view) == 0:
        raise CorruptionError("an empty entry is not a metadata fact")
    if view[0] != FORMAT_VERSION:
        raise CorruptionError(f"metadata fact has format version {view[0]}, this node reads {FORMAT_VERSION}")
    try:
        return _decoder.decode(view[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptionError(f"not a metadata fact that this node knows: {error}") from None
