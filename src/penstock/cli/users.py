"""`penstock user`: who can log in."""

import fcntl
import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.configuration import FILE_OPTION, SET_OPTION
from penstock.cli.output import JSON_OPTION, note, show_json, show_table
from penstock.core.model import PenstockError

if TYPE_CHECKING:
    from penstock.security.first_administrator import FirstAdministratorFile

app = typer.Typer(help="Add and remove users, and change their passwords.", no_args_is_help=True)
USER = typer.Argument(metavar="USER")
PASSWORD_BYTES_MAX = 4_096
NAME_CHARS_MAX = 500
ANSWER_SECONDS = 30.0
LOOK_SECONDS = 0.05
PASSWORD_FILE = typer.Option(
    None,
    "--password-file",
    metavar="FILE",
    help="File with the password; `-` is standard input. Without it the password is asked for.",
)


class NotBootstrapped(PenstockError):
    """The first administrator was not added; says why."""


@app.command()
def bootstrap(
    user: str = USER,
    *,
    password_file: str | None = PASSWORD_FILE,
    config: str | None = FILE_OPTION,
    assignments: list[str] | None = SET_OPTION,
) -> None:
    """Make a user the first administrator of a cluster that has no users yet.

    Run it on the machine of a node, as the user that the node runs as, with the node's configuration:
    it leaves the hash of the password in the data directory, and nothing goes over the network. A node that
    runs takes it at once, another one when it starts. A cluster that has users, access rules or API keys
    refuses it. Unless security.super_users names the user, it gets rules that allow everything.
    """
    from penstock.config import load, override
    from penstock.security.first_administrator import FirstAdministratorFile, first_administrator

    configured = load(config, os.environ, [override("--set", text) for text in assignments or ()]).config
    if not configured.security.enabled:
        raise InvalidOption(
            "security.enabled is false in the node's configuration: everyone may do everything there"
        )
    if "broker" not in configured.node.roles:
        raise InvalidOption("this node is no broker: bootstrap on one that is")
    if not 0 < len(user) <= NAME_CHARS_MAX:
        raise InvalidOption(f"a user's name has 1 to {NAME_CHARS_MAX} characters")
    file = FirstAdministratorFile(configured.node.data_dir)
    file.write(first_administrator(user, _password(password_file), configured.security.super_users))
    if not _is_node_running(configured.node.data_dir):
        note(f"user {user} becomes the administrator when the node is started, unless the cluster has users")
        return
    _await_answer(file)
    note(f"user {user} is the administrator")


def _is_node_running(data_dir: str) -> bool:
    """Whether a node holds the lock of its data directory."""
    try:
        lock = os.open(os.path.join(data_dir, "meta", "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _await_answer(file: "FirstAdministratorFile") -> None:
    """Wait until the node has taken the file, or says why it does not."""
    looks = int(ANSWER_SECONDS / LOOK_SECONDS)
    while file.is_there:
        looks -= 1
        if looks < 0:
            file.remove()
            raise NotBootstrapped(
                f"the node did not answer within {ANSWER_SECONDS:.0f} s: it runs without security.enabled, "
                "or its cluster has no controller; its log says more. Nothing was changed"
            )
        time.sleep(LOOK_SECONDS)
    refusal = file.take_refusal()
    if refusal is not None:
        raise NotBootstrapped(refusal)


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
    note(f"user {user} was added")


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
    note(f"the password of {user} was changed")


@app.command()
def delete(
    user: str = USER, *, bootstrap: str = BOOTSTRAP, options: list[str] | None = CLIENT_OPTION
) -> None:
    """Remove a user. Its access rules stay: `penstock acl delete --user` removes them."""
    from penstock.client.access import AccessAdmin

    AccessAdmin(endpoint(bootstrap, options)).delete_user(user)
    note(f"user {user} was removed")


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
