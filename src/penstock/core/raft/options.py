"""Durations and limits."""

from dataclasses import dataclass

from penstock.core.model import MILLISECOND


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """The same on every member, as far as it concerns time.

    A follower campaigns after `election_ms` to twice as much silence, refuses to depose a
    leader it heard within `election_ms`, and a leader that missed a majority for that long
    steps down.
    """

    election_ms: int = 600
    heartbeat_ms: int = 100
    # One entry may be larger than a message: it then travels alone.
    append_bytes_max: int = 256 << 10
    appends_in_flight_max: int = 16
    payload_bytes_max: int = 32 << 20
    uncommitted_bytes_max: int = 64 << 20
    reads_waiting_max: int = 10_000
    chunk_bytes: int = 256 << 10
    # How far behind the commit a learner may be when it gets its vote.
    promotion_lag_max: int = 100

    @property
    def election_ns(self) -> int:
        return self.election_ms * MILLISECOND

    @property
    def heartbeat_ns(self) -> int:
        return self.heartbeat_ms * MILLISECOND
