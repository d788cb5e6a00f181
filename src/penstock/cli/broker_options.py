"""`--bootstrap` and `--option`: the options of every command that talks to a broker.

Such a command (`topic`, `produce`, `consume`, `group`) is a small translation: options into a call of
`penstock.client`, and what comes back into a table, JSON, or lines. It knows the broker by its Kafka
address alone and works with any Kafka broker.

Records go to stdout and everything else to stderr, so that `consume a | produce b` works.
A reader that leaves (`| head`) ends `consume` silently, and what was not written out
is not committed.

A secured cluster wants a login: settings such as `security.protocol`, `sasl.username` and `sasl.password`
in a file that `PENSTOCK_COMMAND_CONFIG` names, so that no secret stands on a command line.
"""

import os
from collections.abc import Mapping

import typer

from penstock.client import Endpoint
from penstock.core.model import PenstockError

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
CONFIG_VARIABLE = "PENSTOCK_COMMAND_CONFIG"
# Settings of librdkafka that are secrets.
SECRETS = (
    *("sasl.password", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password"),
    *(
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.pem",
    ),
    "sasl.oauthbearer.assertion.private.key.passphrase",
)
BOOTSTRAP = typer.Option(
    "127.0.0.1:9092",
    "--bootstrap",
    metavar="HOST:PORT,...",
    envvar=BOOTSTRAP_VARIABLE,
    help=f"Where the brokers are; also `{BOOTSTRAP_VARIABLE}`.",
)
CLIENT_OPTION = typer.Option(
    None,
    "--option",
    "-X",
    metavar="KEY=VALUE",
    help="A setting of librdkafka; may be repeated. A file of them, with passwords, is for "
    f"`{CONFIG_VARIABLE}`.",
)


class InvalidOption(PenstockError):
    """An option whose value is none."""


def endpoint(bootstrap: str, options: list[str] | None) -> "Endpoint":
    from penstock.client import Endpoint

    given = assignments("--option", options)
    for key in given:
        if key in SECRETS:
            raise InvalidOption(
                f"--option {key}: everyone on this machine can see the arguments of a command; put it into a "
                f"file that {CONFIG_VARIABLE} names"
            )
    return Endpoint(bootstrap, {**file_options(os.environ), **given})


def file_options(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of the file that `PENSTOCK_COMMAND_CONFIG` names: lines of `key=value`."""
    from penstock.security.private_files import SecretExposed, check_private

    path = environment.get(CONFIG_VARIABLE, "")
    if not path:
        return {}
    try:
        check_private(path)
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except SecretExposed as error:
        raise InvalidOption(f"{CONFIG_VARIABLE}: {error}") from None
    except OSError as error:
        raise InvalidOption(f"{CONFIG_VARIABLE}: {path}: {error.strerror}") from None
    values = {}
    for number, line in enumerate(lines, 1):
        key, equals, value = line.partition("=")
        if not line or line.startswith(("#", "!")):
            continue
        if not equals or not key.strip():
            # Not what stands there: it may be a password.
            raise InvalidOption(f"{path}, line {number}: expected key=value")
        values[key.strip()] = value
    return values


def assignments(flag: str, texts: list[str] | None) -> dict[str, str]:
    """Read repeated `key=value` options."""
    values = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidOption(f"{flag} {text}: expected key=value")
        values[key.strip()] = value
    return values
