"""A client that takes nodes out of the metadata quorum and puts them back."""

from uuid import UUID

from penstock.core.metadata.topic_names import METADATA_TOPIC
from penstock.core.model import SECOND
from penstock.core.protocol import ErrorCode, Message
from penstock.core.protocol.messages.add_raft_voter import AddRaftVoterRequest
from penstock.core.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
)
from penstock.core.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.sim.cluster.clients.client import ClusterNodes, PacedClient, VersionPolicy, is_retriable
from penstock.sim.cluster.options import name_of

TIMEOUT_MS = 3_000
PATIENCE_NS = 3 * SECOND
# Between two changes, in steps of a producer.
STEPS = 15
# With fewer, one damaged voter and one that is down would be a majority.
VOTERS_MIN = 3
# It is so already, or is another directory by now.
REFUSALS = (ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)


class VoterAdmin(PacedClient):
    """Asks any node who votes, and then for one change; directory ids need the newest protocol."""

    def __init__(self, nodes: ClusterNodes, host: str, pace_ms: float) -> None:
        super().__init__(nodes, host, STEPS * pace_ms, VersionPolicy.NEWEST)

    def _act(self) -> None:
        partition = DescribeQuorumRequestPartition(partition_index=0)
        topic = DescribeQuorumRequestTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
        request = DescribeQuorumRequest(topics=(topic,))
        known = self.journal.voters.asking()

        def described(reply: object) -> None:
            row = _row(reply) if isinstance(reply, DescribeQuorumResponse) else None
            if row is None:
                self._rest()
                return
            voters = {voter.replica_id: voter.replica_directory_id for voter in row.current_voters}
            # On another disk a node is another voter, and the one that it was goes.
            damages = self.nodes.world.damages
            kept = tuple(one for one in known if name_of(one.change.node) not in damages)
            self.journal.voters.described(kept, row.leader_epoch, voters)
            self._change(voters, {one.replica_id: one.replica_directory_id for one in row.observers})

        self.ask(self.any_node(), request, self.versions.of(DescribeQuorumRequest), described)

    def _change(self, voters: dict[int, UUID], observers: dict[int, UUID]) -> None:
        """Put back who was taken out, or take somebody out."""
        choice = dict(observers)
        if len(voters) > VOTERS_MIN:
            choice |= voters
        if not choice:
            self._rest()
            return
        node_id = self.luck.choice(list(choice))
        directory_id, is_addition = choice[node_id], node_id in observers
        request: Message
        if is_addition:
            request = AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=TIMEOUT_MS,
                voter_id=node_id,
                voter_directory_id=directory_id,
                listeners=(),
            )
        else:
            request = RemoveRaftVoterRequest(
                cluster_id=None, voter_id=node_id, voter_directory_id=directory_id
            )
        change = self.journal.voters.changing(node_id, directory_id, is_voter=is_addition)

        def answered(reply: object) -> None:
            code = getattr(reply, "error_code", None)
            if code == ErrorCode.NONE:
                self.journal.voters.done(change, self.nodes.newest_term())
            elif code in REFUSALS:
                self.journal.voters.refused(change)
            elif code is not None and not is_retriable(code):
                self.journal.failures.append(
                    f"unexpected error: {self.host} got {code} from {type(request).__name__}"
                )
            self._rest()

        version = self.versions.of(type(request))
        self.ask(self.any_node(), request, version, answered, patience_ns=PATIENCE_NS)


def _row(response: DescribeQuorumResponse) -> DescribeQuorumResponsePartition | None:
    rows = [row for topic in response.topics for row in topic.partitions]
    return rows[0] if rows and not response.error_code and not rows[0].error_code else None
