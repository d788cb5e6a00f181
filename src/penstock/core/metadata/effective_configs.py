"""Configuration as it counts: an image's own values above a node's settings and defaults."""

from collections.abc import Mapping

from penstock.core.metadata.configs import (
    NO_CONFIGS,
    ConfigLayers,
    ConfigValue,
    DescribedConfig,
    TopicOptions,
    cautious_options,
    definitions,
    describe_all,
    topic_options,
)
from penstock.core.metadata.image import ConfigResource, ConfigResourceType, MetadataImage, Topic
from penstock.core.metadata.internal_topics import with_required
from penstock.core.metadata.topic_names import is_internal

# The name under which settings of every broker are kept.
ALL_BROKERS = ""
_REPLICAS_FOR_TWO_IN_SYNC = 3
ENCRYPTION = "encryption.at.rest"
# A node has it among its own settings if it has master keys.
BROKER_ENCRYPTION = "log.encryption.at.rest"


def problem_with_keys(
    kind: ConfigResourceType, values: Mapping[str, str], static: Mapping[str, str]
) -> str | None:
    """Why topics cannot be encrypted as these values, which are allowed, ask for; None if they can."""
    for key in (ENCRYPTION, BROKER_ENCRYPTION):
        definition = definitions(kind).get(key)
        if (
            key in values
            and definition is not None
            and definition.parse(values[key])
            and BROKER_ENCRYPTION not in static
        ):
            return f"{key} cannot be true: security.encryption is not enabled, so there are no keys"
    return None


def layers_for(
    image: MetadataImage,
    resource: ConfigResource,
    node_id: int | None,
    static: Mapping[str, str] = NO_CONFIGS,
    values: Mapping[str, str] | None = None,
) -> ConfigLayers:
    """The layers below a resource, as the node sees them; without a node, as the cluster does.

    `static` holds broker settings from the node's own configuration, under Kafka's names. With `values`, as
    it would be if the resource itself had these.
    """
    kind = resource.kind
    asker = ALL_BROKERS if node_id is None else str(node_id)
    node = resource.name if kind is ConfigResourceType.BROKER else asker
    topic = image.topic(resource.name) if kind is ConfigResourceType.TOPIC else None

    def stored(kind: ConfigResourceType, name: str) -> Mapping[str, str]:
        is_it = values is not None and resource == ConfigResource(kind, name)
        return values if is_it and values is not None else image.config(kind, name)

    return ConfigLayers(
        kind,
        own=NO_CONFIGS if kind is ConfigResourceType.BROKER else stored(kind, resource.name),
        broker=NO_CONFIGS if node == ALL_BROKERS else stored(ConfigResourceType.BROKER, node),
        cluster=stored(ConfigResourceType.BROKER, ALL_BROKERS),
        static=static,
        defaults=NO_CONFIGS if topic is None else topic_defaults(topic.replicas_to_rely_on),
    )


def topic_defaults(replication_factor: int) -> Mapping[str, str]:
    """Defaults that depend on the topic: with three replicas, two must have a record."""
    return {"min.insync.replicas": "2"} if replication_factor >= _REPLICAS_FOR_TWO_IN_SYNC else NO_CONFIGS


def options_of(
    image: MetadataImage, topic: str, node_id: int | None, static: Mapping[str, str] = NO_CONFIGS
) -> TopicOptions:
    """A topic's options. Building them takes a while: keep them until the image changes."""
    if is_internal(topic):
        # The cluster needs what it holds, and what it must have is known.
        return cautious_options_of(image, topic, node_id, static)
    return topic_options(layers_for(image, ConfigResource(ConfigResourceType.TOPIC, topic), node_id, static))


def cautious_options_of(
    image: MetadataImage, topic: str, node_id: int | None, static: Mapping[str, str] = NO_CONFIGS
) -> TopicOptions:
    """A topic's options as far as they can be read, for whoever must have some."""
    layers = layers_for(image, ConfigResource(ConfigResourceType.TOPIC, topic), node_id, static)
    return with_required(topic, cautious_options(layers))


def describe_configs(
    image: MetadataImage,
    resource: ConfigResource,
    node_id: int | None,
    static: Mapping[str, str] = NO_CONFIGS,
    keys: tuple[str, ...] | None = None,
) -> tuple[DescribedConfig, ...]:
    """Every key of a resource, or those asked for, with value, source and synonyms."""
    return describe_all(layers_for(image, resource, node_id, static), keys)


def broker_setting(
    image: MetadataImage, key: str, node_id: int | None = None, static: Mapping[str, str] = NO_CONFIGS
) -> ConfigValue | None:
    """A broker's setting as it counts now; None where it has neither value nor default.

    A stored value that the key cannot have does not count: no node may end because of one.
    """
    name = ALL_BROKERS if node_id is None else str(node_id)
    return layers_for(image, ConfigResource(ConfigResourceType.BROKER, name), node_id, static).usable_value(
        key
    )


def topic_value(
    image: MetadataImage, topic: Topic, key: str, static: Mapping[str, str] = NO_CONFIGS
) -> ConfigValue | None:
    """One key of a topic as the cluster sees it; a stored value that the key cannot have does not count."""
    return layers_for(image, ConfigResource(ConfigResourceType.TOPIC, topic.name), None, static).usable_value(
        key
    )
