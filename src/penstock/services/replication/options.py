"""How replication is set up."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.metadata import Command, Reply

# A way to the controller, wherever it is.
Submit: TypeAlias = Callable[[Command, Callable[[Reply], None]], None]


@dataclass(frozen=True, slots=True)
class ReplicationOptions:
    """How followers and leaders deal with each other."""

    # How long a leader keeps a fetch that finds no news.
    fetch_wait_ms: int = 500
    # How much longer a follower waits before it begins anew.
    answer_timeout_ms: int = 2_000
    partition_bytes_max: int = 1024 * 1024
    answer_bytes_max: int = 4 * 1024 * 1024
    # How long a follower leaves a partition alone that could not be read or written.
    trouble_ms: int = 1_000
    proposal_retry_ms: int = 250
