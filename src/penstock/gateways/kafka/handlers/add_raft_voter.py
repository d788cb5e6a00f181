"""AddRaftVoter: letting a node vote on the metadata."""

from penstock.core.model import NodeId, Refused, Why
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.gateways.kafka.answers.operations import CLUSTER
from penstock.gateways.kafka.answers.rows import told
from penstock.gateways.kafka.call import Call
from penstock.gateways.kafka.routes import routes
from penstock.runtime import Address
from penstock.security import AclOperation


@routes.handles(AddRaftVoterRequest)
def add_raft_voter(request: AddRaftVoterRequest, call: Call) -> None:
    """Answers when the node votes; without an address it must be known as a broker already."""
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _reply(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster")
        return
    refusal = wrong_cluster(request.cluster_id, call)
    if refusal is not None:
        _reply(call, *told(refusal))
        return
    address = next((Address(each.host, each.port) for each in request.listeners), None)
    call.backend.quorum.add_voter(
        NodeId(request.voter_id),
        request.voter_directory_id,
        address,
        lambda refusal: _reply(call, *told(refusal)),
    )


def wrong_cluster(cluster_id: str | None, call: Call) -> Refused | None:
    """Whether the caller means another cluster than this one."""
    ours = call.backend.node.cluster_id
    if cluster_id is None or cluster_id == ours:
        return None
    return Refused(Why.INCONSISTENT_CLUSTER, f"this is cluster {ours}, not {cluster_id}")


def _reply(call: Call, code: ErrorCode, message: str | None) -> None:
    call.reply(
        AddRaftVoterResponse(throttle_time_ms=call.charge_time(), error_code=code, error_message=message)
    )
