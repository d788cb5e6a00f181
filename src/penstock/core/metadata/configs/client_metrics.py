"""The configuration of client metrics subscriptions (KIP-714)."""

from penstock.core.metadata.client_metrics import (
    PUSH_INTERVAL_MS,
    PUSH_INTERVAL_MS_MAX,
    PUSH_INTERVAL_MS_MIN,
    problem_with_match,
)
from penstock.core.metadata.configs.definition import ConfigDefinition, ConfigType, between, by_name

CLIENT_METRICS_CONFIGS = by_name(
    (
        ConfigDefinition(
            "metrics",
            ConfigType.LIST,
            "",
            "Prefixes of the metrics that clients shall push, or `*` for all; without any, none are pushed.",
        ),
        ConfigDefinition(
            "interval.ms",
            ConfigType.INT,
            str(PUSH_INTERVAL_MS),
            "How often clients push.",
            between(PUSH_INTERVAL_MS_MIN, PUSH_INTERVAL_MS_MAX),
        ),
        ConfigDefinition(
            "match",
            ConfigType.LIST,
            "",
            "Which clients are meant, as selector=pattern pairs that all have to match; without any, every "
            "client.",
            problem_with_match,
        ),
    )
)
