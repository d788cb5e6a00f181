"""ElectLeaders: elects preferred leaders, or any live replica where there is no leader."""

from collections.abc import Iterable, Iterator

from penstock.core.metadata import NO_LEADER, AlteredPartition, ElectionType, ElectLeader, MetadataImage
from penstock.core.model import ApiError, PartitionIndex
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    CLUSTER,
    by_topic_in_steps,
    collected,
    error_fields,
    shared_code,
    unique,
)
from penstock.server.kafka.router import routes

# Before this version only the rows have error codes, not the response.
CODE_SINCE = 1


@routes.handles(ElectLeadersRequest)
def elect_leaders(request: ElectLeadersRequest, call: Request) -> Iterator[None]:
    # Each once, however often it is named: every election is a command to the controller.
    named = yield from unique(
        (topic.topic, index) for topic in request.topic_partitions or () for index in topic.partitions
    )
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        code, message = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster"
        yield from _answer(call, code, ((name, _row(index, code, message)) for name, index in named))
        return
    if request.election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        code, message = ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}"
        yield from _answer(call, code, ((name, _row(index, code, message)) for name, index in named))
        return
    election = ElectionType(request.election_type)
    if request.topic_partitions is None:
        named = yield from _wanting(call.backend.controller.image, election)
    wanted = yield from collected(
        ElectLeader(topic, PartitionIndex(index), election) for topic, index in named
    )

    def done(outcomes: list[AlteredPartition | ApiError]) -> None:
        code, _ = shared_code(outcomes)
        rows = (
            (name, _row(index, *error_fields(one)))
            for (name, index), one in zip(named, outcomes, strict=True)
        )
        call.run(_answer(call, code, rows))

    call.backend.topics.elect(wanted, done, timeout_ms=request.timeout_ms, account=call.connection.account)


def _wanting(image: MetadataImage, election: ElectionType) -> Steps[dict[tuple[str, int], None]]:
    """Every partition that such an election could change; the others are left out."""
    found: dict[tuple[str, int], None] = {}
    for topic in image.each_topic():
        for partition in topic.partitions:
            if (
                partition.leader == NO_LEADER
                if election is ElectionType.UNCLEAN
                else partition.leader != partition.replicas[0]
            ):
                found[topic.name, partition.index] = None
        yield
    return found


def _row(index: int, code: ErrorCode, message: str | None) -> ElectLeadersResponsePartition:
    return ElectLeadersResponsePartition(partition_id=index, error_code=code, error_message=message)


def _answer(
    call: Request, code: ErrorCode, rows: Iterable[tuple[str, ElectLeadersResponsePartition]]
) -> Iterator[None]:
    found = yield from by_topic_in_steps(rows)
    topics = yield from collected(
        ElectLeadersResponseTopic(topic=name, partition_result=parts) for name, parts in found
    )
    call.reply(
        ElectLeadersResponse(
            throttle_time_ms=call.charge_time(),
            error_code=code if call.version >= CODE_SINCE else ErrorCode.NONE,
            replica_election_results=topics,
        )
    )
