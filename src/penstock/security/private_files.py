"""Files with secrets: nobody else may read them, or put others in their place."""

import os
import stat

from penstock.core.model import PenstockError

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SecretExposed(PenstockError):
    """A file with a secret cannot be used; says which, and what to do."""


def check_private(path: str) -> None:
    """Raise SecretExposed if others may read a file with a secret, own it, or replace it.

    Of a link it is the file behind it that counts, and the directory that this is in.
    """
    real = os.path.realpath(path)
    try:
        found, above = os.stat(real), os.stat(os.path.dirname(real))
    except OSError as error:
        raise SecretExposed(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(found.st_mode):
        raise SecretExposed(f"{path} is no file")
    if found.st_mode & _OTHERS:
        raise SecretExposed(f"{path} has a secret, and others may read it: chmod 600 {path}")
    if found.st_uid not in (0, os.geteuid()):
        raise SecretExposed(f"{path} has a secret, and belongs to another user: chown it")
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        raise SecretExposed(
            f"{path} has a secret, and others may replace it: chmod o-w {os.path.dirname(real)}"
        )


def read_private(path: str, bytes_max: int) -> bytes:
    """The beginning of a file with a secret, or SecretExposed."""
    check_private(path)
    try:
        with open(path, "rb") as file:
            return file.read(bytes_max)
    except OSError as error:
        raise SecretExposed(f"{path}: {error.strerror}") from None
