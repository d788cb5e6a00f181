"""Files with secrets."""

import os
from pathlib import Path

import pytest

from penstock.cli.broker_options import endpoint
from penstock.client.login_file import InvalidLogin, login_options
from penstock.security.private_files import SecretExposed, check_private, read_private


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("pw")
    path.chmod(0o600)
    return path


def test_a_file_of_ones_own_is_used(secret: Path) -> None:
    check_private(str(secret))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_others_may_do_nothing_with_it(secret: Path, mode: int) -> None:
    secret.chmod(mode)

    with pytest.raises(SecretExposed, match="others may read it: chmod 600"):
        check_private(str(secret))


def test_of_a_link_the_file_counts(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(secret)
    check_private(str(link))

    secret.chmod(0o644)
    with pytest.raises(SecretExposed, match="others may read it"):
        check_private(str(link))


def test_a_directory_in_which_others_could_replace_it(secret: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(SecretExposed, match="others may replace it"):
        check_private(str(secret))

    tmp_path.chmod(0o1777)
    check_private(str(secret))


def test_a_directory_of_ones_own_group(secret: Path, tmp_path: Path) -> None:
    os.chown(tmp_path, -1, os.getegid())
    tmp_path.chmod(0o770)

    check_private(str(secret))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_in_which_another_group_could_replace_it(secret: Path, tmp_path: Path) -> None:
    os.chown(tmp_path, -1, 12_345)
    tmp_path.chmod(0o750)
    check_private(str(secret))

    tmp_path.chmod(0o770)
    with pytest.raises(SecretExposed, match="others may replace it: chmod g-w"):
        check_private(str(secret))

    tmp_path.chmod(0o1770)
    check_private(str(secret))


class ReplacedAfterALook:
    """A path that others put their own file at, as soon as somebody has looked at it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looks = 0

    def __fspath__(self) -> str:
        self._looks += 1
        if self._looks > 1:
            others = self._path.with_name("others")
            others.write_text("known to others")
            others.replace(self._path)
        return str(self._path)


def test_what_is_read_is_what_was_checked(secret: Path) -> None:
    assert read_private(ReplacedAfterALook(secret), 100) == b"pw"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    with pytest.raises(SecretExposed, match="is no file"):
        read_private(tmp_path / "pipe", 100)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else(secret: Path) -> None:
    os.chown(secret, 12_345, -1)

    with pytest.raises(SecretExposed, match="belongs to another user"):
        check_private(str(secret))


def test_no_file_at_all(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SecretExposed):
            check_private(str(path))


@pytest.mark.parametrize("key", ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"])
def test_a_secret_is_not_taken_from_the_command_line(key: str) -> None:
    with pytest.raises(InvalidLogin, match="everyone on this machine can see") as refused:
        endpoint("127.0.0.1:1", [f"{key}=hunter2"])

    assert "hunter2" not in str(refused.value)


def test_a_line_that_is_none_is_not_shown(secret: Path) -> None:
    secret.write_text("sasl.username=admin\nsasl.password hunter2\n")

    with pytest.raises(InvalidLogin, match="line 2: expected key=value") as refused:
        login_options({"PENSTOCK_COMMAND_CONFIG": str(secret)})

    assert "hunter2" not in str(refused.value)
