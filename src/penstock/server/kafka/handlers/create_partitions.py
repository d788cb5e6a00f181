"""CreatePartitions: adding partitions to topics."""

from collections.abc import Iterator, Mapping

from penstock.broker.topics import TIMED_OUT, NewPartitions
from penstock.core.metadata import CreatedPartitions
from penstock.core.model import ApiError, ErrorKind, NodeId
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
)
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import collected, repeated, topic_resource
from penstock.server.kafka.router import routes

NOT_ALLOWED = ApiError(ErrorKind.NOT_AUTHORIZED, "the caller may not alter this topic")
TWICE = ApiError(ErrorKind.INVALID_REQUEST, "the request names this topic more than once")


@routes.handles(CreatePartitionsRequest)
def create_partitions(request: CreatePartitionsRequest, call: Request) -> Iterator[None]:
    twice = yield from repeated(topic.name for topic in request.topics)
    # In the order of the request; what the controller decides is put in.
    outcomes: dict[str, CreatedPartitions | ApiError] = {}
    wanted: dict[str, NewPartitions] = {}
    for topic in request.topics:
        name = topic.name
        if name in twice:
            outcomes[name] = TWICE
        elif not call.authorize(AclOperation.ALTER, topic_resource(name)):
            outcomes[name] = NOT_ALLOWED
        else:
            outcomes[name] = TIMED_OUT
            wanted[name] = _more(topic)
        yield
    before = call.backend.controller.image.partition_count

    def done(replies: list[CreatedPartitions | ApiError]) -> None:
        outcomes.update(zip(wanted, replies, strict=True))
        grown = call.backend.controller.image.partition_count - before
        call.run(_answer(call, outcomes, max(grown, 0)))

    call.backend.topics.add_partitions(
        list(wanted.values()),
        done,
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
        account=call.connection.account,
    )


def _answer(
    call: Request, outcomes: Mapping[str, CreatedPartitions | ApiError], grown: int
) -> Iterator[None]:
    throttle_ms = call.charge(QuotaType.MUTATIONS, grown)
    rows = yield from collected(_row(name, outcome) for name, outcome in outcomes.items())
    call.reply(CreatePartitionsResponse(throttle_time_ms=throttle_ms, results=rows))


def _more(topic: CreatePartitionsRequestTopic) -> NewPartitions:
    assignments = topic.assignments
    if assignments is None:
        return NewPartitions(topic.name, topic.count)
    placed = tuple(tuple(NodeId(node_id) for node_id in each.broker_ids) for each in assignments)
    return NewPartitions(topic.name, topic.count, placed)


def _row(name: str, outcome: CreatedPartitions | ApiError) -> CreatePartitionsResponseTopic:
    if isinstance(outcome, ApiError):
        return CreatePartitionsResponseTopic(
            name=name, error_code=code_of(outcome), error_message=message_of(outcome)
        )
    return CreatePartitionsResponseTopic(name=name, error_code=ErrorCode.NONE)
