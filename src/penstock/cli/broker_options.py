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
import stat
from collections.abc import Mapping

import typer

from penstock.client import Endpoint
from penstock.core.model import PenstockError

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
CONFIG_VARIABLE = "PENSTOCK_COMMAND_CONFIG"
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

    return Endpoint(bootstrap, {**file_options(os.environ), **assignments("--option", options)})


def file_options(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings of the file that `PENSTOCK_COMMAND_CONFIG` names: lines of `key=value`."""
    path = environment.get(CONFIG_VARIABLE, "")
    if not path:
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InvalidOption(f"{path} may have a password, and others may read it: chmod 600 {path}")
            lines = [line.strip() for line in file]
    except OSError as error:
        raise InvalidOption(f"{CONFIG_VARIABLE}: {path}: {error.strerror}") from None
    return assignments(path, [line for line in lines if line and not line.startswith(("#", "!"))])


def assignments(flag: str, texts: list[str] | None) -> dict[str, str]:
    """Read repeated `key=value` options."""
    values = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidOption(f"{flag} {text}: expected key=value")
        values[key.strip()] = value
    return values
