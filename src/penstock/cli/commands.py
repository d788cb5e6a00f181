"""Which commands there are, and where each one lives."""

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Protocol

import typer

from penstock import __version__
from penstock.core.model import PenstockError

ENTRY_POINT_GROUP = "penstock.commands"

# In the order in which --help shows them.
OWN_COMMANDS = {
    "up": "penstock.cli.up:up",
    "topic": "penstock.cli.messaging.topics:app",
    "produce": "penstock.cli.messaging.produce:produce",
    "consume": "penstock.cli.messaging.consume:consume",
    "group": "penstock.cli.messaging.groups:app",
    "cluster": "penstock.cli.cluster.command:app",
    "bench": "penstock.cli.bench.command:app",
    "demo": "penstock.cli.demo.command:demo",
    "config": "penstock.cli.configuration:app",
    "log": "penstock.cli.logs:app",
    "version": "penstock.cli.version:version",
}

Command = Callable[..., Any] | typer.Typer


class CommandUnavailable(PenstockError):
    """A command was announced, but what should carry it out cannot be loaded."""


class Runnable(Protocol):
    """A parsed command tree that can be run on a command line."""

    def main(self, *, args: list[str], prog_name: str) -> object: ...


def command_for(arguments: list[str]) -> Runnable:
    """The command tree, holding only what `arguments` ask for where they ask for one command."""
    sources = announced()
    asked = arguments[0] if arguments else ""
    if asked in sources:
        return command_tree({asked: sources[asked]}, strict=True)
    return command_tree(sources)


def command_tree(sources: dict[str, str], strict: bool = False) -> Runnable:
    """Load commands into one tree; unless `strict`, what cannot be loaded is left out."""
    app = typer.Typer(
        name="penstock",
        help="A message queue that speaks Kafka, works as a work queue, and feeds Spark.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, source in sources.items():
        try:
            add(app, name, load(name, source))
        except CommandUnavailable:
            if strict:
                raise
    return typer.main.get_command(app)


def announced() -> dict[str, str]:
    """Every command's name and `module:attribute`; a neighbour cannot replace one of ours."""
    neighbours = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    return OWN_COMMANDS | {name: neighbours[name] for name in sorted(neighbours) if name not in OWN_COMMANDS}


def load(name: str, source: str) -> Command:
    """Import a command; whatever goes wrong in there is this command's failure alone."""
    module, _, attribute = source.partition(":")
    try:
        command = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        # Foreign code at import time can raise anything.
        raise CommandUnavailable(f"{name} is not available: {type(error).__name__}: {error}") from error
    if not callable(command):
        raise CommandUnavailable(f"{name} is not available: {source} is not a command")
    return command  # type: ignore[no-any-return]


def add(app: typer.Typer, name: str, command: Command) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """The options that stand before any command."""
