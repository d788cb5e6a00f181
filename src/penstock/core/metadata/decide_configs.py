"""Changing the configuration of topics, brokers, groups and client metrics."""

from collections.abc import Sequence

from penstock.core.metadata.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    IncrementalAlterConfigs,
    Ok,
)
from penstock.core.metadata.configs import (
    ConfigType,
    DynamicUpdateMode,
    definitions,
    problem_with,
    split_list,
    unknown_key,
)
from penstock.core.metadata.decide_brokers import DRAINED, follow_drain
from penstock.core.metadata.decision import (
    ControllerConfig,
    DecisionBuilder,
    MetadataDecision,
    error_decision,
)
from penstock.core.metadata.effective_configs import ALL_BROKERS, layers_for, problem_with_keys
from penstock.core.metadata.elections import follow_rules
from penstock.core.metadata.image import ConfigResource, ConfigResourceType, MetadataImage, Topic
from penstock.core.metadata.internal_topics import problem_with_internal_topic
from penstock.core.metadata.records import ConfigRemoved, ConfigSet
from penstock.core.metadata.topic_names import problem_with_name
from penstock.core.model import ApiError, ErrorKind, NodeId

ELECTION_KEYS = ("min.insync.replicas", "unclean.leader.election.enable")


def alter_configs(image: MetadataImage, command: AlterConfigs, around: ControllerConfig) -> MetadataDecision:
    """The legacy form: what is not named returns to its default."""
    values: dict[str, str] = {}
    for key, value in command.values:
        if value is None or key in values:
            return error_decision(ErrorKind.INVALID_REQUEST, f"{key} has no value, or more than one")
        values[key] = value
    return _alter(image, command.resource, values, around, validate_only=command.validate_only)


def incremental_alter_configs(
    image: MetadataImage, command: IncrementalAlterConfigs, around: ControllerConfig
) -> MetadataDecision:
    resource = command.resource
    keys = [change.key for change in command.changes]
    if len(frozenset(keys)) != len(keys):
        return error_decision(ErrorKind.INVALID_REQUEST, "a key is changed more than once")
    values = dict(image.config(resource.kind, resource.name))
    for change in command.changes:
        value = _changed(image, resource, change, around)
        if isinstance(value, ApiError):
            return error_decision(value.kind, value.detail)
        if value is None:
            values.pop(change.key, None)
        else:
            values[change.key] = value
    return _alter(image, resource, values, around, validate_only=command.validate_only)


def _changed(
    image: MetadataImage, resource: ConfigResource, change: ConfigChange, around: ControllerConfig
) -> str | ApiError | None:
    """The new value of one key; None if it has none of its own any more."""
    definition = definitions(resource.kind).get(change.key)
    if change.operation is ConfigOperation.DELETE and (
        definition is not None or change.key in image.config(resource.kind, resource.name)
    ):
        # Also what only another version knows: whatever is stored can be removed.
        return None
    if definition is None:
        return ApiError(ErrorKind.INVALID_CONFIG, unknown_key(resource.kind, change.key))
    if change.value is None:
        return ApiError(ErrorKind.INVALID_REQUEST, f"{change.key} has no value")
    if change.operation is ConfigOperation.SET:
        return change.value
    if definition.type is not ConfigType.LIST:
        return ApiError(
            ErrorKind.INVALID_CONFIG, f"{change.key} is not a list: nothing can be added or taken away"
        )
    present = split_list(layers_for(image, resource, None, around.static).text(definition) or "")
    items = split_list(change.value)
    if change.operation is ConfigOperation.APPEND:
        known = frozenset(present)
        return ",".join((*present, *(item for item in items if item not in known)))
    gone = frozenset(items)
    return ",".join(item for item in present if item not in gone)


