"""Master keys from an environment variable, and from what a command prints."""

import base64
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.security.key_services import CommandKeys, EnvironmentKeys
from penstock.security.key_services.key_sources import parse_keys
from penstock.storage.sealing import KeyUnavailable

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = base64.b64encode(NEW).decode()
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    "text",
    [
        f"2026:{SECRET},2025:{base64.b64encode(OLD).decode()}",
        f"  2026:{NEW.hex()}\n2025:{OLD.hex()}\n",
        f"2026:{SECRET.rstrip('=')} , 2025:{base64.urlsafe_b64encode(OLD).decode()}",
    ],
)
def test_the_first_of_several_keys_is_current(text: str) -> None:
    keys = parse_keys(text, "it")

    assert (keys.secrets, keys.current) == ({"2026": NEW, "2025": OLD}, "2026")


def test_a_key_without_a_name_gets_one_that_only_it_has() -> None:
    first, second = parse_keys(SECRET, "it"), parse_keys(NEW.hex(), "it")
    other = parse_keys(OLD.hex(), "it")

    assert first == second
    assert first.current != other.current


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it has no key"),
        (" ,\n", "it has no key"),
        (SECRET[:-4], "key 1 of it is not 32 bytes"),
        (f"{SECRET} hunter2", "key 2 of it is not 32 bytes"),
        (f"a/b:{SECRET}", "name of key 1"),
        (f":{SECRET}", "name of key 1"),
        (f"a:{SECRET},a:{OLD.hex()}", "two keys that are called a"),
    ],
)
def test_what_is_no_key_is_refused_and_not_shown(text: str, reason: str) -> None:
    with pytest.raises(KeyUnavailable, match=reason) as raised:
        parse_keys(text, "it")

    assert "hunter2" not in str(raised.value)
    assert SECRET[:8] not in str(raised.value)


def test_a_variable_is_read_once_and_not_passed_on_to_other_processes() -> None:
    environment = {"KEYS": SECRET}
    service = EnvironmentKeys("KEYS", environment)

    keys = service.load()

    assert environment == {}
    assert service.load() == service.rotate(0) == keys


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(KeyUnavailable, match="the environment variable KEYS has no key"):
        EnvironmentKeys("KEYS", {}).load()


def python(code: str, timeout_ms: int = HOUR_MS) -> CommandKeys:
    return CommandKeys([sys.executable, "-c", code], timeout_ms)


def test_a_command_prints_keys_and_is_asked_again_at_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"2025:{OLD.hex()}")
    service = python(f"print(open({str(path)!r}).read())")
    before = service.load()

    path.write_text(f"2026:{NEW.hex()} 2025:{OLD.hex()}")

    assert before.current == "2025"
    assert service.rotate(0).current == "2026"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; print('hunter2', file=sys.stderr); sys.exit(3)", "ended with status 3: run it by hand"),
        ("print('hunter2')", "key 1 of the output of the key command .* is not 32 bytes"),
        ("", "has no key"),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", "something else than keys"),
        ("while True: print('hunter2' * 1000)", "printed more than 65536 bytes"),
    ],
)
def test_a_command_that_fails_is_told_of_without_what_it_said(code: str, reason: str) -> None:
    with pytest.raises(KeyUnavailable, match=reason) as raised:
        python(code).load()

    assert "hunter2" not in str(raised.value)


def test_a_command_that_is_not_there_is_named_without_its_arguments() -> None:
    with pytest.raises(KeyUnavailable, match="the key command nothing cannot be run: No such file") as raised:
        CommandKeys(["/no/such/nothing", "hunter2"], HOUR_MS).load()

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(3600)",
        "import os, time; os.close(1); os.close(2); time.sleep(3600)",
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(3600)'])",
    ],
)
def test_a_command_that_hangs_is_ended_with_whatever_it_started(code: str, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    named = f"import os; open({str(note)!r}, 'w').write(str(os.getpid())); {code}"

    with pytest.raises(KeyUnavailable, match="took longer than 3000 ms"):
        python(named, timeout_ms=3_000).load()

    group = int(note.read_text())
    for _ in range(1_000):
        if not running_in(group):
            return
        time.sleep(0.01)
    pytest.fail(f"still running: {running_in(group)}")


def running_in(group: int) -> list[str]:
    """The processes of a group that have not ended; who has not been waited for has ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, owner, *_ = path.read_text().rpartition(") ")[2].split()
            if int(owner) == group and state not in "ZX":
                found.append(path.parent.name)
    return found
