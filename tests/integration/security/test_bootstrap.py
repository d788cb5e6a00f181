"""`penstock user bootstrap`: the first administrator of a cluster."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.client import Endpoint
from penstock.client.access import AccessAdmin
from penstock.client.connection import connect
from penstock.client.connection_security import LoginFailed
from penstock.core.metadata.access import AclFilter
from penstock.security.audit.file import read_lines
from penstock.security.first_administrator import FirstAdministratorFile, first_administrator
from tests.support.clusters import until
from tests.support.nodes import NodeProcess

PASSWORD = "the first password"
SECURED = ("listen.protocol=SASL_PLAINTEXT", "security.enabled=true")


def endpoint(node: NodeProcess, user: str = "root", password: str = PASSWORD) -> Endpoint:
    return Endpoint(
        node.kafka,
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        },
    )


def can_log_in(where: Endpoint) -> bool:
    try:
        connect(where).close()
    except LoginFailed:
        return False
    return True


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    made = NodeProcess(tmp_path / "data", *SECURED, "security.audit.enabled=true")
    yield made
    made.kill()


def bootstrap(node: NodeProcess, password_file: Path, user: str = "root", *settings: str) -> int:
    given = [f"node.data_dir={node.data_dir}", *SECURED, *settings]
    return main(
        ["user", "bootstrap", user, "--password-file", str(password_file)]
        + [word for setting in given for word in ("--set", setting)]
    )


def test_a_blank_data_directory_gets_an_administrator_who_may_add_others(
    node: NodeProcess, password_file: Path
) -> None:
    assert bootstrap(node, password_file) == 0
    left = FirstAdministratorFile(str(node.data_dir))
    assert left.path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD.encode() not in left.path.read_bytes()

    node.start()
    until(lambda: can_log_in(endpoint(node)), "the administrator can log in")
    AccessAdmin(endpoint(node)).set_password("alice", "alice's")
    assert can_log_in(endpoint(node, "alice", "alice's"))
    until(lambda: not left.is_there, "the file is gone")


def test_a_running_node_takes_it_at_once_and_only_once(
    node: NodeProcess, password_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node.start()
    assert not can_log_in(endpoint(node))
    until(lambda: "security.nobody_can_log_in" in node.said(), "the node says what is missing")

    assert bootstrap(node, password_file) == 0
    assert can_log_in(endpoint(node))

    password_file.write_text("another password")
    capfd.readouterr()
    for user in ("root", "mallory"):
        assert bootstrap(node, password_file, user) == 1
        said = capfd.readouterr().err
        assert "has users, access rules or API keys already" in said
        assert said.count("\n") == 1
        assert not can_log_in(endpoint(node, user, "another password"))
    assert not FirstAdministratorFile(str(node.data_dir)).is_there
    told = until(lambda: told_of_administrators(node, 3), "the audit log tells all of them")
    assert [(user, error is None) for user, error in told] == [
        ("root", True),
        ("root", False),
        ("mallory", False),
    ]


def told_of_administrators(node: NodeProcess, count: int) -> list[tuple[str, str | None]]:
    """The users of the lines about first administrators, with their errors; nothing if there are fewer."""
    lines = [json.loads(line) for line in read_lines(str(node.data_dir / "audit"))]
    found = [(line["resource"], line["error"]) for line in lines if line["api"] == "FirstAdministrator"]
    return found if len(found) >= count else []


def test_a_cluster_that_has_users_takes_none_at_its_next_start(
    node: NodeProcess, password_file: Path
) -> None:
    assert bootstrap(node, password_file) == 0
    node.start()
    until(lambda: can_log_in(endpoint(node)), "the administrator can log in")
    node.stop()

    password_file.write_text("another password")
    assert bootstrap(node, password_file, "mallory") == 0
    node.start()
    until(lambda: "security.first_administrator_refused" in node.said(), "the node says that it refused")
    assert [each.user for each in AccessAdmin(endpoint(node)).users()] == ["root"]


def test_a_super_user_needs_no_rules(node: NodeProcess, password_file: Path) -> None:
    given = ("security.super_users=root",)
    node = NodeProcess(node.data_dir, *SECURED, *given)
    try:
        node.start()
        assert bootstrap(node, password_file, "root", *given) == 0
        assert AccessAdmin(endpoint(node)).acls(AclFilter()) == []
    finally:
        node.kill()


def test_a_file_that_others_may_read_is_not_taken(node: NodeProcess) -> None:
    left = FirstAdministratorFile(str(node.data_dir))
    left.write(first_administrator("root", PASSWORD, ()))
    left.path.chmod(0o644)

    node.start()
    reason = until(left.take_refusal, "the node refuses it")
    assert "others may read it" in reason
    assert not can_log_in(endpoint(node))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("security.enabled=false",), "security.enabled is false"),
        (("node.roles=controller",), "no broker"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    node: NodeProcess,
    password_file: Path,
    capsys: pytest.CaptureFixture[str],
    settings: tuple[str, ...],
    said: str,
) -> None:
    assert bootstrap(node, password_file, "root", *settings) == 1
    assert said in capsys.readouterr().err
    assert not os.path.lexists(node.data_dir)
