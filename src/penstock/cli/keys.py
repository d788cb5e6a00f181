"""`penstock key`: API keys, with which programs call REST, WebSocket and gRPC; and master keys, on disk."""

from dataclasses import asdict

import typer

from penstock.cli import master_keys
from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, note, show_json, show_table
from penstock.core.metadata.access import NO_EXPIRY, AclOperation

app = typer.Typer(
    help="Make and revoke API keys, with which programs call REST, WebSocket and gRPC; rotate master keys.",
    no_args_is_help=True,
)
app.command("rotate")(master_keys.rotate)
app.command("status")(master_keys.status)
SECOND_MS = 1_000
UNITS_MS = {"s": SECOND_MS, "m": 60 * SECOND_MS, "h": 3_600 * SECOND_MS, "d": 86_400 * SECOND_MS}
USER_OPTION = typer.Option(None, "--user", metavar="USER", help="Keys of this user alone.")


@app.command()
def create(
    user: str = typer.Argument(metavar="USER"),
    *,
    expires: str | None = typer.Option(
        None, "--expires", metavar="TIME", help="Ends the key after so long, such as `90d` or `12h`."
    ),
    operations: list[str] | None = typer.Option(
        None,
        "--operation",
        metavar="OPERATION",
        help="Limits the key to an operation, such as `read`, of what its user may do; once for each.",
    ),
    description: str = typer.Option(
        "", "--description", metavar="TEXT", help="What the key is for, in words."
    ),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Make an API key for a user, and show its secret, once: only a hash of it is kept."""
    from penstock.client.access import AccessAdmin

    made = AccessAdmin(endpoint(bootstrap, options)).create_api_key(
        user,
        lifetime_ms=None if expires is None else _milliseconds(expires),
        scope=[_operation(each) for each in operations or ()],
        description=description,
    )
    if as_json:
        show_json(asdict(made))
        return
    note(f"key {made.id} of {made.user}; this is its secret, which is not shown again:")
    typer.echo(made.secret)


@app.command("list")
def list_(
    *,
    user: str | None = USER_OPTION,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List API keys, and when each was last used, to the minute."""
    from penstock.client.access import AccessAdmin

    keys = AccessAdmin(endpoint(bootstrap, options)).api_keys(user)
    if as_json:
        show_json([asdict(key) for key in keys])
        return
    show_table(
        "",
        ("key", "user", "scope", "created", "expires", "last use", "description"),
        [
            (
                key.id,
                key.user,
                ", ".join(key.scope) or "all",
                _time(key.created_ms),
                _time(key.expires_ms),
                _time(key.last_use_ms),
                key.description,
            )
            for key in keys
        ],
    )


@app.command()
def revoke(
    key: str = typer.Argument(metavar="KEY", help="The id of a key, which `penstock key list` shows."),
    *,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Let a key count for nothing from now on. Connections that came with it end."""
    from penstock.client.access import AccessAdmin

    AccessAdmin(endpoint(bootstrap, options)).delete_api_key(key)
    note(f"key {key} was revoked")


def _milliseconds(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in UNITS_MS or not 0 < int(number) < 1_000_000:
        raise InvalidOption(f"--expires {text}: a number and s, m, h or d, such as 90d")
    return int(number) * UNITS_MS[unit]


def _operation(name: str) -> AclOperation:
    try:
        return AclOperation[name.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(each.name.lower() for each in AclOperation)
        raise InvalidOption(f"--operation {name}: there are {known}") from None


def _time(milliseconds: int) -> str:
    from datetime import UTC, datetime

    if milliseconds == NO_EXPIRY:
        return "never"
    return datetime.fromtimestamp(milliseconds / SECOND_MS, UTC).strftime("%Y-%m-%d %H:%M")
