"""ShareAcknowledge: a share consumer accepts, releases, rejects or renews what it has leased (KIP-932)."""

from collections.abc import Iterator
from functools import partial
from uuid import UUID

from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeResponseLeader,
    ShareAcknowledgeResponsePartition,
    ShareAcknowledgeResponseTopic,
)
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected
from penstock.server.kafka.router import routes
from penstock.server.kafka.share_acknowledgements import (
    SharePartition,
    batches_of,
    release_all,
    settle_all,
)
from penstock.server.kafka.share_rights import share_problem
from penstock.server.kafka.share_sessions import FINAL_EPOCH, FIRST_EPOCH, ShareSession

NO_LEADER = ShareAcknowledgeResponseLeader(leader_id=-1, leader_epoch=-1)


@routes.handles(ShareAcknowledgeRequest)
def share_acknowledge(request: ShareAcknowledgeRequest, call: Request) -> Iterator[None]:
    member = (request.group_id or "", request.member_id or "")
    problem = share_problem(call, member)
    if problem is None and request.share_session_epoch == FIRST_EPOCH:
        problem = ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session begins with ShareFetch"
    session: ShareSession | ErrorCode = ErrorCode.NONE
    if problem is None:
        session = call.connection.share_sessions.take(member, request.share_session_epoch)
    if isinstance(session, ErrorCode):
        code, message = problem or (session, None)
        yield from _reply(request, call, code, message, {})
        return
    batches = yield from batches_of(request.topics)
    is_final = request.share_session_epoch == FINAL_EPOCH
    ended = session if is_final else ShareSession()

    def settled(codes: dict[SharePartition, ErrorCode]) -> None:
        call.run(release_all(call, member, ended, partial(released, codes)))

    def released(codes: dict[SharePartition, ErrorCode]) -> None:
        call.run(_reply(request, call, ErrorCode.NONE, None, codes))

    yield from settle_all(call, member, batches, settled)


def _reply(
    request: ShareAcknowledgeRequest,
    call: Request,
    code: ErrorCode,
    message: str | None,
    codes: dict[SharePartition, ErrorCode],
) -> Iterator[None]:
    topics: dict[UUID, list[ShareAcknowledgeResponsePartition]] = {}
    for (topic_id, index), settled in codes.items():
        row = ShareAcknowledgeResponsePartition(
            partition_index=index, error_code=settled, current_leader=NO_LEADER
        )
        topics.setdefault(topic_id, []).append(row)
        yield
    responses = yield from collected(
        ShareAcknowledgeResponseTopic(topic_id=topic_id, partitions=tuple(rows))
        for topic_id, rows in topics.items()
    )
    call.reply(
        ShareAcknowledgeResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code,
            error_message=message,
            acquisition_lock_timeout_ms=call.backend.queues.lease_ms(request.group_id or ""),
            responses=responses,
            node_endpoints=(),
        )
    )
