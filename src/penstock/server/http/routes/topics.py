"""Topics: create, list, describe, delete."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from penstock.client.cluster import ClusterError, ClusterTopic
from penstock.core.metadata import is_internal
from penstock.core.protocol import ErrorCode
from penstock.core.protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponseTopic,
)
from penstock.core.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.core.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from penstock.core.protocol.schema import ZERO_UUID
from penstock.server.gateway.backend import GatewayBackend
from penstock.server.gateway.errors import NOT_DELETED
from penstock.server.http.operations import (
    NoQuery,
    OperationTable,
    RestAnswer,
    RestRequest,
    RestStruct,
)
from penstock.server.http.problem import failed

OPERATIONS = OperationTable("topics", "Topics")
ADMIN_MS = 20_000
TOPIC_RESOURCE = 2
# Where DescribeConfigs says that a value was set for the topic itself.
SET_FOR_TOPIC = 1
CONFIGS_MAX = 500
FIELDS = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "name",
    ErrorCode.TOPIC_ALREADY_EXISTS: "name",
    ErrorCode.INVALID_PARTITIONS: "partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "replication_factor",
    ErrorCode.INVALID_CONFIG: "config",
}
ConfigValue = str | bool | int | float


class TopicBody(RestStruct, frozen=True):
    """A topic to create; what is left out is as the cluster is set up."""

    name: str
    partitions: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32_767)] | None = None
    config: Annotated[dict[str, ConfigValue], Meta(max_length=CONFIGS_MAX)] = msgspec.field(
        default_factory=dict
    )


class PartitionView(RestAnswer, frozen=True):
    """Where a partition is; `leader` is null while it has none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicSummaryView(RestAnswer, frozen=True):
    """A topic of a list."""

    name: str
    partitions: int
    replication_factor: int
    is_internal: bool


class TopicList(RestAnswer, frozen=True):
    """Every topic."""

    topics: list[TopicSummaryView]


class TopicView(TopicSummaryView, frozen=True):
    """A topic, where it is, and the settings that are its own."""

    id: str
    partition_details: list[PartitionView]
    config: dict[str, str | None]


@OPERATIONS.add("POST", "/v1/topics", "Create a topic", body=TopicBody, answer=TopicView, status=201)
async def create_topic(backend: GatewayBackend, request: RestRequest[NoQuery, TopicBody]) -> TopicView:
    body = request.body
    asked = CreateTopicsRequestTopic(
        name=body.name,
        num_partitions=-1 if body.partitions is None else body.partitions,
        replication_factor=-1 if body.replication_factor is None else body.replication_factor,
        assignments=(),
        configs=tuple(
            CreateTopicsRequestConfig(name=name, value=_config_text(value))
            for name, value in body.config.items()
        ),
    )
    answer = await backend.cluster.ask(CreateTopicsRequest(topics=(asked,), timeout_ms=ADMIN_MS))
    (created,) = answer.topics
    if created.error_code != ErrorCode.NONE:
        detail = created.error_message or f"the topic {body.name} was not created"
        raise failed(created.error_code, detail, FIELDS.get(created.error_code))
    backend.cluster.forget_topic(body.name)
    try:
        # A broker may learn of the topic a moment after the controller has created it.
        topic = await backend.cluster.topic(body.name, create=True)
    except ClusterError as error:
        if error.code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        # Whoever may create it need not be allowed to see it: it is there all the same.
        return _created(created)
    return await _described(backend, topic)


@OPERATIONS.add("GET", "/v1/topics", "Every topic", answer=TopicList)
async def list_topics(backend: GatewayBackend, _: RestRequest[NoQuery, None]) -> TopicList:
    return TopicList(topics=[_summary(topic) for topic in await backend.cluster.topics()])


@OPERATIONS.add("GET", "/v1/topics/{topic}", "One topic", answer=TopicView)
async def describe_topic(backend: GatewayBackend, request: RestRequest[NoQuery, None]) -> TopicView:
    name = request.path["topic"]
    # Leaders and replicas move: what the cache has may be a minute old.
    backend.cluster.forget_topic(name)
    return await _described(backend, await backend.cluster.topic(name))


@OPERATIONS.add("DELETE", "/v1/topics/{topic}", "Delete a topic and its messages", status=204)
async def delete_topic(backend: GatewayBackend, request: RestRequest[NoQuery, None]) -> Response:
    name = request.path["topic"]
    if is_internal(name):
        raise failed(ErrorCode.INVALID_TOPIC_EXCEPTION, NOT_DELETED, "topic")
    asked = DeleteTopicsRequestTopic(name=name, topic_id=ZERO_UUID)
    answer = await backend.cluster.ask(
        DeleteTopicsRequest(topics=(asked,), topic_names=(name,), timeout_ms=ADMIN_MS)
    )
    (deleted,) = answer.responses
    if deleted.error_code != ErrorCode.NONE:
        raise failed(deleted.error_code, deleted.error_message or f"the topic {name} was not deleted")
    backend.cluster.forget_topic(name)
    return Response(status_code=204)


async def _described(backend: GatewayBackend, topic: ClusterTopic) -> TopicView:
    resource = DescribeConfigsRequestResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=None
    )
    answer = await backend.cluster.ask(DescribeConfigsRequest(resources=(resource,)))
    (described,) = answer.results
    config = {one.name: one.value for one in described.configs if one.config_source == SET_FOR_TOPIC}
    details = [
        PartitionView(partition=one.partition, leader=one.leader, replicas=one.replicas, isr=one.isr)
        for one in topic.partitions
    ]
    return TopicView(
        **msgspec.structs.asdict(_summary(topic)),
        id=str(topic.topic_id),
        partition_details=details,
        config=config,
    )


def _created(topic: CreateTopicsResponseTopic) -> TopicView:
    """What is known without a look at the topic; numbers are 0 for those who may not know them."""
    return TopicView(
        name=topic.name,
        partitions=max(0, topic.num_partitions),
        replication_factor=max(0, topic.replication_factor),
        is_internal=False,
        id=str(topic.topic_id),
        partition_details=[],
        config={},
    )


def _summary(topic: ClusterTopic) -> TopicSummaryView:
    return TopicSummaryView(
        name=topic.name,
        partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas) if topic.partitions else 0,
        is_internal=topic.is_internal,
    )


def _config_text(value: ConfigValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
