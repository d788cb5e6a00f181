"""Keyrings: what is in the file, who may have it, and what a change of it leaves behind."""

import base64
import fcntl
import os
from pathlib import Path

import pytest

from penstock.security.key_services import keyring as keyring_module
from penstock.security.key_services.keyring import (
    Keyring,
    KeyringDamaged,
    KeyringKey,
    KeyringKeys,
    decode_keyring,
    encode_keyring,
)
from penstock.storage.sealing import KeyUnavailable

NOW_MS = 1_794_997_800_000
OLD, NEW = b"o" * 32, b"n" * 32
KEYRING = Keyring({"2025": KeyringKey(OLD, 5), "2026": KeyringKey(NEW, NOW_MS)}, "2026")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A keyring with two keys."""
    path = tmp_path / "keyring"
    path.write_bytes(encode_keyring(KEYRING))
    path.chmod(0o600)
    return path


def test_every_key_is_loaded_and_one_is_current(path: Path) -> None:
    keys = KeyringKeys(str(path)).load()

    assert keys.secrets == {"2025": OLD, "2026": NEW}
    assert (keys.current, keys.created_ms) == ("2026", NOW_MS)


def test_a_rotation_adds_a_key_that_is_current_from_then_on(path: Path) -> None:
    rotated = KeyringKeys(str(path)).rotate(NOW_MS)

    assert list(rotated.secrets)[:2] == ["2025", "2026"]
    assert rotated.current.startswith("2026-11-18-")
    assert rotated.created_ms == NOW_MS
    assert len(rotated.secrets[rotated.current]) == 32
    assert KeyringKeys(str(path)).load() == rotated
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(path.parent)) == ["keyring"]


def test_a_new_keyring_has_one_key_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "keyring"

    name = KeyringKeys(str(path)).create(NOW_MS)

    assert KeyringKeys(str(path)).load().current == name
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyUnavailable, match="exists already"):
        KeyringKeys(str(path)).create(NOW_MS)


def test_an_old_key_can_be_taken_out_and_the_current_one_cannot(path: Path) -> None:
    service = KeyringKeys(str(path))

    service.remove("2025")

    assert list(service.load().secrets) == ["2026"]
    service.remove("2025")
    with pytest.raises(KeyUnavailable, match="2026 is the current master key: rotate first"):
        service.remove("2026")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_keyring_that_others_may_read_is_not_used(path: Path, mode: int) -> None:
    path.chmod(mode)

    for use in (KeyringKeys(str(path)).load, lambda: KeyringKeys(str(path)).rotate(NOW_MS)):
        with pytest.raises(KeyUnavailable, match="others may read it: chmod 600"):
            use()


def test_a_keyring_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyUnavailable, match=r"absent: No such file"):
        KeyringKeys(str(tmp_path / "absent")).load()
    with pytest.raises(KeyUnavailable, match="cannot be written: No such file"):
        KeyringKeys(str(tmp_path / "nowhere" / "keyring")).create(NOW_MS)


def test_people_may_write_comments_and_take_lines_out(path: Path) -> None:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "# ours", "", *lines[2:]]) + "\n")

    assert list(KeyringKeys(str(path)).load().secrets) == ["2026"]


def test_every_changed_character_of_a_key_is_found_and_none_is_shown(path: Path) -> None:
    content = path.read_text()
    start = content.index("key 2025")
    end = content.index("\n", start)

    for position in range(start + 4, end):
        changed = "A" if content[position] != "A" else "B"
        path.write_text(content[:position] + changed + content[position + 1 :])
        with pytest.raises(KeyringDamaged) as raised:
            KeyringKeys(str(path)).load()
        assert base64.b64encode(OLD).decode()[:10] not in str(raised.value)
        assert "line 2" in str(raised.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "first line"),
        (b"penstock-keyring 2\n", "first line"),
        (b"\xff", "ASCII"),
        (encode_keyring(KEYRING).replace(b"current 2026", b"current 2027"), "current key is not in it"),
        (encode_keyring(KEYRING).replace(b"current 2026\n", b""), "current key is not in it"),
        (encode_keyring(KEYRING) + b"current 2025\n", "says something twice"),
        (encode_keyring(KEYRING) + encode_keyring(KEYRING).splitlines()[1], "says something twice"),
        (encode_keyring(KEYRING) + b"kex a b c d\n", "line 5"),
        (b"penstock-keyring 1\n" + b"#" * (1 << 20), "more than"),
        (encode_keyring(Keyring({"short": KeyringKey(b"x", 1)}, "short")), "no key of 32 bytes"),
        (encode_keyring(Keyring({"bad/name": KeyringKey(OLD, 1)}, "bad/name")), "no key of 32 bytes"),
    ],
)
def test_what_is_no_keyring_is_refused_with_a_reason(content: bytes, reason: str) -> None:
    with pytest.raises(KeyringDamaged, match=reason):
        decode_keyring(content)


def test_a_process_that_ended_in_the_middle_of_a_rotation_leaves_the_old_keyring(path: Path) -> None:
    (path.parent / "keyring.new").write_bytes(b"penstock-keyr")

    rotated = KeyringKeys(str(path)).rotate(NOW_MS)

    assert KeyringKeys(str(path)).load() == rotated
    assert os.listdir(path.parent) == ["keyring"]


def test_a_rotation_that_cannot_be_written_leaves_the_old_keyring(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyUnavailable, match="cannot be written: No space left"):
        KeyringKeys(str(path)).rotate(NOW_MS)
    monkeypatch.undo()

    assert KeyringKeys(str(path)).load().current == "2026"
    assert os.listdir(path.parent) == ["keyring"]


def test_two_processes_do_not_change_a_keyring_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring_module, "_LOCK_SECONDS", 0.05)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(KeyUnavailable, match="another process keeps"):
            KeyringKeys(str(path)).rotate(NOW_MS)
    finally:
        os.close(descriptor)

    assert KeyringKeys(str(path)).load().current == "2026"


def test_a_keyring_behind_a_link_is_replaced_where_it_is(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)

    rotated = KeyringKeys(str(link)).rotate(NOW_MS)

    assert link.is_symlink()
    assert KeyringKeys(str(path)).load() == rotated


def test_nothing_of_a_key_is_in_its_repr() -> None:
    assert repr(OLD)[2:6] not in repr(KEYRING)
    assert repr(OLD)[2:6] not in repr(KEYRING.master_keys)
