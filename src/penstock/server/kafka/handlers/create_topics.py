"""CreateTopics: creates topics."""

from collections.abc import Iterable, Iterator, Mapping

from penstock.broker.topics import NewTopic
from penstock.core.metadata import CreatedTopic, ReplicaAssignment
from penstock.core.model import ApiError, ErrorKind, NodeId, PartitionIndex
from penstock.core.protocol import ErrorCode, Steps
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)
from penstock.security import AclOperation, QuotaType
from penstock.server.kafka.config_resources import oversized
from penstock.server.kafka.errors import code_of, message_of
from penstock.server.kafka.request import Request
from penstock.server.kafka.response_rows import (
    KEYS_PER_STEP,
    collected,
    may_create,
    repeated,
    topic_resource,
)
from penstock.server.kafka.router import routes

CONFIGS_SINCE = 5
NOT_ALLOWED = ApiError(ErrorKind.NOT_AUTHORIZED, "the caller may not create this topic")
TWICE = ApiError(ErrorKind.INVALID_REQUEST, "the request names this topic more than once")


@routes.handles(CreateTopicsRequest)
def create_topics(request: CreateTopicsRequest, call: Request) -> Iterator[None]:
    twice = yield from repeated(topic.name for topic in request.topics)
    asked: dict[str, CreateTopicsRequestTopic] = {}
    outcomes: dict[str, CreatedTopic | ApiError] = {}
    wanted: dict[str, NewTopic] = {}
    for topic in request.topics:
        name = topic.name
        asked[name] = topic
        if name in twice:
            outcomes[name] = TWICE
        elif not may_create(call, name):
            outcomes[name] = NOT_ALLOWED
        elif (refused := oversized(topic.configs)) is not None:
            outcomes[name] = refused
        else:
            wanted[name] = yield from _new_topic(topic)
        yield

    def done(replies: list[CreatedTopic | ApiError]) -> None:
        outcomes.update(zip(wanted, replies, strict=True))
        created = sum([reply.partitions for reply in replies if isinstance(reply, CreatedTopic)])
        call.run(_answer(call, asked, outcomes, 0 if request.validate_only else created))

    call.backend.topics.create(
        list(wanted.values()),
        done,
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
        account=call.connection.account,
    )


def _answer(
    call: Request,
    asked: Mapping[str, CreateTopicsRequestTopic],
    outcomes: Mapping[str, CreatedTopic | ApiError],
    created: int,
) -> Iterator[None]:
    throttle_ms = call.charge(QuotaType.MUTATIONS, created)
    rows = yield from collected(_row(call, topic, outcomes[name]) for name, topic in asked.items())
    call.reply(CreateTopicsResponse(throttle_time_ms=throttle_ms, topics=rows))


def _new_topic(topic: CreateTopicsRequestTopic) -> Steps[NewTopic]:
    assignments: list[ReplicaAssignment] = []
    for count, placed in enumerate(topic.assignments):
        assignments.append(
            ReplicaAssignment(PartitionIndex(placed.partition_index), _nodes(placed.broker_ids))
        )
        if count % KEYS_PER_STEP == 0:
            yield
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple(assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


def _nodes(ids: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(node_id) for node_id in ids)


def _row(
    call: Request, topic: CreateTopicsRequestTopic, outcome: CreatedTopic | ApiError
) -> CreateTopicsResponseTopic:
    name = topic.name
    if isinstance(outcome, ApiError):
        return CreateTopicsResponseTopic(
            name=name, error_code=code_of(outcome), error_message=message_of(outcome)
        )
    if not call.authorize(AclOperation.DESCRIBE_CONFIGS, topic_resource(name)):
        return CreateTopicsResponseTopic(
            name=name,
            topic_id=outcome.id,
            error_code=ErrorCode.NONE,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreateTopicsResponseTopic(
        name=name,
        topic_id=outcome.id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=outcome.partitions,
        replication_factor=outcome.replication_factor,
        configs=_configs(call, outcome, topic) if call.version >= CONFIGS_SINCE else (),
    )


def _configs(
    call: Request, created: CreatedTopic, topic: CreateTopicsRequestTopic
) -> tuple[CreateTopicsResponseConfig, ...]:
    """Every setting of the new topic, or of the one that would be created."""
    own = {config.name: config.value for config in topic.configs if config.value is not None}
    described = call.backend.configs.preview(created.name, own, created.replication_factor)
    return tuple(
        CreateTopicsResponseConfig(
            name=config.name,
            value=config.value,
            read_only=config.read_only,
            config_source=config.source,
            is_sensitive=config.sensitive,
        )
        for config in described
    )
