"""One member of a classic group, as the coordinator remembers it between requests."""

from dataclasses import dataclass

from penstock.core.groups.commands import MemberProtocol
from penstock.core.groups.replies import DescribedMember
from penstock.core.model import Instant


@dataclass(slots=True)
class Member:
    """Volatile, but for what `storing.stored` takes from it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    assignment: bytes = b""
    # Has not been told its id (or its first generation) yet, so it cannot send heartbeats.
    is_new: bool = False
    # None while a parked JoinGroup or SyncGroup stands for the heartbeats.
    session_deadline: Instant | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata_for(protocol),
            self.assignment,
        )
