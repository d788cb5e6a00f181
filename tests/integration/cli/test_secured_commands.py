"""Every command that talks to brokers, against a node that wants TLS and a login."""

import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from penstock.cli import main
from penstock.cli.commands import announced, command_tree
from penstock.client import TopicAdmin
from tests.compatibility.secured_node import PASSWORDS, SecuredNode, secured_node

Run = Callable[..., subprocess.CompletedProcess[str]]
SECONDS = 30


class Row(NamedTuple):
    """A command line, what it is without rights, and its exit code with them."""

    words: str
    # A line that says no; or an exit code of 0 and nothing of what others have.
    shows_nothing: bool = False
    code: int = 0
    stdin: bytes = b"x\n"


# `{topic}` and the like stand for things that the administrator has made.
ROWS = (
    Row("topic create new-{number}"),
    Row("topic list", shows_nothing=True),
    Row("topic describe {topic}"),
    Row("topic alter {topic} --config retention.ms=86400000"),
    Row("topic delete {another_topic}"),
    Row("produce {topic}"),
    Row("produce {topic} --delay 1h"),
    Row("consume {topic}"),
    Row("consume {topic} --group {group}"),
    Row("group list", shows_nothing=True),
    Row("group describe {group}"),
    Row("group reset {group} --to earliest"),
    Row("group delete {another_group}"),
    Row("delay list", shows_nothing=True),
    Row("queue receive {topic} -g {queue}"),
    Row("queue ack {receipt} -g {queue}"),
    Row("queue nack {receipt} -g {queue}"),
    Row("queue reject {receipt} -g {queue}"),
    Row("queue renew {receipt} -g {queue}"),
    Row("queue peek {topic} -g {queue}"),
    Row("queue list", shows_nothing=True),
    Row("queue describe {queue}"),
    Row("queue pause {topic} -g {queue}"),
    Row("queue resume {topic} -g {queue}"),
    Row("queue reset {topic} -g {queue} --to earliest"),
    Row("queue forget {topic} -g {queue}"),
    Row("queue dlq {topic}"),
    Row("queue redrive {topic}"),
    Row("transaction list", shows_nothing=True),
    Row("transaction describe {transaction}"),
    Row("transaction abort {transaction}"),
    Row("transaction find-hanging", shows_nothing=True),
    Row("cluster status"),
    Row("cluster members"),
    Row("cluster reassign {topic} --to 1"),
    Row("cluster elect --preferred --all"),
    Row("cluster drain 1 --undo"),
    Row("cluster scrub"),
    Row("cluster scrub --now"),
    # There is nobody else: what it says is that, and not that one may not.
    Row("cluster add-voter 7", code=1),
    Row("cluster remove-voter 7", code=1),
    Row("cluster unregister 7", code=1),
    # There is nothing to raise, which everyone may know.
    Row("cluster upgrade", shows_nothing=True),
    Row("user list"),
    Row("user create user-{number} --password-file {password_file}"),
    Row("user password {user} --password-file {password_file}"),
    Row("user delete {user}"),
    Row("key create {user}"),
    Row("key list"),
    Row("key revoke {key}"),
    # The node has no encryption at rest, and says so to whoever may ask.
    Row("key status"),
    Row("key rotate", code=1),
    Row("acl list"),
    Row("acl allow --user {user} --topic t --operation read"),
    Row("acl deny --user {user} --topic t --operation read"),
    Row("acl delete --user {user} --topic t"),
    Row("quota list"),
    Row("quota set --user {user} producer_byte_rate=1000000"),
    Row("quota remove --user {user} producer_byte_rate"),
    Row("generate --topic metrics-{number} --count 10"),
    Row("bench produce --messages 10 --seconds 20 --bootstrap {address}"),
    Row("bench latency --messages 2 --seconds 20 --bootstrap {address}"),
    Row("bench queue --messages 10 --seconds 20 --bootstrap {address}"),
)
# Commands of the same family do what these do, with the same connections; others are tested elsewhere.
NOT_HERE = {
    "delay cancel": "tests/integration/cli/test_queue_commands.py, and the rights to it in the matrix",
    "bench consume": "as bench produce",
    "bench end-to-end": "as bench produce",
    "bench compare": "as bench produce",
    "bench delay": "as bench produce",
    "bench rest": "tests/integration/security_gateway",
    "bench grpc": "tests/integration/security_gateway",
    "bench websocket": "tests/integration/security_gateway",
    "pipeline run": "tests/spark/security",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredNode]:
    with secured_node(tmp_path_factory.mktemp("secured"), "topics.partitions=1") as node:
        yield node


