"""What other users of a machine may see of a node: no directory of its data, and no core file of its keys."""

import os
import resource
import stat
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.client import Endpoint, TopicAdmin
from penstock.security.key_services import KeyringKeys
from tests.support.nodes import NodeProcess

NOW_MS = 1_794_997_800_000


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def directories(node: NodeProcess) -> list[Path]:
    return [node.data_dir, *(path for path in node.data_dir.rglob("*") if path.is_dir())]


def core_bytes_max(node: NodeProcess) -> str:
    (line,) = [
        line
        for line in Path(f"/proc/{node.pid}/limits").read_text().splitlines()
        if line.startswith("Max core file size")
    ]
    return line.split()[4]


def test_directories_of_a_node_are_its_own_and_older_metadata_is_closed(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        node = NodeProcess(tmp_path / "data").start()
    finally:
        os.umask(before)
    TopicAdmin(Endpoint(node.kafka)).create("orders", 2, 1, {})
    meta = node.data_dir / "meta"
    node.stop()
    made = directories(node)
    modes = {mode(path) for path in made}
    meta.chmod(0o755)

    node.start().stop()

    assert meta in made
    assert node.data_dir / "logs/orders/1" in made
    assert modes == {0o700}
    assert mode(meta) == 0o700


def test_a_data_directory_that_the_first_administrator_has_made_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    password = tmp_path / "password"
    password.write_text("first-pw\n")
    password.chmod(0o600)
    node = NodeProcess(tmp_path / "above/data")
    before = os.umask(0)
    try:
        command = ["user", "bootstrap", "root", "--password-file", str(password)]
        settings = [
            f"node.data_dir={node.data_dir}",
            "listen.protocol=SASL_PLAINTEXT",
            "security.enabled=true",
        ]
        given = [word for setting in settings for word in ("--set", setting)]
        assert main([*command, *given]) == 0, capsys.readouterr().err
    finally:
        os.umask(before)

    assert {mode(path) for path in directories(node)} == {0o700}
    # That one is not the node's.
    assert mode(node.data_dir.parent) == 0o777


def test_a_node_that_encrypts_leaves_no_core_file(tmp_path: Path) -> None:
    keyring = tmp_path / "keyring"
    KeyringKeys(str(keyring)).create(NOW_MS)
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    node = NodeProcess(
        tmp_path / "data", "security.encryption.enabled=true", f"security.encryption.keyring={keyring}"
    ).start()
    try:
        # One byte: see `runtime.core_files`.
        assert core_bytes_max(node) == ("0" if most == 0 else "1")
    finally:
        node.kill()
