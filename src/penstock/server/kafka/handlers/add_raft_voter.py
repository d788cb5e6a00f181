"""AddRaftVoter: makes a node a voter of the metadata quorum."""

from penstock.core.model import ApiError, ErrorKind, NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.runtime import Address
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes


@routes.handles(AddRaftVoterRequest)
def add_raft_voter(request: AddRaftVoterRequest, call: Request) -> None:
    """Reply when the node is a voter; without an address it must be a registered broker."""
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _reply(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster")
        return
    refusal = wrong_cluster(request.cluster_id, call)
    if refusal is not None:
        _reply(call, *error_fields(refusal))
        return
    address = next((Address(each.host, each.port) for each in request.listeners), None)
    call.backend.quorum.add_voter(
        NodeId(request.voter_id),
        request.voter_directory_id,
        address,
        lambda refusal: _reply(call, *error_fields(refusal)),
    )


def wrong_cluster(cluster_id: str | None, call: Request) -> ApiError | None:
    """The error if the caller names another cluster than this one."""
    ours = call.backend.node.cluster_id
    if cluster_id is None or cluster_id == ours:
        return None
    return ApiError(ErrorKind.INCONSISTENT_CLUSTER, f"this is cluster {ours}, not {cluster_id}")


def _reply(call: Request, code: ErrorCode, message: str | None) -> None:
    call.reply(
        AddRaftVoterResponse(throttle_time_ms=call.charge_time(), error_code=code, error_message=message)
    )
