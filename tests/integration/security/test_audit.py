"""The audit log of a running node: its files, its topic, and the commands that read them."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main
from penstock.client import ClientError, Endpoint
from penstock.client.access import AccessAdmin
from penstock.client.connection import connect
from penstock.client.connection_security import LoginFailed
from tests.support.clusters import until
from tests.support.nodes import NodeProcess
from tests.support.small_disk import small_disk


class AuditedNode:
    """A node that asks who is calling, and writes down what they do."""

    def __init__(self, root: Path, *settings: str) -> None:
        password = root / "password"
        password.write_text("admin-pw\n")
        password.chmod(0o600)
        self.process = NodeProcess(
            root / "data",
            "listen.protocol=SASL_PLAINTEXT",
            "security.enabled=true",
            "security.super_users=admin",
            "security.admin_user=admin",
            f"security.admin_password_file={password}",
            "security.audit.enabled=true",
            *settings,
        ).start()
        self.directory = root / "data" / "audit"

    def endpoint(self, user: str, password: str) -> Endpoint:
        return Endpoint(
            self.process.kafka,
            {
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": user,
                "sasl.password": password,
            },
        )

    @property
    def admin(self) -> Endpoint:
        return self.endpoint("admin", "admin-pw")

    def await_admin(self) -> AccessAdmin:
        until(lambda: _logs_in(self.admin), "the administrator has its password")
        return AccessAdmin(self.admin)

    def copied(self, root: Path) -> list[dict[str, Any]]:
        """What `__audit` has."""
        login = root / "login.properties"
        login.touch(0o600)
        login.write_text("".join(f"{key}={value}\n" for key, value in self.admin.options.items()))
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "consume", "__audit", "--bootstrap", self.process.kafka],
            env={**os.environ, "PENSTOCK_COMMAND_CONFIG": str(login)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]


def _logs_in(endpoint: Endpoint) -> bool:
    try:
        connect(endpoint).close()
    except LoginFailed:
        return False
    return True


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, in this process: starting another one takes longer than all it does."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["audit", *arguments])
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def entries(*arguments: str) -> list[dict[str, Any]]:
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_files_topic_and_commands_agree(tmp_path: Path) -> None:
    node = AuditedNode(tmp_path, "security.audit.topic=true")
    try:
        admin = node.await_admin()
        admin.set_password("alice", "alice-pw")
        with pytest.raises(ClientError):
            AccessAdmin(node.endpoint("alice", "alice-pw")).users()
        with pytest.raises(LoginFailed):
            connect(node.endpoint("alice", "not-her-pw"))
        where = ("--directory", str(node.directory))
        until(lambda: len(entries("search", *where, "--user", "alice")) == 3, "alice is in the log")

        refused = entries("search", *where, "--user", "alice", "--refused")
        assert [(each["operation"], each["decision"]) for each in refused] == [
            ("describe", "refused"),
            ("login", "refused"),
        ]
        (change,) = entries("search", *where, "--api", "AlterUserScramCredentials")
        assert change["principal"] == "User:admin"
        assert entries("tail", *where, "-n", "1") == entries("tail", *where)[-1:]
        assert entries("search", *where, "--since", "2030-01-01T00:00:00Z") == []
        assert "alice: unknown user or wrong password" in command("tail", *where).stdout

        lines = entries("search", *where)
        until(lambda: node.copied(tmp_path)[: len(lines)] == lines, "the topic has what the file has")
    finally:
        node.process.stop()
    everything = (node.directory / "audit.log").read_text()
    for secret in ("admin-pw", "alice-pw", "not-her-pw"):
        assert secret not in everything


def test_a_full_disk_does_not_stop_the_node(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small") as small:
        node = AuditedNode(tmp_path, f"security.audit.directory={small / 'audit'}")
        try:
            node.await_admin()
            filler = small / "filler"
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))
            with pytest.raises(LoginFailed):
                connect(node.endpoint("alice", "wrong"))
            until(lambda: "audit.not_written" in node.process.events.read_text(), "the event")

            connect(node.admin).close()
            filler.unlink()
            until(lambda: "audit.written_again" in node.process.events.read_text(), "the other event")
        finally:
            node.process.kill()
        found = entries("search", "--directory", str(small / "audit"), "--user", "alice")
        assert [each["decision"] for each in found] == ["refused"]


def test_a_directory_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    line = [
        *(sys.executable, "-m", "penstock.cli", "up", "--data-dir", str(tmp_path / "data")),
        *("--set", "security.audit.enabled=true", "--set", f"security.audit.directory={blocked}/audit"),
        *(
            "--kafka",
            "127.0.0.1:0",
            "--http",
            "127.0.0.1:0",
            "--metrics",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
        ),
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert "cannot write the audit log" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()
