"""Options that every command with a broker on the other side has."""

from typing import TYPE_CHECKING

import typer

from penstock.core.model import PenstockError

if TYPE_CHECKING:
    from penstock.client import Endpoint

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
BOOTSTRAP = typer.Option(
    "127.0.0.1:9092",
    "--bootstrap",
    metavar="HOST:PORT,...",
    envvar=BOOTSTRAP_VARIABLE,
    help=f"Where the brokers are; also `{BOOTSTRAP_VARIABLE}`.",
)
CLIENT_OPTION = typer.Option(
    None, "--option", "-X", metavar="KEY=VALUE", help="A setting of librdkafka; may be repeated."
)


class BadOption(PenstockError):
    """An option whose value is none."""


def endpoint(bootstrap: str, options: list[str] | None) -> "Endpoint":
    from penstock.client import Endpoint

    return Endpoint(bootstrap, assignments("--option", options))


def assignments(flag: str, texts: list[str] | None) -> dict[str, str]:
    """Read repeated `key=value` options."""
    values = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadOption(f"{flag} {text}: expected key=value")
        values[key.strip()] = value
    return values
