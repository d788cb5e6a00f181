"""Kafka's own commands manage who may do what: kafka-acls, kafka-configs, the console's two."""

import subprocess
from pathlib import Path

import pytest

from benchmarks.peers.maven import PeerUnavailable, jars, java
from tests.compatibility.clients import java_programs
from tests.compatibility.secured_node import SecuredNode

SECONDS = 120
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class Tools:
    """Commands as a user that a file of settings logs in."""

    def __init__(self, secured: SecuredNode, directory: Path) -> None:
        self._secured = secured
        self._directory = directory
        self._path = f"{java_programs.jars()}/*:{jars()}/*"

    def config(self, user: str, password: str | None = None) -> str:
        changes = {} if password is None else {"secret": password}
        login = self._secured.login("SASL_SSL", "SCRAM-SHA-512", user, **changes)
        file = self._directory / f"{user}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in login.java(self._directory).items()))
        return str(file)

    def run(self, program: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        address = self._secured.addresses["SASL_SSL"]
        return subprocess.run(
            [java(), *java_programs.QUIET, "-cp", self._path, program, "--bootstrap-server", address, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def as_admin(self, program: str, *words: str) -> str:
        done = self.run(program, "--command-config", self.config("admin"), *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def tools(secured: SecuredNode, tmp_path: Path) -> Tools:
    try:
        return Tools(secured, tmp_path)
    except PeerUnavailable as reason:
        pytest.skip(f"Kafka's tools cannot be run here: {reason}")


def test_a_user_gets_a_password_and_rules_and_loses_one(tools: Tools) -> None:
    user = ("--entity-type", "users", "--entity-name", "tina")
    tools.as_admin(CONFIGS, "--alter", *user, "--add-config", "SCRAM-SHA-512=[password=tina-pw]")
    assert "SCRAM-SHA-512=iterations=4096" in tools.as_admin(CONFIGS, "--describe", *user)

    config = ("--command-config", tools.config("tina", "tina-pw"))
    prefix = ("--resource-pattern-type", "prefixed", "--topic", "tina-")
    tools.as_admin(ACLS, "--add", "--allow-principal", "User:tina", "--producer", *prefix)
    tools.as_admin(ACLS, "--add", "--allow-principal", "User:tina", "--consumer", *prefix, "--group", "tina-")
    listed = tools.as_admin(ACLS, "--list", "--principal", "User:tina")
    assert "(principal=User:tina, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    assert "ResourcePattern(resourceType=GROUP, name=tina-, patternType=PREFIXED)" in listed

    sent = tools.run(PRODUCER, *config, "--topic", "tina-t", stdin="hello\n")
    assert sent.returncode == 0, sent.stderr
    read = tools.run(
        CONSUMER,
        *config,
        *("--topic", "tina-t", "--group", "tina-g", "--from-beginning", "--max-messages", "1"),
    )
    assert read.stdout == "hello\n", read.stderr

    tools.as_admin(ACLS, "--remove", "--force", "--allow-principal", "User:tina", "--producer", *prefix)
    assert "operation=WRITE" not in tools.as_admin(ACLS, "--list", "--principal", "User:tina")


@pytest.mark.parametrize(
    ("kind", "name", "quota"),
    [
        ("users", "tina", "producer_byte_rate=1024.0"),
        ("clients", "console", "consumer_byte_rate=2048.0"),
        ("ips", "192.0.2.7", "connection_creation_rate=5.0"),
    ],
)
def test_a_quota_is_set_and_shown(tools: Tools, kind: str, name: str, quota: str) -> None:
    entity = ("--entity-type", kind, "--entity-name", name)

    tools.as_admin(CONFIGS, "--alter", *entity, "--add-config", quota)
    assert quota in tools.as_admin(CONFIGS, "--describe", *entity)
