"""Responses that differ from the last one of their kind in a few numbers only.

Nearly every Produce, and every Fetch that finds nothing, is about one partition and succeeds. The
response to it is encoded once, with marks where three offsets stand side by side; later ones are
copies of that frame with the correlation id and the offsets of their own (`Request.reply_template`):

    size | correlation id | … topic … index | error 0 | offset | offset | offset | …
           └─ put in ─┘                               └────── put in ──────┘

Versions that have no third offset, and responses with an error or more partitions, are encoded.
"""

import struct
from collections.abc import Hashable
from typing import TypeAlias

from penstock.core.protocol.codec import Message
from penstock.core.protocol.frames import response_frame
from penstock.core.protocol.messages.registry import Api

# Offsets that no log has, so that their bytes stand nowhere else in a frame.
MARKS = (-0x5EED_0FF5_E701, -0x5EED_0FF5_E702, -0x5EED_0FF5_E703)
TEMPLATES_MAX = 10_000
_OFFSETS = struct.Struct(">qqq")
put_offsets = _OFFSETS.pack_into
put_correlation_id = struct.Struct(">i").pack_into
CORRELATION_ID_POSITION = 4
# A frame with marks, and where they stand.
Template: TypeAlias = tuple[bytes, int]


class ResponseTemplates:
    """The frames of one API, by whatever they differ in beside the offsets."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Template] = {}

    def add(self, key: Hashable, api: Api, version: int, marked: Message) -> Template:
        """Encode a response whose three offsets are `MARKS`."""
        frame = response_frame(api, version, 0, marked)
        template = bytes(frame), frame.index(_OFFSETS.pack(*MARKS))
        if len(self.by_key) >= TEMPLATES_MAX:
            self.by_key.clear()
        self.by_key[key] = template
        return template
