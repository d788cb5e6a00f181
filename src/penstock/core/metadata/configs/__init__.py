"""Every configuration key: what it is, which values it takes, where a value comes from.

A `ConfigDefinition` is one row of a table: name, type, default, rule, documentation. There
is a table for each kind of resource: `topic`, `broker`, `group` and `client_metrics`. `ConfigLayers`
puts the sources of values on top of each other (the resource itself, its broker, the
cluster, the node's file, the default) and returns which one counts; `describe_all` tells a
client everything about it. `problem_with` checks new values, `topic_options` makes the
typed form that the broker works with. What Kafka has and Penstock has not is in `refused`, with the reason.

Values are text wherever they are stored or shown, and typed only at the point of use.

Left out: the node's own settings file, whose keys are other ones; the node translates them
into the `static` layer.
"""

from penstock.core.metadata.configs.client_metrics import CLIENT_METRICS_CONFIGS
from penstock.core.metadata.configs.definition import (
    VALUE_CHARS_MAX,
    ConfigDefinition,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    DynamicUpdateMode,
    InvalidConfigValue,
    NumberRange,
    split_list,
)
from penstock.core.metadata.configs.group import GROUP_CONFIGS
from penstock.core.metadata.configs.layers import (
    BROKER_CONFIGS,
    NO_CONFIGS,
    ConfigLayers,
    ConfigSource,
    DescribedConfig,
    LayerValue,
    broken_orders,
    definitions,
    describe_all,
    described,
    problem_with,
)
from penstock.core.metadata.configs.options import (
    CleanupPolicy,
    TimestampType,
    TopicOptions,
    cautious_options,
    topic_options,
)
from penstock.core.metadata.configs.refused import REFUSED_CONFIGS, unknown_key
from penstock.core.metadata.configs.topic import TOPIC_CONFIGS

__all__ = [
    "ConfigDefinition",
    "ConfigType",
    "NumberRange",
    "ConfigValue",
    "InvalidConfigValue",
    "DynamicUpdateMode",
    "ConfigSynonym",
    "split_list",
    "VALUE_CHARS_MAX",
    "TOPIC_CONFIGS",
    "BROKER_CONFIGS",
    "GROUP_CONFIGS",
    "CLIENT_METRICS_CONFIGS",
    "REFUSED_CONFIGS",
    "unknown_key",
    "definitions",
    "ConfigLayers",
    "NO_CONFIGS",
    "ConfigSource",
    "LayerValue",
    "DescribedConfig",
    "described",
    "describe_all",
    "problem_with",
    "broken_orders",
    "TopicOptions",
    "topic_options",
    "cautious_options",
    "CleanupPolicy",
    "TimestampType",
]
