"""How the bytes of a segment are to be understood."""

import enum
from dataclasses import dataclass


class Tier(enum.Enum):
    """Where a segment's bytes are."""

    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class SegmentDescriptor:
    """Format, key and place of one segment. Only plain local segments exist so far."""

    format_version: int = 2  # Kafka's magic: what stands on disk is what goes over the wire
    key_id: str | None = None
    tier: Tier = Tier.LOCAL


PLAIN = SegmentDescriptor()