def _alter(
    image: MetadataImage,
    resource: ConfigResource,
    values: dict[str, str],
    around: ControllerConfig,
    *,
    validate_only: bool,
) -> MetadataDecision:
    present = image.config(resource.kind, resource.name)
    changed = [key for key in sorted({*present, *values}) if present.get(key) != values.get(key)]
    added = [key for key in changed if key in values]
    error = _problem_with_resource(image, resource) or _problem_with_update(resource, added)
    if error is not None:
        return error_decision(error.kind, error.detail)
    layers = layers_for(image, resource, None, around.static, values)
    complaint = (
        problem_with(layers, values, changed)
        or problem_with_internal_topic(resource, layers, changed)
        or problem_with_keys(resource.kind, {key: values[key] for key in added}, around.static)
    )
    if complaint is not None:
        return error_decision(ErrorKind.INVALID_CONFIG, complaint)
    draft = DecisionBuilder(image)
    for key in changed:
        if key in values:
            draft.add(ConfigSet(resource.kind, resource.name, key, values[key]))
        else:
            draft.add(ConfigRemoved(resource.kind, resource.name, key))
    if resource.kind is ConfigResourceType.BROKER and DRAINED in changed and resource.name != ALL_BROKERS:
        follow_drain(draft, NodeId(int(resource.name)), around)
    if any(key in ELECTION_KEYS for key in changed):
        follow_rules(draft, _topics_under(draft.image, resource), around)
    return draft.decision(Ok(), validate_only=validate_only)


def _topics_under(image: MetadataImage, resource: ConfigResource) -> list[Topic]:
    if resource.kind is not ConfigResourceType.TOPIC:
        return list(image.each_topic())
    named = image.topic(resource.name)
    return [] if named is None else [named]


def _problem_with_resource(image: MetadataImage, resource: ConfigResource) -> ApiError | None:
    name = resource.name
    if resource.kind is ConfigResourceType.TOPIC:
        return _problem_with_topic(image, name)
    if resource.kind is ConfigResourceType.BROKER:
        if name == ALL_BROKERS:
            return None
        if not (name.isascii() and name.isdigit() and name == str(int(name[:10]))):
            return ApiError(ErrorKind.INVALID_REQUEST, f"{name!r} is not a broker id")
        return (
            None
            if image.broker(int(name))
            else ApiError(ErrorKind.UNKNOWN_BROKER, f"there is no broker {name}")
        )
    return (
        None if name else ApiError(ErrorKind.INVALID_REQUEST, f"a {resource.kind.name.lower()} needs a name")
    )


def _problem_with_topic(image: MetadataImage, name: str) -> ApiError | None:
    if not name:
        return ApiError(
            ErrorKind.INVALID_REQUEST,
            "topics have no common configuration: name a topic, or set the broker's key",
        )
    complaint = problem_with_name(name)
    if complaint is not None:
        return ApiError(ErrorKind.INVALID_TOPIC_NAME, complaint)
    return None if image.topic(name) else ApiError(ErrorKind.UNKNOWN_TOPIC, f"there is no topic '{name}'")


def _problem_with_update(resource: ConfigResource, added: Sequence[str]) -> ApiError | None:
    """Why a broker's settings cannot be set while it runs; what is there can always be removed."""
    if resource.kind is not ConfigResourceType.BROKER:
        return None
    table = definitions(ConfigResourceType.BROKER)
    for key in added:
        definition = table.get(key)
        if definition is None:
            return ApiError(ErrorKind.INVALID_CONFIG, unknown_key(resource.kind, key))
        if definition.update is DynamicUpdateMode.READ_ONLY:
            return ApiError(ErrorKind.INVALID_REQUEST, f"{key} cannot be changed while the broker runs")
        if definition.update is DynamicUpdateMode.PER_BROKER and resource.name == ALL_BROKERS:
            return ApiError(ErrorKind.INVALID_REQUEST, f"{key} can be changed for single brokers only")
        if key in ELECTION_KEYS and resource.name != ALL_BROKERS:
            # Leaders and the controller must agree on it.
            return ApiError(ErrorKind.INVALID_REQUEST, f"{key} can be changed for all brokers together only")
    return None
