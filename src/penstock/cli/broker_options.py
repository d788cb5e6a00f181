"""`--bootstrap`, `--option` and `--command-config`: the options of every command that talks to a broker.

Such a command (`topic`, `produce`, `consume`, `group`) is a small translation: options into a call of
`penstock.client`, and what comes back into a table, JSON, or lines. It knows the broker by its Kafka
address alone and works with any Kafka broker.

Records go to stdout and everything else to stderr, so that `consume a | produce b` works.
A reader that leaves (`| head`) ends `consume` silently, and what was not written out
is not committed.

A secured cluster wants a login: settings such as `security.protocol`, `sasl.username` and `sasl.password`
in a file that `--command-config` or `PENSTOCK_COMMAND_CONFIG` names, or in the environment, so that no secret
stands on a command line. Every command that has `--bootstrap` gets `--command-config`
(`with_command_config`).
"""

import inspect
import os
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from penstock.client import Endpoint
from penstock.client.login_file import (
    COMMAND_CONFIG_VARIABLE,
    chosen_login_file,
    login_options,
    refuse_secrets,
)
from penstock.core.model import PenstockError

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
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
    help="A setting of librdkafka; may be repeated. Passwords are for --command-config.",
)
COMMAND_CONFIG = "command_config"
COMMAND_CONFIG_OPTION = typer.Option(
    None,
    "--command-config",
    metavar="FILE",
    help="Settings of librdkafka, such as a login, in a file that nobody else may read; also "
    f"`{COMMAND_CONFIG_VARIABLE}`.",
)


class InvalidOption(PenstockError):
    """An option whose value is none."""


def endpoint(bootstrap: str, options: list[str] | None) -> "Endpoint":
    """Where the brokers are, and how to log in, by all that the user said."""
    from penstock.client import Endpoint

    given = assignments("--option", options)
    refuse_secrets("--option", given)
    return Endpoint(bootstrap, {**login_options(os.environ), **given})


def with_command_config(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same command with `--command-config`, if it is one of ours that talks to servers."""
    signature = inspect.signature(command, eval_str=True)
    is_ours = command.__module__.partition(".")[0] == "penstock"
    if not is_ours or COMMAND_CONFIG in signature.parameters:
        return command

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        chosen = options.pop(COMMAND_CONFIG, None)
        with chosen_login_file(chosen or ""):
            return command(*arguments, **options)

    option = inspect.Parameter(
        COMMAND_CONFIG,
        inspect.Parameter.KEYWORD_ONLY,
        default=COMMAND_CONFIG_OPTION,
        annotation=str | None,
    )
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), option])  # type: ignore[attr-defined]
    return run


def assignments(flag: str, texts: list[str] | None) -> dict[str, str]:
    """Read repeated `key=value` options."""
    values = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidOption(f"{flag} {text}: expected key=value")
        values[key.strip()] = value
    return values
