import pytest

from penstock.config import (
    ConfigError,
    ListenAddress,
    ListenerSetting,
    load,
    not_available,
    override,
    warnings_for,
)
from penstock.config.loader import effective
from penstock.config.yaml_file import read_yaml


@pytest.fixture(autouse=True)
def no_file_in_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.loader.DEFAULT_FILE", "/nonexistent/penstock.yaml")


def listeners_of(text: str) -> tuple[object, list[str]]:
    problems: list[str] = []
    values, _ = effective(list(read_yaml(text, "f.yaml", {"PORT": "9393"}, problems)), problems)
    return values["listen.listeners"], problems


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        (
            "inside=plaintext://127.0.0.1:9192",
            ListenerSetting("inside", "PLAINTEXT", ListenAddress("127.0.0.1", 9192), "auto"),
        ),
        (
            "a-b.c_1=SASL_SSL://:0/localhost:9193",
            ListenerSetting("a-b.c_1", "SASL_SSL", ListenAddress("", 0), ListenAddress("localhost", 9193)),
        ),
        (
            "six=ssl://[::1]:1/[::1]:0",
            ListenerSetting("six", "SSL", ListenAddress("::1", 1), ListenAddress("::1", 0)),
        ),
    ],
)
def test_a_listener_is_read_from_one_line_and_shown_as_it(text: str, listener: ListenerSetting) -> None:
    assert ListenerSetting.parse(text) == listener
    assert ListenerSetting.parse(str(listener)) == listener


@pytest.mark.parametrize(
    "text",
    [
        "",
        "inside",
        "plaintext://127.0.0.1:9192",
        "=plaintext://127.0.0.1:9192",
        "in side=plaintext://127.0.0.1:9192",
        "inside=http://127.0.0.1:9192",
        "inside=plaintext://127.0.0.1",
        "inside=plaintext://127.0.0.1:1/:2",
    ],
)
def test_what_is_no_listener_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listen\.listeners"):
        load(overrides=[override("--set", f"listen.listeners={text or '-'}")])


def test_the_file_may_write_a_listener_out_or_on_one_line() -> None:
    found, problems = listeners_of(
        "listen:\n"
        "  listeners:\n"
        "    - {name: inside, protocol: PLAINTEXT, bind: '127.0.0.1:9192', advertised: 'localhost:9192'}\n"
        "    - name: outside\n"
        "      bind: 127.0.0.1:${PORT}\n"
        "    - third=plaintext://127.0.0.1:9494\n"
    )

    assert problems == []
    assert found == (
        ListenerSetting(
            "inside", "PLAINTEXT", ListenAddress("127.0.0.1", 9192), ListenAddress("localhost", 9192)
        ),
        ListenerSetting("outside", "PLAINTEXT", ListenAddress("127.0.0.1", 9393)),
        ListenerSetting("third", "PLAINTEXT", ListenAddress("127.0.0.1", 9494)),
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[{name: a, bind: 'h:1', port: 2}]", "listen.listeners (f.yaml:1): unknown key port"),
        ("[{name: a}]", "listen.listeners (f.yaml:1): a listener needs bind"),
        ("[{name: a, bind: [h]}]", "listen.listeners (f.yaml:1): its parts must be single values"),
        ("[[a]]", "listen.listeners (f.yaml:1) is a setting, not a section"),
    ],
)
def test_a_listener_written_out_wrongly_is_named_with_its_line(text: str, complaint: str) -> None:
    _, problems = listeners_of(f"listen: {{listeners: {text}}}")

    assert problems[0].startswith(complaint)


def test_only_listeners_may_be_written_out() -> None:
    _, problems = listeners_of("node: {roles: [{name: broker}]}")

    assert problems[0] == "node.roles (f.yaml:1): expected a list of broker | controller (at least one)"


def test_the_main_listener_stands_first() -> None:
    listen = load(
        overrides=[
            override("--set", "listen.advertised=broker.example:9092"),
            override("--set", "listen.listeners=inside=plaintext://127.0.0.1:9192"),
        ]
    ).config.listen

    assert listen.kafka_listeners == (
        ListenerSetting(
            "PLAINTEXT", "PLAINTEXT", ListenAddress("127.0.0.1", 9092), ListenAddress("broker.example", 9092)
        ),
        ListenerSetting("inside", "PLAINTEXT", ListenAddress("127.0.0.1", 9192), "auto"),
    )


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("listen.listeners=a=ssl://h:1,A=ssl://h:2", "names a twice"),
        ("listen.listeners=plaintext=ssl://h:1", "names PLAINTEXT, which is the listener of listen.kafka"),
        (
            "listen.listeners=a=plaintext://127.0.0.1:9092",
            "listen.kafka .default. and listen.listeners .--set. both listen on port 9092",
        ),
        ("listen.listeners=a=plaintext://h:1,b=plaintext://:1", "both listen on port 1"),
        ("listen.advertised=:9092", "needs a host that clients can reach"),
        ("groups.session_timeout_ms_min=1800001", "must not be above groups.session_timeout_ms_max"),
    ],
)
def test_listeners_that_cannot_be_together_are_refused(assignment: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(overrides=[override("--set", assignment)])


def test_a_listener_for_every_interface_is_warned_about() -> None:
    config = load(overrides=[override("--set", "listen.listeners=wide=plaintext://:9192")]).config

    assert [warning.split(":")[0] for warning in warnings_for(config)] == ["listen.listeners wide ("]


@pytest.mark.parametrize(
    "assignment", ["listen.protocol=SASL_PLAINTEXT", "listen.listeners=staff=sasl_plaintext://127.0.0.1:9192"]
)
def test_logins_that_decide_nothing_are_warned_about(assignment: str) -> None:
    chosen = [override("--set", text) for text in (assignment, "rest.enabled=false")]
    config = load(overrides=chosen).config

    [warning] = warnings_for(config)
    assert "whoever has logged in may do everything" in warning
    assert not_available(config) == []
    assert warnings_for(load(overrides=[*chosen, override("--set", "security.enabled=true")]).config) == []


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        (
            "listen.protocol=SASL_PLAINTEXT",
            "listen.protocol SASL_PLAINTEXT: REST, WebSocket and gRPC ask who is",
        ),
        (
            "listen.listeners=staff=sasl_plaintext://127.0.0.1:9192",
            "listen.listeners staff (SASL_PLAINTEXT): REST, WebSocket and gRPC ask who is",
        ),
    ],
)
def test_what_a_node_cannot_do_yet_is_said_and_not_ignored(assignment: str, complaint: str) -> None:
    config = load(overrides=[override("--set", assignment)]).config

    assert [problem[: len(complaint)] for problem in not_available(config)] == [complaint]
    assert not_available(load().config) == []
