"""`penstock user`: who can log in."""

import sys
from dataclasses import asdict

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, show_json, show_table

app = typer.Typer(help="Add and remove users, and change their passwords.", no_args_is_help=True)
USER = typer.Argument(metavar="USER")
PASSWORD_BYTES_MAX = 4_096
PASSWORD_FILE = typer.Option(
    None,
    "--password-file",
    metavar="FILE",
    help="File with the password; `-` is standard input. Without it the password is asked for.",
)


@app.command("list")
def list_(
    *, as_json: bool = JSON_OPTION, bootstrap: str = BOOTSTRAP, options: list[str] | None = CLIENT_OPTION
) -> None:
    """List the users that have a password."""
    from penstock.client.access import AccessAdmin

    users = AccessAdmin(endpoint(bootstrap, options)).users()
    if as_json:
        show_json([asdict(user) for user in users])
        return
    show_table(
        "",
        ("user", "mechanisms", "iterations"),
        [(user.user, ", ".join(user.mechanisms), user.iterations) for user in users],
    )


@app.command()
def create(
    user: str = USER,
    *,
    password_file: str | None = PASSWORD_FILE,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Add a user, who may log in and do nothing else until `penstock acl` says so."""
    from penstock.client.access import AccessAdmin

    admin = AccessAdmin(endpoint(bootstrap, options))
    if any(each.user == user for each in admin.users()):
        raise InvalidOption(f"there is a user {user} already: `penstock user password` changes its password")
    admin.set_password(user, _password(password_file))
    typer.echo(f"user {user} was added", err=True)


@app.command()
def password(
    user: str = USER,
    *,
    password_file: str | None = PASSWORD_FILE,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Change a user's password. Connections that are logged in stay."""
    from penstock.client.access import AccessAdmin

    admin = AccessAdmin(endpoint(bootstrap, options))
    if all(each.user != user for each in admin.users()):
        raise InvalidOption(f"there is no user {user}: `penstock user create` adds one")
    admin.set_password(user, _password(password_file))
    typer.echo(f"the password of {user} was changed", err=True)


@app.command()
def delete(
    user: str = USER, *, bootstrap: str = BOOTSTRAP, options: list[str] | None = CLIENT_OPTION
) -> None:
    """Remove a user. Its access rules stay: `penstock acl delete --user` removes them."""
    from penstock.client.access import AccessAdmin

    AccessAdmin(endpoint(bootstrap, options)).delete_user(user)
    typer.echo(f"user {user} was removed", err=True)


def _password(source: str | None) -> str:
    """The password, from a file, standard input or whoever sits at the terminal; never from an argument."""
    if source == "-":
        found = sys.stdin.readline()
    elif source is not None:
        from penstock.security.private_files import read_private

        found = read_private(source, PASSWORD_BYTES_MAX).decode(errors="replace")
    elif sys.stdin.isatty():
        found = typer.prompt("password", hide_input=True, confirmation_prompt=True)
    else:
        raise InvalidOption("--password-file says where the password is: there is no terminal to ask at")
    found = found.rstrip("\r\n")
    if not found:
        raise InvalidOption("the password is empty")
    return found
