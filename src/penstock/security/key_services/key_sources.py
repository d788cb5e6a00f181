"""Master keys from an environment variable, or from what a command prints.

    MzJieXRlc29mcmFuZG9tbmVzcy4uLi4uLi4uLi4uLi4=              one key; its name is made from it
    2027:MzJi…=, 2026:QW5v…=                                   the current one first, then older ones

A key is 32 bytes in base64 or as 64 hexadecimal digits, with `NAME:` in front or without. Whitespace or
commas separate keys. The first is the current one; older ones are needed until everything was encrypted
anew, and for backups.

Keys are made elsewhere: a rotation reads them again. The variable is taken out of the environment, so that
processes which the node starts do not get it. What a command prints, and its errors, appear nowhere.
"""

import base64
import binascii
import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import MutableMapping, Sequence
from contextlib import suppress

from penstock.runtime.descriptors import is_readable
from penstock.storage.sealing import KeyUnavailable, MasterKeys

SECRET_BYTES = 32
OUTPUT_BYTES_MAX = 64 << 10
_READ_BYTES = 16 << 10
_HEX = re.compile(r"[0-9A-Fa-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SEPARATORS = re.compile(r"[\s,]+")


def parse_keys(text: str, source: str) -> MasterKeys:
    """The keys in a text, the first of them current; raises KeyUnavailable, which never shows any of it."""
    secrets: dict[str, bytes] = {}
    current = ""
    for number, word in enumerate((each for each in _SEPARATORS.split(text) if each), start=1):
        name, colon, rest = word.rpartition(":")
        secret = _secret(rest)
        if secret is None:
            raise KeyUnavailable(f"key {number} of {source} is not {SECRET_BYTES} bytes in base64 or hex")
        if not colon:
            name = f"key-{hashlib.sha256(b'penstock master key ' + secret).hexdigest()[:12]}"
        if _NAME.fullmatch(name) is None:
            raise KeyUnavailable(f"the name of key {number} of {source} may have letters, digits and . _ -")
        if secrets.setdefault(name, secret) != secret:
            raise KeyUnavailable(f"{source} has two keys that are called {name}")
        current = current or name
    if not current:
        raise KeyUnavailable(f"{source} has no key")
    return MasterKeys(secrets, current)


def _secret(text: str) -> bytes | None:
    if _HEX.fullmatch(text) is not None:
        return bytes.fromhex(text)
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        content = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (ValueError, binascii.Error):
        return None
    return content if len(content) == SECRET_BYTES else None


class EnvironmentKeys:
    """Keys from a variable, which is read once: nobody changes it while the process runs."""

    def __init__(self, variable: str, environment: MutableMapping[str, str] | None = None) -> None:
        self._variable = variable
        self._environment = os.environ if environment is None else environment
        self._keys: MasterKeys | None = None

    def load(self) -> MasterKeys:
        if self._keys is None:
            text = self._environment.get(self._variable, "")
            self._keys = parse_keys(text, f"the environment variable {self._variable}")
            del self._environment[self._variable]
        return self._keys

    def rotate(self, now_ms: int) -> MasterKeys:  # noqa: ARG002  keys are made elsewhere
        return self.load()


class CommandKeys:
    """Keys that a command prints. It is not run by a shell, and has so long."""

    def __init__(self, command: Sequence[str], timeout_ms: int) -> None:
        self._command = tuple(command)
        self._timeout_ms = timeout_ms

    def load(self) -> MasterKeys:
        name = os.path.basename(self._command[0])
        output = self._run(name)
        try:
            text = output.decode("ascii")
        except UnicodeDecodeError:
            raise KeyUnavailable(f"the key command {name} printed something else than keys") from None
        return parse_keys(text, f"the output of the key command {name}")

    def rotate(self, now_ms: int) -> MasterKeys:  # noqa: ARG002  keys are made elsewhere
        return self.load()

    def _run(self, name: str) -> bytes:
        try:
            # A session of its own, so that whatever it started ends with it.
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise KeyUnavailable(f"the key command {name} cannot be run: {error.strerror}") from None
        try:
            output = self._read(process, name)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            process.stdout.close()
            status = process.wait()
        if status:
            raise KeyUnavailable(
                f"the key command {name} ended with status {status}: run it by hand to see why"
            )
        return output

    def _read(self, process: "subprocess.Popen[bytes]", name: str) -> bytes:
        """All that it prints, until it has ended."""
        assert process.stdout is not None
        descriptor, output = process.stdout.fileno(), bytearray()
        # The real clock: this waits for another process, off the loop.
        deadline = time.monotonic() + self._timeout_ms / 1000  # noqa: TID251
        while True:
            left = deadline - time.monotonic()  # noqa: TID251
            readable = is_readable(descriptor, max(0.0, left))
            if not readable:
                raise KeyUnavailable(f"the key command {name} took longer than {self._timeout_ms} ms")
            part = os.read(descriptor, _READ_BYTES)
            if not part:
                break
            output += part
            if len(output) > OUTPUT_BYTES_MAX:
                raise KeyUnavailable(f"the key command {name} printed more than {OUTPUT_BYTES_MAX} bytes")
        try:
            process.wait(max(0.0, deadline - time.monotonic()))  # noqa: TID251
        except subprocess.TimeoutExpired:
            raise KeyUnavailable(f"the key command {name} took longer than {self._timeout_ms} ms") from None
        return bytes(output)
