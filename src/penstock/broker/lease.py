"""The lease: until when a broker may answer clients from what it knows.

    B: heartbeat sent │◄─────────── the lease ───────────►│
                      s                                 s + session (a little less)
    controller:         │ arrives, a majority confirms that it leads    │ fences B, if B is silent
                        └──────────────── the session ─────────────────►│ elects other leaders

A broker that was stopped or cut off does not know what the others did meanwhile. The controller gives
its partitions to others only when its session has passed without a heartbeat, and every heartbeat's
session starts when it arrives, which is after it was sent. So within a session from the sending of the
last heartbeat that was answered, nobody else leads what this broker leads, and its answers are true.
After that it answers no reads, no groups and no acks=1: clients look for the leader again.

One integer, compared with a fresh reading of the clock for every request: after a stop of the process,
a request may be read from its socket before any timer has fired.

`broker.cluster.broker_lifecycle` renews it; docs/adr/0014-leases.md says why it is safe.

A leadership that is moved while its leader is live (preferred leaders, reassignments, a stop) begins with a
handover: the new leader acknowledges nothing before the former one knows, or is fenced, or a session has
passed (see `LeaderPartition`).
"""

from penstock.core.model import ApiError, ErrorKind, Instant

ENDED = Instant(-(2**63))
# The leader of a quorum that has no other voter: nobody could take anything away from it.
FOREVER = Instant(2**63 - 1)
NO_LEASE = ApiError(ErrorKind.NOT_LEADER, "this broker has lost contact with the controller")
NOT_COORDINATING = ApiError(ErrorKind.NOT_COORDINATOR, "this broker has lost contact with the controller")


class BrokerLease:
    """The lease holds while the node's clock shows less than `until`."""

    __slots__ = ("until",)

    def __init__(self, until: Instant = ENDED) -> None:
        self.until = until
