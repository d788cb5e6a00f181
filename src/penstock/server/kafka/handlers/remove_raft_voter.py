"""RemoveRaftVoter: removes a voter of the metadata quorum."""

from penstock.core.model import NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from penstock.security import AclOperation
from penstock.server.kafka.handlers.add_raft_voter import wrong_cluster
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, error_fields
from penstock.server.kafka.router import routes


@routes.handles(RemoveRaftVoterRequest)
def remove_raft_voter(request: RemoveRaftVoterRequest, call: Request) -> None:
    """Reply when the change is committed; a broker stays a learner."""
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _reply(call, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster")
        return
    refusal = wrong_cluster(request.cluster_id, call)
    if refusal is not None:
        _reply(call, *error_fields(refusal))
        return
    call.backend.quorum.remove_voter(
        NodeId(request.voter_id),
        request.voter_directory_id,
        lambda refusal: _reply(call, *error_fields(refusal)),
    )


def _reply(call: Request, code: ErrorCode, message: str | None) -> None:
    call.reply(
        RemoveRaftVoterResponse(throttle_time_ms=call.charge_time(), error_code=code, error_message=message)
    )
