"""`penstock quota`: how much clients may ask of brokers."""

from typing import Any

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, show_json, show_table
from penstock.core.metadata.access import CLIENT_ID, IP, USER, QuotaEntity

app = typer.Typer(help="Limit how much users and clients may ask of brokers.", no_args_is_help=True)
USER_OPTION = typer.Option(None, "--user", metavar="USER", help="A user; `default` is each without its own.")
CLIENT_OPTION_ = typer.Option(
    None, "--client-id", metavar="ID", help="A client id; `default` is each without its own."
)
IP_OPTION = typer.Option(None, "--ip", metavar="ADDRESS", help="An address, for new connections.")
DEFAULT = "default"
LIMITS = {
    "producer_byte_rate": "bytes a second that may be produced",
    "consumer_byte_rate": "bytes a second that may be fetched",
    "request_percentage": "percent of a processor's time",
    "controller_mutation_rate": "partitions a second that may be created or deleted",
    "connection_creation_rate": "connections a second of an address",
}


@app.command("list")
def list_(
    *, as_json: bool = JSON_OPTION, bootstrap: str = BOOTSTRAP, options: list[str] | None = CLIENT_OPTION
) -> None:
    """List all limits."""
    from penstock.client.access import AccessAdmin

    found = AccessAdmin(endpoint(bootstrap, options)).quotas()
    if as_json:
        rows: list[dict[str, Any]] = [{"entity": dict(entity), "limits": limits} for entity, limits in found]
        show_json(rows)
        return
    show_table(
        "",
        ("entity", "limit", "value"),
        [(_named(entity), key, f"{value:g}") for entity, limits in found for key, value in limits.items()],
    )


@app.command(
    "set",
    help="Set limits of a user, a client id, both, or an address.\n\nLIMIT=VALUE, where LIMIT is "
    + "; ".join(f"`{key}`: {words}" for key, words in LIMITS.items())
    + ".",
)
def set_(
    limits: list[str] = typer.Argument(metavar="LIMIT=VALUE..."),
    *,
    user: str | None = USER_OPTION,
    client_id: str | None = CLIENT_OPTION_,
    ip: str | None = IP_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Set limits of a user, a client id, both, or an address."""
    from penstock.client.access import AccessAdmin

    values: dict[str, float | None] = {}
    for text in limits:
        key, _, value = text.partition("=")
        try:
            values[_limit(key)] = float(value)
        except ValueError:
            raise InvalidOption(f"{text!r}: expected {key}=NUMBER") from None
    AccessAdmin(endpoint(bootstrap, options)).alter_quotas(_entity(user, client_id, ip), values)


@app.command()
def remove(
    limits: list[str] = typer.Argument(metavar="LIMIT..."),
    *,
    user: str | None = USER_OPTION,
    client_id: str | None = CLIENT_OPTION_,
    ip: str | None = IP_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Remove limits."""
    from penstock.client.access import AccessAdmin

    values: dict[str, float | None] = dict.fromkeys(map(_limit, limits))
    AccessAdmin(endpoint(bootstrap, options)).alter_quotas(_entity(user, client_id, ip), values)


def _limit(key: str) -> str:
    name = key.strip().lower().replace("-", "_")
    if name not in LIMITS:
        raise InvalidOption(f"{key!r} is none of {', '.join(LIMITS)}")
    return name


def _entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    given = ((CLIENT_ID, client_id), (USER, user), (IP, ip))
    entity = tuple((kind, None if name == DEFAULT else name) for kind, name in given if name is not None)
    if not entity:
        raise InvalidOption("--user, --client-id or --ip says whose limits")
    return entity


def _named(entity: QuotaEntity) -> str:
    return ", ".join(f"{kind} {DEFAULT if name is None else name}" for kind, name in entity)
