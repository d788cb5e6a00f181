"""What a member of a cluster is built from."""

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.core.metadata import ControllerConfig
from penstock.core.raft import Raft, RaftOptions
from penstock.runtime import Address
from penstock.services.cluster.control.messages import Voter
from penstock.services.cluster.membership import Registration
from penstock.services.cluster.quorum import QuorumOptions
from penstock.services.cluster.sessions import SessionOptions


def _as_bound(address: Address) -> Address:
    return address


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Who the node is in its cluster.

    It listens for peers on `listen`, if anywhere, and tells them `advertised` of the address
    that it got. `voters` are read when the data directory is blank, and tell addresses later.
    """

    registration: Registration
    listen: Address | None = None
    voters: tuple[Voter, ...] = ()
    is_broker: bool = True
    is_controller: bool = True
    advertised: Callable[[Address], Address] = _as_bound
    around: ControllerConfig = field(default_factory=ControllerConfig)
    quorum: QuorumOptions = field(default_factory=QuorumOptions)
    sessions: SessionOptions = field(default_factory=SessionOptions)
    raft: RaftOptions = field(default_factory=RaftOptions)
    raft_type: type[Raft] = Raft
