"""A keyring: a file with master keys, one of which is current.

    penstock-keyring 1
    key 2026-11-18-5f21c0 1794997800000 mR0v…43 characters of base64…= 9a31f0c2
    key 2027-02-01-08b7d3 1801440000000 Yq7K…=                         41d8e6aa
    current 2027-02-01-08b7d3

A line has the key's name, when it was made (milliseconds since 1970), the 32 bytes of the key, and the
beginning of a SHA-256 of all that: a character that went wrong is found before anything is decrypted, and a
person may still take a line out. Empty lines and lines that begin with `#` count for nothing.

Nobody else may read the file or put another in its place (see `private_files`). It is replaced as a whole,
durably, under a lock on its directory: several nodes may share it.
"""

import base64
import binascii
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple

from penstock.security.private_files import SecretExposed, read_private
from penstock.storage.sealing import KeyUnavailable, MasterKeys

HEAD = "penstock-keyring 1"
FILE_MODE = 0o600
BYTES_MAX = 1 << 20
SECRET_BYTES = 32
CHECK_CHARS = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_LOCK_SECONDS = 10.0
_LOCK_LOOK_SECONDS = 0.02


class KeyringDamaged(KeyUnavailable):
    """A keyring cannot be read; says which line is wrong, and never what stands in it."""


class KeyringKey(NamedTuple):
    """A key and when it was made. Its secret appears in no message."""

    secret: bytes
    created_ms: int

    def __repr__(self) -> str:
        return f"KeyringKey(created_ms={self.created_ms})"


class Keyring(NamedTuple):
    """The keys of a keyring by name, in the order of the file."""

    keys: Mapping[str, KeyringKey]
    current: str

    def with_new(self, name: str, key: KeyringKey) -> "Keyring":
        return Keyring({**self.keys, name: key}, name)

    def without(self, name: str) -> "Keyring":
        return Keyring({other: key for other, key in self.keys.items() if other != name}, self.current)

    @property
    def master_keys(self) -> MasterKeys:
        secrets = {name: key.secret for name, key in self.keys.items()}
        return MasterKeys(secrets, self.current, self.keys[self.current].created_ms)


def encode_keyring(keyring: Keyring) -> bytes:
    lines = [HEAD]
    for name, key in keyring.keys.items():
        fields = f"{name} {key.created_ms} {base64.b64encode(key.secret).decode()}"
        lines.append(f"key {fields} {_check(fields)}")
    return "".join(f"{line}\n" for line in (*lines, f"current {keyring.current}")).encode()


def decode_keyring(content: bytes) -> Keyring:
    """What a keyring's file says; raises KeyringDamaged."""
    lines = _lines_of(content)
    keys: dict[str, KeyringKey] = {}
    current: str | None = None
    for number, line in enumerate(lines[1:], start=2):
        match line.split():
            case ["key", name, created, secret, check] if name not in keys:
                keys[name] = _read_key(number, name, created, secret, check)
            case ["current", name] if current is None:
                current = name
            case [first, *_] if not first.startswith("#"):
                raise KeyringDamaged(f"line {number} is not one of a keyring, or says something twice")
    if current is None or current not in keys:
        raise KeyringDamaged("the current key is not in it")
    return Keyring(keys, current)


def _lines_of(content: bytes) -> list[str]:
    if len(content) > BYTES_MAX:
        raise KeyringDamaged(f"it has more than {BYTES_MAX} bytes")
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise KeyringDamaged("it is not a text of ASCII characters") from None
    if not lines or lines[0].strip() != HEAD:
        raise KeyringDamaged(f"its first line is not {HEAD!r}")
    return lines


def _read_key(number: int, name: str, created: str, secret: str, check: str) -> KeyringKey:
    if _check(f"{name} {created} {secret}") != check:
        raise KeyringDamaged(f"the key in line {number} is damaged: its checksum does not match")
    try:
        content = base64.b64decode(secret, validate=True)
    except (ValueError, binascii.Error):
        content = b""
    is_number = created.isascii() and created.removeprefix("-").isdigit() and len(created) < 16
    if len(content) != SECRET_BYTES or not is_number or _NAME.fullmatch(name) is None:
        raise KeyringDamaged(f"line {number} has no key of {SECRET_BYTES} bytes with a name and a time")
    return KeyringKey(content, int(created))


def _check(fields: str) -> str:
    return hashlib.sha256(f"penstock keyring {fields}".encode()).hexdigest()[:CHECK_CHARS]


class KeyringKeys:
    """The key service of a keyring file; `random` returns so many random bytes."""

    def __init__(self, path: str, random: Callable[[int], bytes] = os.urandom) -> None:
        self._path = path
        self._random = random

    def load(self) -> MasterKeys:
        return self.read().master_keys

    def rotate(self, now_ms: int) -> MasterKeys:
        """Add a key and make it the current one; it is durable when this returns."""
        with self._locked():
            former = self.read()
            made = former.with_new(*self._new_key(now_ms))
            self._replace(encode_keyring(made))
        return made.master_keys

    def create(self, now_ms: int) -> str:
        """Make the file with one key, whose name is returned; raises KeyUnavailable if there is a file."""
        with self._locked():
            if os.path.lexists(self._path):
                raise KeyUnavailable(f"{self._path} exists already, and keys in it may be needed")
            name, key = self._new_key(now_ms)
            self._replace(encode_keyring(Keyring({name: key}, name)))
        return name

    def remove(self, name: str) -> None:
        """Take a key out for ever; raises KeyUnavailable if it is the current one."""
        with self._locked():
            former = self.read()
            if name == former.current:
                raise KeyUnavailable(f"{name} is the current master key: rotate first")
            if name in former.keys:
                self._replace(encode_keyring(former.without(name)))

    def read(self) -> Keyring:
        try:
            content = read_private(self._path, BYTES_MAX + 1)
        except SecretExposed as error:
            raise KeyUnavailable(f"the keyring cannot be used: {error}") from None
        try:
            return decode_keyring(content)
        except KeyringDamaged as error:
            raise KeyringDamaged(f"the keyring {self._path} cannot be read: {error}") from None

    def _new_key(self, now_ms: int) -> tuple[str, KeyringKey]:
        day = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%d")
        return f"{day}-{self._random(3).hex()}", KeyringKey(self._random(SECRET_BYTES), now_ms)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else changes keyrings in this directory meanwhile."""
        directory = os.path.dirname(os.path.realpath(self._path))
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise KeyUnavailable(f"the keyring {self._path} cannot be written: {error.strerror}") from None
        try:
            for _ in range(round(_LOCK_SECONDS / _LOCK_LOOK_SECONDS)):
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(_LOCK_LOOK_SECONDS)
            else:
                raise KeyUnavailable(f"another process keeps {directory} locked, where the keyring is")
            yield
        finally:
            os.close(descriptor)

    def _replace(self, content: bytes) -> None:
        """The old file or the new one, whole, whenever the power is cut."""
        real = os.path.realpath(self._path)
        directory, temporary = os.path.dirname(real), f"{real}.new"
        try:
            with suppress(FileNotFoundError):
                # Left by a process that ended in the middle; the lock says that it is nobody's.
                os.unlink(temporary)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
            try:
                _write_all(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(temporary, real)
            above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(above)
            finally:
                os.close(above)
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise KeyUnavailable(f"the keyring {self._path} cannot be written: {error.strerror}") from None


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
