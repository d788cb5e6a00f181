"""Every key there is, by the kind of thing that it configures."""

from collections.abc import Mapping

from penstock.core.metadata.configs.broker_groups import GROUP_SETTINGS
from penstock.core.metadata.configs.broker_log import LOG_SETTINGS
from penstock.core.metadata.configs.broker_node import NODE_SETTINGS
from penstock.core.metadata.configs.definition import ConfigDefinition, by_name
from penstock.core.metadata.configs.group import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS
from penstock.core.metadata.configs.topic import TOPIC_CONFIGS
from penstock.core.metadata.state import ResourceKind

BROKER_CONFIGS = by_name(LOG_SETTINGS, GROUP_SETTINGS, NODE_SETTINGS)

_TABLES: Mapping[ResourceKind, Mapping[str, ConfigDefinition]] = {
    ResourceKind.TOPIC: TOPIC_CONFIGS,
    ResourceKind.BROKER: BROKER_CONFIGS,
    ResourceKind.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    ResourceKind.GROUP: GROUP_CONFIGS,
}


def definitions(kind: ResourceKind) -> Mapping[str, ConfigDefinition]:
    """The keys of a kind of resource, sorted by name."""
    return _TABLES[kind]
