"""`penstock keyring`: files with the master keys of encryption at rest."""

import typer

from penstock.cli.output import JSON_OPTION, note, show_json, show_table

app = typer.Typer(
    help="Make and look into keyrings: files with the master keys of encryption at rest.",
    no_args_is_help=True,
)
FILE = typer.Argument(metavar="FILE", help="The keyring; `security.encryption.keyring` names it.")


@app.command()
def create(file: str = FILE) -> None:
    """Make a keyring with one key. Keep a copy of it elsewhere: without its keys nothing can be read."""
    from penstock.runtime.loop import MachineClock
    from penstock.security.key_services import KeyringKeys

    name = KeyringKeys(file).create(MachineClock().wall())
    note(f"made {file} with the master key {name}")


@app.command()
def show(file: str = FILE, *, as_json: bool = JSON_OPTION) -> None:
    """List the keys of a keyring: their names and ages, never what they are."""
    from datetime import UTC, datetime

    from penstock.security.key_services import KeyringKeys

    keyring = KeyringKeys(file).read()
    if as_json:
        show_json(
            [
                {"name": name, "created_ms": key.created_ms, "is_current": name == keyring.current}
                for name, key in keyring.keys.items()
            ]
        )
        return
    show_table(
        "",
        ("key", "made", "current"),
        [
            (
                name,
                datetime.fromtimestamp(key.created_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
                "yes" if name == keyring.current else "no",
            )
            for name, key in keyring.keys.items()
        ],
    )
