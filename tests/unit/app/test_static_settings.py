from penstock.app import static_settings
from penstock.config import Config, load, override
from penstock.core.metadata.configs import BROKER_CONFIGS


def test_a_setting_that_differs_from_kafkas_default_is_the_nodes_own() -> None:
    loaded = load(overrides=[override("--set", "topics.retention_bytes=4096")])

    assert static_settings(loaded.config)["log.retention.bytes"] == "4096"


def test_a_setting_at_kafkas_default_is_left_to_the_default() -> None:
    settings = static_settings(Config())

    assert [key for key, value in settings.items() if value == BROKER_CONFIGS[key].default] == []
    assert "log.retention.bytes" not in settings
