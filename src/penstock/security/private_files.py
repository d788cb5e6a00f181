"""Files with secrets: nobody else may read them, or put others in their place."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.model import PenstockError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
# To look at a directory one need not be allowed to list it.
_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
# A pipe is not waited for, and nobody puts a link in the place of the file.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW


class SecretExposed(PenstockError):
    """A file with a secret cannot be used; says which, and what to do."""


def check_private(path: str | os.PathLike[str]) -> None:
    """Raise SecretExposed if others may read a file with a secret, own it, or replace it.

    Of a link it is the file behind it that counts, and the directory that this is in.
    """
    with _opened(path):
        pass


def read_private(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """The beginning of a file with a secret, or SecretExposed."""
    with _opened(path) as file, open(file, "rb", closefd=False) as content:
        return content.read(bytes_max)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[int]:
    """The descriptor of a private file: what is read is what was checked, whatever stands there meanwhile."""
    name = os.fspath(path)
    real = os.path.realpath(name)
    directory = file = -1
    try:
        directory = os.open(os.path.dirname(real), _LOOK)
        file = os.open(os.path.basename(real), _READ, dir_fd=directory)
        problem = _problem_with(os.fstat(file), os.fstat(directory))
        if problem is not None:
            raise SecretExposed(problem.format(path=name, directory=os.path.dirname(real)))
        yield file
    except OSError as error:
        raise SecretExposed(f"{name}: {error.strerror}") from None
    finally:
        for descriptor in (file, directory):
            if descriptor >= 0:
                os.close(descriptor)


def _problem_with(found: os.stat_result, above: os.stat_result) -> str | None:
    """Why a file in a directory is not private."""
    if not stat.S_ISREG(found.st_mode):
        return "{path} is no file"
    if found.st_mode & _OTHERS:
        return "{path} has a secret, and others may read it: chmod 600 {path}"
    if found.st_uid not in (0, os.geteuid()):
        return "{path} has a secret, and belongs to another user: chown it"
    if above.st_mode & stat.S_ISVTX:
        # There everyone replaces files of their own.
        return None
    if above.st_mode & stat.S_IWOTH:
        return "{path} has a secret, and others may replace it: chmod o-w {directory}"
    if above.st_mode & stat.S_IWGRP and above.st_gid not in (0, os.getegid(), *os.getgroups()):
        return "{path} has a secret, and others may replace it: chmod g-w {directory}"
    return None
