"""When records reach the device: what the node does, and what the topic adds."""

import enum
from typing import NamedTuple

NEVER = 2**63 - 1


class Fsync(enum.Enum):
    """What an acknowledgement promises."""

    EVERY = "every"
    INTERVAL = "interval"
    NONE = "none"


class SyncPolicy(NamedTuple):
    """When a partition's records reach the device: what the node does, and what the topic adds.

    A topic with `flush.messages` 1 waits for every sync, whatever the node's mode; a larger
    number, or `flush.ms`, starts syncs that nobody waits for.
    """

    mode: Fsync
    flush_messages: int = NEVER
    flush_ms: int = NEVER

    @property
    def before_acknowledging(self) -> bool:
        return self.mode is Fsync.EVERY or self.flush_messages <= 1
