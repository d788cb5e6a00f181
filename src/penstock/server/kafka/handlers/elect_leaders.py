"""ElectLeaders: elects preferred leaders, or any live replica where there is no leader."""

from penstock.core.metadata import NO_LEADER, AlteredPartition, ElectionType, ElectLeader, MetadataImage
from penstock.core.model import ApiError, PartitionIndex
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)
from penstock.security import AclOperation
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import CLUSTER, by_topic, error_fields, shared_code
from penstock.server.kafka.router import routes

# Before this version only the rows have error codes, not the response.
CODE_SINCE = 1


@routes.handles(ElectLeadersRequest)
def elect_leaders(request: ElectLeadersRequest, call: Request) -> None:
    named = _named(request)
    if not call.authorize(AclOperation.ALTER, CLUSTER):
        _refuse(call, named, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the caller may not alter the cluster")
        return
    if request.election_type not in (ElectionType.PREFERRED, ElectionType.UNCLEAN):
        _refuse(call, named, ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}")
        return
    election = ElectionType(request.election_type)
    if request.topic_partitions is None:
        named = _wanting(call.backend.controller.image, election)
    wanted = [ElectLeader(topic, PartitionIndex(index), election) for topic, index in named]

    def done(outcomes: list[AlteredPartition | ApiError]) -> None:
        code, _ = shared_code(outcomes)
        rows = [
            (name, _row(index, *error_fields(one)))
            for (name, index), one in zip(named, outcomes, strict=True)
        ]
        call.reply(_response(call, code if call.version >= CODE_SINCE else ErrorCode.NONE, rows))

    call.backend.topics.elect(wanted, done, timeout_ms=request.timeout_ms)


def _named(request: ElectLeadersRequest) -> list[tuple[str, int]]:
    return [(topic.topic, index) for topic in request.topic_partitions or () for index in topic.partitions]


def _wanting(image: MetadataImage, election: ElectionType) -> list[tuple[str, int]]:
    """Every partition that such an election could change; the others are left out."""
    return [
        (topic.name, partition.index)
        for topic in image.each_topic()
        for partition in topic.partitions
        if (
            partition.leader == NO_LEADER
            if election is ElectionType.UNCLEAN
            else partition.leader != partition.replicas[0]
        )
    ]


def _row(index: int, code: ErrorCode, message: str | None) -> ElectLeadersResponsePartition:
    return ElectLeadersResponsePartition(partition_id=index, error_code=code, error_message=message)


def _refuse(call: Request, named: list[tuple[str, int]], code: ErrorCode, message: str) -> None:
    rows = [(name, _row(index, code, message)) for name, index in named]
    call.reply(_response(call, code if call.version >= CODE_SINCE else ErrorCode.NONE, rows))


def _response(
    call: Request, code: ErrorCode, rows: list[tuple[str, ElectLeadersResponsePartition]]
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time_ms=call.charge_time(),
        error_code=code,
        replica_election_results=tuple(
            ElectLeadersResponseTopic(topic=name, partition_result=parts) for name, parts in by_topic(rows)
        ),
    )
