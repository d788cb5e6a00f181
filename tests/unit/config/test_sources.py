from collections.abc import Mapping

import pytest

from penstock.config import Config, ConfigError, ListenAddress, load, override, warnings_for
from penstock.config.environment import RawSetting
from penstock.config.loader import effective
from penstock.config.yaml_file import read_yaml


@pytest.fixture(autouse=True)
def no_file_in_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.loader.DEFAULT_FILE", "/nonexistent/penstock.yaml")


def problems_of(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
    problems: list[str] = []
    effective(list(read_yaml(text, "f.yaml", environment or {}, problems)), problems)
    return problems


def values_of(text: str, environment: Mapping[str, str] | None = None) -> dict[str, object]:
    problems: list[str] = []
    given = list(read_yaml(text, "f.yaml", environment or {}, problems))
    assert problems == []
    return {one.key: one.text for one in given}


def test_without_sources_the_defaults_hold() -> None:
    loaded = load()

    assert loaded.config == Config()
    assert set(loaded.origins.values()) == {"default"}


def test_a_flag_wins_over_the_environment() -> None:
    loaded = load(
        environment={"PENSTOCK_NODE_ID": "2", "PENSTOCK_NODE_ROLES": "controller"},
        overrides=[override("--set", "node.id=3")],
    )

    assert (loaded.config.node.id, loaded.origins["node.id"]) == (3, "--set")
    assert (loaded.config.node.roles, loaded.origins["node.roles"]) == (
        ("controller",),
        "PENSTOCK_NODE_ROLES",
    )


def test_the_last_of_several_flags_wins() -> None:
    loaded = load(overrides=[override("--set", "node.id=3"), RawSetting("node.id", "4", "--node-id")])

    assert (loaded.config.node.id, loaded.origins["node.id"]) == (4, "--node-id")


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("PENSTOCK_NODE_ID", "7", "node.id", 7),
        ("PENSTOCK_NODE_ID", "node-1", "node.id", 1),
        ("PENSTOCK_NODE_ID", "penstock-east-12", "node.id", 12),
        ("PENSTOCK_DATA_DIR", "/d", "node.data_dir", "/d"),
        ("PENSTOCK_NODE_DATA_DIR", "123", "node.data_dir", "123"),
        ("PENSTOCK_HTTP_ADDR", ":8080", "listen.http", ListenAddress("", 8080)),
        ("PENSTOCK_GRPC_ADDR", "h:1", "listen.grpc", ListenAddress("h", 1)),
        ("PENSTOCK_METRICS_ADDR", "h:1", "listen.metrics", ListenAddress("h", 1)),
        ("PENSTOCK_LOG_LEVEL", "debug", "logging.level", "debug"),
        ("PENSTOCK_LOG_FORMAT", "json", "logging.format", "json"),
        ("PENSTOCK_STORAGE_FSYNC_MODE", "none", "storage.fsync.mode", "none"),
        ("PENSTOCK_TOPICS_REPLICATION_FACTOR", "2", "topics.replication_factor", 2),
        ("PENSTOCK_TOPICS_REPLICATION_FACTOR", "auto", "topics.replication_factor", "auto"),
        ("PENSTOCK_TOPICS_AUTO_CREATE", "no", "topics.auto_create", False),
        ("PENSTOCK_METRICS_ENABLED", "0", "metrics.enabled", False),
    ],
)
def test_every_setting_has_a_variable(variable: str, text: str, key: str, value: object) -> None:
    loaded = load(environment={variable: text})

    assert loaded.values[key] == value
    assert loaded.origins[key] == variable


@pytest.mark.parametrize("text", ["node", "node1", "-1", "node--1x", "node-99999999999", "node 1"])
def test_what_is_no_number_of_a_node_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a whole number"):
        load(environment={"PENSTOCK_NODE_ID": text})


def test_a_misspelt_variable_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(
        ConfigError, match=r"PENSTOCK_STORAGE_FSYNC_MOD .*did you mean PENSTOCK_STORAGE_FSYNC_MODE\?"
    ):
        load(environment={"PENSTOCK_STORAGE_FSYNC_MOD": "none"})


def test_variables_of_others_are_left_alone() -> None:
    environment = {
        "HOME": "/",
        "PENSTOCK_NATIVE": "1",
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_METRICS_PORT_9090_TCP_ADDR": "10.0.0.1",
    }

    assert load(environment=environment).config == Config()


