"""The files of an audit log."""

import os
import stat
from pathlib import Path

import pytest

from penstock.security import ANONYMOUS, Session
from penstock.security.audit import AuditDecision
from penstock.security.audit.entry import entry_line, entry_of
from penstock.security.audit.file import AuditFile, AuditUnusable, audit_files, read_lines


def names(directory: Path) -> list[str]:
    return [path.name for path in audit_files(str(directory))]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        AuditFile(str(tmp_path / "audit"), 1_000, 3).write(b"one\n")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "audit" / "audit.log").stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.touch(0o644)

    AuditFile(str(tmp_path), 1_000, 3).write(b"one\n")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.touch()
    (tmp_path / "audit.log").symlink_to(target)

    with pytest.raises(AuditUnusable, match="cannot write the audit log"):
        AuditFile(str(tmp_path), 1_000, 3).prepare()

    assert target.read_bytes() == b""


def test_files_are_rotated_by_size_and_the_oldest_is_deleted(tmp_path: Path) -> None:
    file = AuditFile(str(tmp_path), 100, 3)

    for number in range(20):
        file.write(b"%039d\n" % number)

    assert names(tmp_path) == ["audit.log.2", "audit.log.1", "audit.log"]
    assert [int(line) for line in read_lines(str(tmp_path))] == list(range(14, 20))


def test_fewer_files_than_before_delete_what_is_too_much(tmp_path: Path) -> None:
    for number in range(6):
        AuditFile(str(tmp_path), 10, 6).write(b"%09d\n" % number)
    assert len(names(tmp_path)) == 6

    AuditFile(str(tmp_path), 10, 2).write(b"%09d\n" % 6)

    assert [int(line) for line in read_lines(str(tmp_path))] == [5, 6]


def test_one_file_alone_begins_anew(tmp_path: Path) -> None:
    file = AuditFile(str(tmp_path), 10, 1)

    file.write(b"%09d\n" % 1)
    file.write(b"%09d\n" % 2)

    assert list(read_lines(str(tmp_path))) == [b"%09d\n" % 2]


def test_half_a_line_of_a_crash_does_not_swallow_the_next(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_bytes(b'one\n{"half')

    AuditFile(str(tmp_path), 1_000, 3).write(b"two\n")

    assert list(read_lines(str(tmp_path))) == [b"one\n", b'{"half\n', b"two\n"]


def test_a_file_that_was_moved_away_is_followed_by_another(tmp_path: Path) -> None:
    file = AuditFile(str(tmp_path), 1_000, 3)
    file.write(b"one\n")
    os.replace(tmp_path / "audit.log", tmp_path / "taken")

    file.write(b"two\n")

    assert (tmp_path / "audit.log").read_bytes() == b"two\n"


def test_no_audit_log_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AuditUnusable, match="there is no audit log in"):
        list(read_lines(str(tmp_path)))


def test_the_longest_line_is_read_in_one_piece(tmp_path: Path) -> None:
    name = "\N{GRINNING FACE}" * 1_000
    session = Session(ANONYMOUS, "PLAINTEXT", name, name, name)
    line = entry_line(
        entry_of(
            session,
            0,
            "CreateAcls",
            "alter",
            ("topic", name),
            AuditDecision.ALLOWED,
            error=name,
            details=(name,) * 100,
        ),
        1,
    )
    AuditFile(str(tmp_path), 1 << 20, 3).write(line * 2)

    assert list(read_lines(str(tmp_path))) == [line, line]
