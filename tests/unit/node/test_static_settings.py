import re

import pytest

from penstock.config import SETTINGS, Config, ConfigError, load, override
from penstock.core.metadata.configs import BROKER_CONFIGS, ConfigLayers, topic_options
from penstock.core.metadata.image import ConfigResourceType
from penstock.node import options_from, static_settings
from penstock.node.options import DECIDED_BY

RANGES = {
    key: found.groups()
    for key, setting in SETTINGS.items()
    if (found := re.search(r"from (-?\d+) to (\d+)", setting.allowed))
}


def test_a_setting_that_differs_from_kafkas_default_is_the_nodes_own() -> None:
    loaded = load(overrides=[override("--set", "topics.retention_bytes=4096")])

    assert static_settings(loaded.config)["log.retention.bytes"] == "4096"


def test_a_setting_at_kafkas_default_is_left_to_the_default() -> None:
    settings = static_settings(Config())

    assert [key for key, value in settings.items() if value == BROKER_CONFIGS[key].default] == []
    assert "log.retention.bytes" not in settings


@pytest.mark.parametrize("key", RANGES)
def test_a_node_can_be_built_with_the_extremes_of_every_number(key: str) -> None:
    for value in RANGES[key]:
        try:
            config = load(overrides=[override("--set", f"{key}={value}")]).config
        except ConfigError:
            # Refused, next to what another setting says.
            continue

        static = options_from(config).static

        assert topic_options(ConfigLayers(ConfigResourceType.TOPIC, static=static)).segment_bytes >= 1


def test_the_grace_period_of_elections_is_a_setting() -> None:
    config = load(overrides=[override("--set", "cluster.report_grace_ms=750")]).config

    assert options_from(config).sessions.report_grace_ms == 750
    assert options_from(Config()).sessions.report_grace_ms == 5_000


def test_the_reference_names_the_setting_that_decides_each_broker_setting() -> None:
    config = load(
        overrides=[override("--set", "node.rack=a"), override("--set", "storage.fsync.mode=interval")]
    )
    decided = {*static_settings(config.config), *static_settings(Config())}

    assert decided - DECIDED_BY.keys() <= {"controller.listener.names", "inter.broker.listener.name"}
    assert set(DECIDED_BY.values()) <= SETTINGS.keys()
    assert DECIDED_BY.keys() <= BROKER_CONFIGS.keys()
