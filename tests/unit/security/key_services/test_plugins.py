"""Key services of plugins: found by their entry point, and never waited for longer than allowed."""

import sys
from pathlib import Path

import pytest

from penstock.security.key_services import PluginKeys, key_service_of
from penstock.security.options import EncryptionOptions
from penstock.storage.sealing import KeyUnavailable

HOUR_MS = 3_600_000
PLUGIN = """
import threading

from penstock.storage.sealing import KeyUnavailable, MasterKeys


class Keys:
    def __init__(self, options):
        self.options, self.secrets = options, {"first": b"1" * 32}

    def load(self):
        match self.options.get("mood", "good"):
            case "refuses":
                raise KeyUnavailable("the vault is closed today")
            case "breaks":
                raise RuntimeError("hunter2")
            case "lies":
                return dict(self.secrets)
            case "hangs":
                threading.Event().wait()
        return MasterKeys(self.secrets, list(self.secrets)[-1], 7)

    def rotate(self, now_ms):
        self.secrets[f"at-{now_ms}"] = b"2" * 32
        return self.load()


def broken(options):
    raise ImportError("hunter2")
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with a plugin, on the path as `pip install` leaves it."""
    (tmp_path / "tiny_kms.py").write_text(PLUGIN)
    info = tmp_path / "tiny_kms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-kms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[penstock.key_services]\ntiny = tiny_kms:Keys\nbroken = tiny_kms:broken\nabsent = tiny_kms:nothing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tiny_kms", raising=False)


def plugin_keys(name: str = "tiny", mood: str = "good", timeout_ms: int = HOUR_MS) -> PluginKeys:
    return PluginKeys(name, {"mood": mood}, timeout_ms)


def test_an_installed_plugin_is_found_by_its_name_and_gets_its_options() -> None:
    options = EncryptionOptions("plugin", plugin="tiny", plugin_options=(("mood", "good"),))

    keys = key_service_of(options).load()

    assert (keys.secrets, keys.current, keys.created_ms) == ({"first": b"1" * 32}, "first", 7)


def test_a_rotation_is_the_plugins() -> None:
    service = plugin_keys()
    service.load()

    assert service.rotate(5).current == "at-5"
    assert service.load().current == "at-5"


@pytest.mark.parametrize(
    ("name", "mood", "reason"),
    [
        ("other", "good", r"no such plugin is installed \(penstock.key_services: absent, broken, tiny\)"),
        ("broken", "good", "key service broken failed in load with ImportError"),
        ("absent", "good", "key service absent failed in load with AttributeError"),
        ("tiny", "refuses", "key service tiny: the vault is closed today"),
        ("tiny", "breaks", "key service tiny failed in load with RuntimeError"),
        ("tiny", "lies", "key service tiny returned no MasterKeys from load"),
    ],
)
def test_a_plugin_that_fails_is_told_of_without_what_may_be_a_secret(
    name: str, mood: str, reason: str
) -> None:
    with pytest.raises(KeyUnavailable, match=reason) as raised:
        plugin_keys(name, mood).load()

    assert "hunter2" not in str(raised.value)


def test_a_plugin_that_hangs_is_not_waited_for() -> None:
    service = plugin_keys(mood="hangs", timeout_ms=200)

    with pytest.raises(KeyUnavailable, match="key service tiny took longer than 200 ms"):
        service.load()
    with pytest.raises(KeyUnavailable, match="key service tiny still has not answered an earlier call"):
        service.load()
