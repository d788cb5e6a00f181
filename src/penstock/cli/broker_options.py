"""`--bootstrap` and `--option`: the options of every command that talks to a broker.

Such a command (`topic`, `produce`, `consume`, `group`) is a small translation: options into a call of
`penstock.client`, and what comes back into a table, JSON, or lines. It knows the broker by its Kafka
address alone and works with any Kafka broker.

Records go to stdout and everything else to stderr, so that `consume a | produce b` works.
A reader that leaves (`| head`) ends `consume` silently, and what was not written out
is not committed.

Left out: delayed records (`--delay`), which come with the queue view.
"""

import typer

from penstock.client import Endpoint
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
    None, "--option", "-X", metavar="KEY=VALUE", help="A setting of librdkafka; may be repeated."
)


class InvalidOption(PenstockError):
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
            raise InvalidOption(f"{flag} {text}: expected key=value")
        values[key.strip()] = value
    return values
