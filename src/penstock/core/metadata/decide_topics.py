"""Creating and deleting topics."""

from dataclasses import replace

from penstock.core.metadata.commands import BY_DEFAULT, CreatedTopic, CreateTopic, DeletedTopic, DeleteTopic
from penstock.core.metadata.configs import problem_with
from penstock.core.metadata.decision import (
    ControllerConfig,
    DecisionBuilder,
    MetadataDecision,
    error_decision,
)
from penstock.core.metadata.effective_configs import (
    broker_setting,
    layers_for,
    problem_with_keys,
    topic_defaults,
)
from penstock.core.metadata.image import ConfigResource, ConfigResourceType, MetadataImage, Partition
from penstock.core.metadata.internal_topics import problem_with_internal_topic, required_settings
from penstock.core.metadata.placement import (
    REPLICAS_BY_DEFAULT_MAX,
    broker_number,
    partitions_by_hand,
    place,
    places,
    problem_with_count,
    problem_with_load,
    problem_with_replication,
    problem_with_total,
)
from penstock.core.metadata.records import ConfigSet, PartitionCreated, TopicCreated, TopicDeleted
from penstock.core.metadata.topic_names import METADATA_TOPIC, is_internal, problem_with_name
from penstock.core.model import ApiError, ErrorKind, TopicName


def create_topic(image: MetadataImage, command: CreateTopic, around: ControllerConfig) -> MetadataDecision:
    error = _problem_with_new_name(image, command)
    if error is not None:
        return error_decision(error.kind, error.detail)
    partitions = _partitions(image, command, around)
    if not isinstance(partitions, ApiError):
        partitions = problem_with_load(image, command.name, partitions, around) or partitions
    if isinstance(partitions, ApiError):
        return error_decision(partitions.kind, partitions.detail)
    configs = _configs(image, command, len(partitions[0].replicas), around)
    if isinstance(configs, ApiError):
        return error_decision(configs.kind, configs.detail)
    name = TopicName(command.name)
    draft = DecisionBuilder(image)
    draft.add(TopicCreated(name, command.topic_id))
    for key, value in configs.items():
        draft.add(ConfigSet(ConfigResourceType.TOPIC, name, key, value))
    for partition in partitions:
        draft.note(PartitionCreated(command.topic_id, partition))
    reply = CreatedTopic(name, command.topic_id, len(partitions), len(partitions[0].replicas))
    return draft.decision(reply, validate_only=command.validate_only)


def _problem_with_new_name(image: MetadataImage, command: CreateTopic) -> ApiError | None:
    name = command.name
    complaint = problem_with_name(name)
    if complaint is not None:
        return ApiError(ErrorKind.INVALID_TOPIC_NAME, complaint)
    if name == METADATA_TOPIC:
        return ApiError(ErrorKind.INVALID_REQUEST, f"{name} is reserved")
    if image.topic(name) is not None:
        return ApiError(ErrorKind.TOPIC_EXISTS, f"topic '{name}' exists already")
    other = image.colliding_topic(name)
    if other is not None:
        detail = f"topic '{name}' differs from topic '{other}' in '.' and '_' only"
        return ApiError(ErrorKind.INVALID_TOPIC_NAME, detail)
    if image.topic_by_id(command.topic_id) is not None:
        return ApiError(ErrorKind.INVALID_REQUEST, f"topic id {command.topic_id} is taken")
    return None


def _partitions(
    image: MetadataImage, command: CreateTopic, around: ControllerConfig
) -> list[Partition] | ApiError:
    if command.assignments:
        if (command.partitions, command.replication_factor) != (BY_DEFAULT, BY_DEFAULT):
            detail = "with replicas placed by hand, partitions and replication factor must both be -1"
            return ApiError(ErrorKind.INVALID_REQUEST, detail)
        return problem_with_count(
            image, command.name, len(command.assignments), around
        ) or partitions_by_hand(image, command.assignments)
    if command.replication_factor == 0 or command.replication_factor < BY_DEFAULT:
        detail = "the replication factor must be at least 1, or -1 for the default"
        return ApiError(ErrorKind.INVALID_REPLICATION_FACTOR, detail)
    if command.partitions == 0 or command.partitions < BY_DEFAULT:
        detail = "the number of partitions must be at least 1, or -1 for the default"
        return ApiError(ErrorKind.INVALID_PARTITIONS, detail)
    count = command.partitions
    if count == BY_DEFAULT:
        # As many as brokers are set to create, however many a client may ask for.
        count = broker_number(image, "num.partitions", around)
        problem = problem_with_total(image, count, around)
    else:
        problem = problem_with_count(image, command.name, count, around)
    factor = command.replication_factor
    if factor == BY_DEFAULT:
        factor = default_replication_factor(image, around)
    return problem or problem_with_replication(image, factor) or place(image, 0, count, factor)


def default_replication_factor(image: MetadataImage, around: ControllerConfig) -> int:
    """What the setting says; -1 there is the smaller of three and the number of brokers."""
    factor = broker_number(image, "default.replication.factor", around)
    return factor if factor > 0 else max(1, min(REPLICAS_BY_DEFAULT_MAX, places(image)))


def _configs(
    image: MetadataImage, command: CreateTopic, replication_factor: int, around: ControllerConfig
) -> dict[str, str] | ApiError:
    values: dict[str, str] = {}
    for key, value in command.configs:
        if value is None:
            return ApiError(ErrorKind.INVALID_CONFIG, f"{key} has no value")
        values[key] = value
    if not values:
        return {**required_settings(command.name)}
    resource = ConfigResource(ConfigResourceType.TOPIC, command.name)
    values = {**required_settings(command.name), **values}
    layers = layers_for(image, resource, None, around.static, values)
    layers = replace(layers, defaults=topic_defaults(replication_factor))
    complaint = (
        problem_with(layers, values)
        or problem_with_internal_topic(resource, layers, values)
        or problem_with_keys(ConfigResourceType.TOPIC, values, around.static)
    )
    return values if complaint is None else ApiError(ErrorKind.INVALID_CONFIG, complaint)


def delete_topic(image: MetadataImage, command: DeleteTopic, around: ControllerConfig) -> MetadataDecision:
    if (command.name is None) == (command.topic_id is None):
        return error_decision(ErrorKind.INVALID_REQUEST, "a topic is deleted by its name or by its id")
    if command.name is not None:
        topic = image.topic(command.name)
    else:
        assert command.topic_id is not None
        topic = image.topic_by_id(command.topic_id)
    if topic is None:
        if command.name is not None:
            return error_decision(ErrorKind.UNKNOWN_TOPIC, f"there is no topic '{command.name}'")
        return error_decision(ErrorKind.UNKNOWN_TOPIC_ID, f"no topic has the id {command.topic_id}")
    if is_internal(topic.name):
        # With it, offsets, transactions, queues or delays of everybody would be gone.
        return error_decision(ErrorKind.INVALID_TOPIC_NAME, f"the cluster keeps state in '{topic.name}'")
    if not broker_setting(image, "delete.topic.enable", static=around.static):
        return error_decision(ErrorKind.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    draft = DecisionBuilder(image)
    draft.add(TopicDeleted(topic.id))
    return draft.decision(DeletedTopic(topic.name, topic.id))
