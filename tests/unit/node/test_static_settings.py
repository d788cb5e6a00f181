import re

import pytest

from penstock.broker.coordinator.groups import options_of_node
from penstock.config import SETTINGS, Config, ConfigError, load, override
from penstock.config.kafka_settings import BUILT_IN, DECIDED_BY, SHARED_BY_ALL
from penstock.core.metadata.configs import BROKER_CONFIGS, ConfigLayers, topic_options
from penstock.core.metadata.image import EMPTY_IMAGE, ConfigResourceType
from penstock.core.model import NodeId
from penstock.node import options_from, static_settings
from penstock.node.options import decided_settings

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


def test_checkpoints_and_the_room_on_the_disk_are_settings() -> None:
    assignments = ("storage.checkpoint_interval_ms=2500", "storage.disk_free_bytes_min=1000000")
    config = load(overrides=[override("--set", assignment) for assignment in assignments]).config

    options = options_from(config)

    assert (options.checkpoint_ms, options.disk_free_bytes_min) == (2_500, 1_000_000)


def test_sessions_and_heartbeats_of_brokers_are_settings() -> None:
    assignments = ("cluster.session_timeout_ms=9000", "cluster.heartbeat_interval_ms=2000")
    config = load(overrides=[override("--set", assignment) for assignment in assignments]).config

    sessions = options_from(config).sessions

    assert (sessions.session_ms, sessions.heartbeat_ms) == (9_000, 2_000)
    assert static_settings(config)["broker.session.timeout.ms"] == "9000"
    assert static_settings(config)["broker.heartbeat.interval.ms"] == "2000"


def test_a_broker_that_could_not_report_twice_in_a_session_is_refused() -> None:
    with pytest.raises(ConfigError, match="must not be above half of"):
        load(overrides=[override("--set", "cluster.heartbeat_interval_ms=1001")])


def test_every_broker_setting_that_the_node_decides_has_its_setting_named() -> None:
    assignments = ("node.rack=a", "storage.fsync.mode=interval")
    loaded = load(overrides=[override("--set", assignment) for assignment in assignments])
    decided = {*decided_settings(loaded.config), *decided_settings(Config())}

    assert decided == {*DECIDED_BY, *BUILT_IN}
    assert set(DECIDED_BY.values()) <= SETTINGS.keys()
    assert {*DECIDED_BY, *BUILT_IN, *SHARED_BY_ALL} <= BROKER_CONFIGS.keys()


def test_settings_under_kafkas_names_are_the_nodes_own() -> None:
    assignment = "node.kafka_settings=group.max.size=7,offsets.retention.minutes=60,log.roll.ms=5000"
    loaded = load(overrides=[override("--set", assignment)])

    static = static_settings(loaded.config)

    assert (static["group.max.size"], static["offsets.retention.minutes"]) == ("7", "60")
    assert options_of_node(EMPTY_IMAGE, NodeId(1), static).machine.group_members_max == 7
    assert topic_options(ConfigLayers(ConfigResourceType.TOPIC, static=static)).segment_ms == 5_000


@pytest.mark.parametrize(
    ("item", "complaint"),
    [
        ("group.max.size", "is not name=value"),
        ("group.max.size=none", "group.max.size must be a whole number"),
        ("group.max.size=1,group.max.size=2", "is set more than once"),
        ("no.such.key=1", "broker has no configuration key 'no.such.key'"),
        ("num.replica.fetchers=4", "num.replica.fetchers is not supported: "),
        ("num.partitions=4", "num.partitions is decided by topics.partitions"),
        ("num.io.threads=4", "num.io.threads cannot be changed"),
        ("fetch.max.bytes=4096", "fetch.max.bytes cannot be changed"),
        ("min.insync.replicas=2", "is changed while the cluster runs"),
        ("broker.drained=true", "is changed while the cluster runs"),
    ],
)
def test_what_cannot_be_set_under_kafkas_names_is_refused_with_the_reason(item: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)) as refused:
        load(overrides=[override("--set", f"node.kafka_settings={item}")])

    assert "node.kafka_settings" in str(refused.value)


def test_how_clients_log_in_is_shown_under_kafkas_names() -> None:
    given = (
        "listen.protocol=SASL_SSL",
        "security.enabled=true",
        "security.super_users=admin,carol",
        "security.sasl.mechanisms=SCRAM-SHA-512,PLAIN",
        "security.sasl.reauthenticate_ms=60000",
        "security.tls.certificate=node.pem",
        "security.tls.key=node.key",
        "security.tls.authority=ca.pem",
        "security.tls.client_auth=want",
    )
    config = load(overrides=[override("--set", assignment) for assignment in given]).config

    shown = static_settings(config)

    assert shown["super.users"] == "User:admin;User:carol"
    assert shown["sasl.enabled.mechanisms"] == "SCRAM-SHA-512,PLAIN"
    assert shown["connections.max.reauth.ms"] == "60000"
    assert shown["ssl.client.auth"] == "requested"
    assert shown["authorizer.class.name"].endswith(".StandardAuthorizer")


def test_a_node_where_nobody_logs_in_shows_no_way_to() -> None:
    shown = static_settings(Config())

    assert shown.keys().isdisjoint({"sasl.enabled.mechanisms", "authorizer.class.name", "super.users"})