@pytest.fixture
def run(
    secured: SecuredNode,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Run one command line as a user whose login is in a file."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP", secured.addresses["SASL_SSL"])
    monkeypatch.chdir(tmp_path)

    def command(user: str, words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        file = tmp_path / f"{user}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in secured.options(user).items()))
        file.chmod(0o600)
        monkeypatch.setenv("PENSTOCK_COMMAND_CONFIG", str(file))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        code = main(shlex.split(words))
        shown = capfd.readouterr()
        return subprocess.CompletedProcess(words, code, shown.out, shown.err)

    return command


class Things:
    """What command lines speak of, made by the administrator when a line needs it."""

    def __init__(self, secured: SecuredNode, run: Run, directory: Path) -> None:
        self._secured = secured
        self._run = run
        self._directory = directory
        self.names: list[str] = []

    def fill(self, words: str) -> str:
        wanted = [part.partition("}")[0] for part in words.split("{")[1:]]
        if "receipt" in wanted:
            wanted = ["topic", "queue", *wanted]
        made: dict[str, str] = {}
        for field in wanted:
            if field not in made:
                made[field] = getattr(self, field)(made)
        self.names = [made[name] for name in ("topic", "group", "queue", "transaction") if name in made]
        return words.format(**made)

    def _admin(self, words: str, stdin: bytes = b"") -> str:
        done = self._run("admin", words, stdin)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def number(self, _: dict[str, str]) -> str:
        return self._secured.new_name().removeprefix("user-")

    def address(self, _: dict[str, str]) -> str:
        return self._secured.addresses["SASL_SSL"]

    def password_file(self, _: dict[str, str]) -> str:
        file = self._directory / "password"
        file.write_text("another-pw\n")
        file.chmod(0o600)
        return str(file)

    def topic(self, _: dict[str, str]) -> str:
        name = f"topic-{self._secured.new_name()}"
        TopicAdmin(self._secured.endpoint()).create(name, 1, 1, {})
        self._admin(f"produce {name}", b"one\ntwo\n")
        return name

    another_topic = topic

    def group(self, made: dict[str, str]) -> str:
        name = f"group-{self._secured.new_name()}"
        self._admin(f"consume {made.get('topic') or self.topic({})} --group {name} --count 1")
        return name

    another_group = group

    def queue(self, made: dict[str, str]) -> str:
        """A group that has received, so that it has queues."""
        name = f"queue-{self._secured.new_name()}"
        if "topic" in made:
            told = json.loads(
                self._admin(f"queue receive {made['topic']} -g {name} -n 1 --json --wait-ms 5000")
            )
            self._receipt = str(told[0]["receipt"])
        return name

    def receipt(self, _: dict[str, str]) -> str:
        return self._receipt

    def transaction(self, _: dict[str, str]) -> str:
        """One that is open."""
        name = f"transaction-{self._secured.new_name()}"
        settings = self._secured.endpoint().settings(transactional_id=name)
        self._producer = Producer(settings)
        self._producer.init_transactions(SECONDS)
        self._producer.begin_transaction()
        self._producer.produce(self.topic({}), b"open")
        self._producer.flush(SECONDS)
        return name

    def user(self, _: dict[str, str]) -> str:
        return self._secured.add_user("first-pw")

    def key(self, _: dict[str, str]) -> str:
        self._admin("key create alice")
        keys = json.loads(self._admin("key list --json"))
        return str(keys[-1]["id"])


@pytest.fixture
def things(secured: SecuredNode, run: Run, tmp_path: Path) -> Things:
    return Things(secured, run, tmp_path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.words)
def test_an_administrator_may_and_a_user_without_rights_is_told_no_in_one_line(
    things: Things, run: Run, row: Row
) -> None:
    words = things.fill(row.words)

    refused = run("bob", words, row.stdin)
    allowed = run("admin", words, row.stdin)

    for done in (refused, allowed):
        said = done.stdout + done.stderr
        assert "Traceback" not in said
        assert [secret for secret in PASSWORDS.values() if secret in said] == []
    assert allowed.returncode == row.code, allowed.stderr
    assert "authoriz" not in allowed.stderr
    if row.shows_nothing:
        assert refused.returncode == 0, refused.stderr
        assert [name for name in things.names if name in refused.stdout] == []
        return
    complaints = [line for line in refused.stderr.splitlines() if line.startswith("penstock: ")]
    assert (refused.returncode, len(complaints)) == (1, 1), refused.stderr
    assert refused.stdout == ""
    assert any(
        word in complaints[0] for word in ("authoriz", "may not", "there is no topic", "does not exist")
    )


def _talking() -> dict[str, Any]:
    """The commands that have an option for where brokers or servers are."""

    def lines(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield name, command
            return
        for below, one in command.commands.items():
            yield from lines(one, f"{name} {below}".strip())

    return {
        name: command
        for name, command in lines(command_tree(announced(), strict=True), "")
        if {"--bootstrap", "--url"} & {flag for parameter in command.params for flag in parameter.opts}
    }


def test_every_command_that_talks_to_brokers_is_among_them() -> None:
    here = {name for name in _talking() if any(f"{row.words} ".startswith(f"{name} ") for row in ROWS)}

    assert here.isdisjoint(NOT_HERE)
    assert here | NOT_HERE.keys() == _talking().keys()


def test_every_one_of_them_says_how_to_log_in() -> None:
    for name, command in _talking().items():
        options = {flag: parameter for parameter in command.params for flag in parameter.opts}
        assert "--command-config" in options, name
        help_text = getattr(options["--command-config"], "help", "")
        assert "PENSTOCK_COMMAND_CONFIG" in help_text, name


def test_a_login_can_come_from_the_environment_alone(
    secured: SecuredNode, run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    del run
    for name, value in secured.options("admin").items():
        monkeypatch.setenv(f"PENSTOCK_OPTION_{name.replace('.', '_').upper()}", value)

    assert main(["user", "list", "--json"]) == 0
    assert {row["user"] for row in json.loads(capfd.readouterr().out)} >= {"admin", "alice", "bob"}


def test_a_wrong_password_is_one_line_that_does_not_have_it(
    secured: SecuredNode, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_OPTION_SASL_USERNAME", secured.add_user("right"))
    monkeypatch.setenv("PENSTOCK_OPTION_SASL_PASSWORD", "not-the-password")

    for words in ("cluster status", "topic list", "queue list", "produce t"):
        done = run("bob", words, b"x\n")

        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "not-the-password" not in done.stdout + done.stderr
        assert len([line for line in done.stderr.splitlines() if line.startswith("penstock: ")]) == 1
