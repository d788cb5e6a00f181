"""`security.encryption`: what belongs together, and what is never shown."""

import pytest
from typer.testing import CliRunner

from penstock.cli.configuration import app
from penstock.config import Config, ConfigError, load, override
from penstock.node import options_from
from penstock.security.options import EncryptionOptions

ON = "security.encryption.enabled=true"


@pytest.fixture(autouse=True)
def no_file_in_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.loader.DEFAULT_FILE", "/nonexistent/penstock.yaml")


def encryption(*assignments: str) -> tuple[str, ...]:
    return tuple(f"security.encryption.{assignment}" for assignment in assignments)


def configured(*assignments: str) -> Config:
    return load(overrides=[override("--set", text) for text in assignments]).config


def chosen(*assignments: str) -> EncryptionOptions | None:
    return options_from(configured(*assignments)).security.encryption


def test_nothing_is_encrypted_unless_somebody_says_so() -> None:
    assert chosen() is None


def test_a_key_service_gets_its_options() -> None:
    plugin = chosen(ON, *encryption("service=plugin", "plugin=kms", "plugin_options=url=https://a?b=c,key=1"))
    command = chosen(ON, *encryption("service=command", "command=vault,read,-field=key", "timeout_ms=500"))

    assert plugin is not None
    assert plugin.plugin_options == (("url", "https://a?b=c"), ("key", "1"))
    assert command is not None
    assert (command.command, command.timeout_ms) == (("vault", "read", "-field=key"), 500)
    assert "https" not in repr(plugin)


@pytest.mark.parametrize(
    ("assignments", "problem"),
    [
        (encryption("service=keyring"), "service (--set) = keyring needs security.encryption.keyring"),
        (encryption("service=command"), "service (--set) = command needs security.encryption.command"),
        (encryption("service=plugin"), "service (--set) = plugin needs security.encryption.plugin"),
        (
            encryption("keyring=/a/keyring", "command=cat"),
            "command (--set) is not used: security.encryption.service (default) is keyring",
        ),
        (
            encryption("service=environment", "keyring=/a/keyring"),
            "keyring (--set) is not used: security.encryption.service (--set) is environment",
        ),
        (
            encryption("service=plugin", "plugin=kms", "plugin_options=hunter2"),
            "plugin_options (--set) has an option that is not name=value",
        ),
        (
            ("node.data_dir=/data", *encryption("keyring=/data/keys/keyring")),
            "keyring (--set) is in node.data_dir (--set): whoever has the disk would have the keys, too",
        ),
    ],
)
def test_what_does_not_fit_together_is_said_in_one_line(assignments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(ON, *assignments)

    assert list(refused.value.problems) == [f"security.encryption.{problem}"]


def test_without_encryption_nobody_asks_for_keys() -> None:
    assert chosen(*encryption("service=command")) is None


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_password_in_the_address_of_keys_is_not_shown(form: list[str]) -> None:
    address = "security.oauth.jwks=https://alice:hunter2@issuer.example/keys?token=hunter2"

    shown = CliRunner().invoke(app, ["show", "--set", address, *form]).output

    assert "hunter2" not in shown
    assert "https://***@issuer.example/keys?***" in shown


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_neither_arguments_of_a_command_nor_options_of_a_plugin_are_shown(form: list[str]) -> None:
    given = (
        *encryption("service=plugin", "plugin=kms", "plugin_options=token=hunter2", "command=vault,hunter2"),
    )
    options = [word for text in given for word in ("--set", text)]

    shown = CliRunner().invoke(app, ["show", *options, *form]).output

    assert "hunter2" not in shown
    assert "token=***" in shown
    assert "vault" in shown