def test_two_variables_that_disagree_about_one_setting_are_a_problem() -> None:
    with pytest.raises(ConfigError, match="PENSTOCK_DATA_DIR and PENSTOCK_NODE_DATA_DIR are both set"):
        load(environment={"PENSTOCK_DATA_DIR": "/a", "PENSTOCK_NODE_DATA_DIR": "/b"})


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("node.idd=1", r"unknown setting node\.idd \(--set\); did you mean node\.id\?"),
        ("node.id=x", r"node\.id: 'x' \(--set\) is not allowed: expected a whole number from 0 to"),
        ("node.id=-1", r"node\.id: '-1'"),
        ("storage.fsync.mode=always", "expected every | interval | none"),
        ("topics.auto_create=maybe", "expected true | false"),
        ("node.roles=broker,boss", r"node\.roles: 'broker,boss'"),
        ("node.roles=", "expected a list of broker"),
        ("node.roles=broker,broker", "names broker twice"),
        ("listen.http=8080", "expected host:port, or :port for every interface"),
        ("cluster.voters=1@a:1,1@b:1", "names 1 twice"),
        ("topics.replication_factor=0", r"expected a whole number from 1 to 32767 or auto"),
        ("topics.retention_hours=0", "-1 keeps records for ever"),
        (
            "groups.heartbeat_interval_ms=30000",
            r"\(--set\) = 30000 must be below groups.session_timeout_ms",
        ),
        ("listen.http=:9092", "listen.kafka .default. and listen.http .--set. both listen on port 9092"),
        ("node.id", "expected key=value"),
    ],
)
def test_what_cannot_be_is_refused_with_key_value_source_and_what_is_allowed(
    assignment: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(overrides=[override("--set", assignment)])


def test_all_problems_are_collected() -> None:
    with pytest.raises(ConfigError, match="and 1 more") as raised:
        load(overrides=[override("--set", "node.id=x"), override("--set", "a.b=1")])

    assert len(raised.value.problems) == 2


def test_yaml_scalars_stay_text_until_their_setting_reads_them() -> None:
    given = values_of("node: {id: 007, data_dir: no, roles: [broker]}\nlisten:\n  http: :8080\n")

    assert given == {
        "node.id": "007",
        "node.data_dir": "no",
        "node.roles": ("broker",),
        "listen.http": ":8080",
    }


def test_references_in_the_file_are_expanded() -> None:
    given = values_of("node:\n  id: ${ID:4}\n  roles: ['${ROLE}']", {"ROLE": "broker"})

    assert given == {"node.id": "4", "node.roles": ("broker",)}


def test_an_empty_file_or_section_gives_nothing() -> None:
    assert values_of("") == {}
    assert values_of("storage:\nnode:\n  id: 1\n") == {"node.id": "1"}


def test_a_setting_that_may_be_empty_may_have_no_value() -> None:
    assert values_of("node:\n  rack:\n") == {"node.rack": ""}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node:\n  idd: 1", "unknown setting node.idd (f.yaml:2); did you mean node.id?"),
        ("stroage: {}", "unknown setting stroage (f.yaml:1)"),
        (
            "node:\n  id: x",
            "node.id: 'x' (f.yaml:2) is not allowed: expected a whole number from 0 to 2147483647",
        ),
        ("node:\n  id:", "node.id (f.yaml:2) has no value: expected a whole number from 0 to 2147483647"),
        ("node: 3", "node (f.yaml:1) must hold `key: value` lines"),
        ("- a", "the file (f.yaml:1) must hold `key: value` lines"),
        ("node: {id: {a: b}}", "node.id (f.yaml:1) is a setting, not a section"),
        ("node: {id: [1]}", "node.id: '[1]' (f.yaml:1) is not allowed"),
        ("node:\n  id: 1\n  id: 2", "node.id (f.yaml:3) is given twice"),
        ("node: {id: '${MISSING}'}", "node.id (f.yaml:1) needs the environment variable MISSING"),
        ("node:\n\t- x", "f.yaml:2 is not valid YAML"),
        ("a: &a {a: *a}", "unknown setting a (f.yaml:1)"),
        ("[" * 5_000, "f.yaml is not valid YAML: RecursionError"),
        (
            "node: {id: ${ID:4}}",
            "f.yaml:1 is not valid YAML: expected ',' or '}', but got '{'; inside { } a ${NAME",
        ),
        ("\x00", "f.yaml is not valid YAML"),
        ("node: {id: 1e999}", "node.id: '1e999' (f.yaml:1) is not allowed"),
    ],
    ids=lambda text: str(text)[:30],
)
def test_what_is_wrong_in_a_file_is_said_with_its_line(text: str, complaint: str) -> None:
    assert problems_of(text)[0].startswith(complaint)


def test_binding_wider_than_loopback_without_authentication_is_warned_of() -> None:
    assert warnings_for(Config()) == []
    for text in (":8080", "0.0.0.0:8080", "192.168.0.1:8080", "[::]:8080"):
        config = load(overrides=[override("--set", f"listen.http={text}")]).config

        [warning] = warnings_for(config)

        assert "listen.http" in warning
        assert "bind to 127.0.0.1" in warning


def test_authentication_or_a_switched_off_endpoint_silences_the_warning() -> None:
    secure = load(
        overrides=[override("--set", "listen.http=:8080"), override("--set", "security.enabled=true")]
    )
    off = load(
        overrides=[override("--set", "listen.metrics=:9090"), override("--set", "metrics.enabled=false")]
    )

    assert warnings_for(secure.config) == warnings_for(off.config) == []


def test_giving_up_durability_is_warned_of() -> None:
    loaded = load(overrides=[override("--set", "storage.fsync.mode=none")])

    assert any("power cut" in warning for warning in warnings_for(loaded.config))
