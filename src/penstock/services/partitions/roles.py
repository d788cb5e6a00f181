"""What this node is to each of its logs: leader, follower, or neither for now.

    leader is this node     ──► Partition, one for every leader epoch
    leader is another node  ──► Followed, likewise
    there is no leader      ──► nothing; the log is kept

Whoever used an old role finds it stopped, and looks for the leader anew.
"""

from penstock.core.metadata import NO_LEADER
from penstock.core.metadata import Partition as PartitionState
from penstock.core.model import NodeId, TopicId
from penstock.core.replica import CommittedPartitionState
from penstock.runtime import Runtime
from penstock.services.partitions.followed import Followed
from penstock.services.partitions.partition import Partition, Term
from penstock.services.partitions.replica import Replica
from penstock.services.partitions.settings import LogSettings
from penstock.services.partitions.upkeep import Mending


class Roles:
    """Gives roles, takes them back, and finds them."""

    def __init__(self, me: NodeId, runtime: Runtime, settings: LogSettings, mending: Mending) -> None:
        self._me = me
        self._runtime = runtime
        self._settings = settings
        self._mending = mending
        self.led: dict[tuple[str, int], Partition] = {}
        self.led_by_id: dict[tuple[TopicId, int], Partition] = {}
        self.followed: dict[tuple[TopicId, int], Followed] = {}

    def assign(self, replica: Replica, state: PartitionState) -> bool:
        """Let the node be to a log what the metadata says; answers whether that is something new."""
        role = replica.role
        if state.leader == self._me:
            assignment = CommittedPartitionState(
                state.replicas, state.isr, state.partition_epoch, self._minimum(replica)
            )
            if isinstance(role, Partition) and role.leader_epoch == state.leader_epoch:
                role.assignment_changed(assignment)
                return False
            self.take_back(replica, f"leader epoch {state.leader_epoch} began")
            term = Term(self._me, state.leader_epoch, assignment, self._settings.lag_max_ns())
            self._lead(replica, Partition(replica, term, self._runtime))
            return True
        if state.leader == NO_LEADER:
            self.take_back(replica, "nobody leads it")
            return role is not None
        if isinstance(role, Followed) and role.leader_epoch == state.leader_epoch:
            return False
        self.take_back(replica, f"broker {state.leader} leads in epoch {state.leader_epoch}")
        self._mending.mend(replica, state)
        followed = Followed(
            replica, state.leader, state.leader_epoch, self._runtime.clock, state.unclean_epoch
        )
        replica.role = followed
        self.followed[replica.topic_id, replica.name.partition] = followed
        return True

    def settings_changed(self, replica: Replica) -> None:
        """The topic may ask for more or fewer replicas in sync."""
        role = replica.role
        if isinstance(role, Partition):
            role.assignment_changed(role.insync.assignment._replace(minimum=self._minimum(replica)))

    def _minimum(self, replica: Replica) -> int:
        return self._settings.minimum_in_sync(replica.name.topic)

    def _lead(self, replica: Replica, partition: Partition) -> None:
        replica.role = partition
        self.led[replica.name.topic, replica.name.partition] = partition
        self.led_by_id[replica.topic_id, replica.name.partition] = partition

    def take_back(self, replica: Replica, reason: str) -> None:
        """The node is neither leader nor follower of this log any more."""
        topic, index = replica.name
        key = (replica.topic_id, index)
        if self.led_by_id.pop(key, None) is not None:
            del self.led[topic, index]
        self.followed.pop(key, None)
        replica.leave(reason)
