"""Which commands there are, and the module of each."""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from inspect import signature
from typing import Any, Protocol

import typer

from penstock import __version__
from penstock.core.model import PenstockError

ENTRY_POINT_GROUP = "penstock.commands"
OWN_COMMANDS = {
    "up": "penstock.cli.up:up",
    "topic": "penstock.cli.topics:app",
    "produce": "penstock.cli.produce:produce",
    "consume": "penstock.cli.consume:consume",
    "group": "penstock.cli.groups:app",
    "delay": "penstock.cli.delays:app",
    "queue": "penstock.cli.queues:app",
    "transaction": "penstock.cli.transactions:app",
    "cluster": "penstock.cli.cluster.command:app",
    "certs": "penstock.cli.certificates:app",
    "user": "penstock.cli.users:app",
    "key": "penstock.cli.keys:app",
    "keyring": "penstock.cli.keyring:app",
    "acl": "penstock.cli.acls:app",
    "quota": "penstock.cli.quotas:app",
    "audit": "penstock.cli.audit:app",
    "bench": "penstock.cli.bench.command:app",
    "demo": "penstock.cli.demo:demo",
    "config": "penstock.cli.configuration:app",
    "log": "penstock.cli.logs:app",
    "version": "penstock.cli.version:version",
}
# What --help shows: panel -> command -> the line beside it. Nothing has to be imported for that.
# A neighbour that does not stand here is loaded, and shown with its own words.
PANELS = {
    "Run": {
        "up": "Run a node, or a local cluster, until it is stopped.",
        "demo": "Show a broker, metrics and the Spark pipeline at work, and check every record.",
    },
    "Topics and records": {
        "topic": "Create, list, describe, alter and delete topics.",
        "produce": "Send lines to a topic, each as one record.",
        "consume": "Print the records of a topic, up to its end or for ever.",
        "group": "List, describe, reset and delete consumer groups.",
        "delay": "List and cancel records that are published later.",
        "queue": "Receive and acknowledge records of a topic as a work queue, and look after queues.",
        "transaction": "List, describe and abort transactions, and find those that hang.",
    },
    "Spark": {
        "pipeline": "Run the Spark pipelines, and see how they stand.",
        "generate": "Send metrics as a fleet of hosts would: some late, some twice, some malformed.",
    },
    "Operations": {
        "cluster": "Look after a cluster: its state, its members, its leaders.",
        "config": "Show and check the configuration.",
        "log": "Look into partition directories, without changing anything.",
        "version": "Show the version of Penstock and of what it runs on.",
    },
    "Security": {
        "user": "Add and remove users, and change their passwords.",
        "key": "Make and revoke API keys, for REST, WebSocket and gRPC; rotate the master keys of nodes.",
        "keyring": "Make and look into keyrings: files with the master keys of encryption at rest.",
        "acl": "Allow and deny users what they may do, and see what they may.",
        "quota": "Limit how much users and clients may ask of brokers.",
        "audit": "Read a node's audit log: who did what, and whether it was allowed.",
        "certs": "Make a private certificate authority, and certificates for nodes and clients.",
    },
    "Measuring and testing": {
        "bench": "Measure a broker beside what the machine could do.",
        "sim": "Run a cluster in virtual time under faults drawn from a seed.",
    },
}
NEIGHBOURS_PANEL = "Others"
Command = Callable[..., Any] | typer.Typer


class CommandUnavailable(PenstockError):
    """A command was announced, but what should carry it out cannot be loaded."""


class Runnable(Protocol):
    """A parsed command tree that can be run on a command line."""

    def main(self, *, args: list[str], prog_name: str) -> object: ...


def command_for(arguments: list[str], environment: Mapping[str, str]) -> Runnable:
    """The command tree, holding only what `arguments` ask for where they ask for one command."""
    sources = announced()
    asked = arguments[0] if arguments else _completed_command(environment)
    if asked in sources:
        return command_tree({asked: sources[asked]}, strict=True)
    return overview(sources)


def _completed_command(environment: Mapping[str, str]) -> str:
    """The command whose options a shell wants to complete, if it is past the command's name."""
    typed = environment.get("COMP_WORDS") or environment.get("_TYPER_COMPLETE_ARGS") or ""
    words = typed.split()
    is_past = len(words) > 2 or (len(words) == 2 and typed[-1].isspace())
    return words[1] if is_past else ""


def overview(sources: Mapping[str, str]) -> Runnable:
    """The names of all commands and what each is for; of ours none is imported."""
    app = _root_app()
    for panel, commands in PANELS.items():
        for name, summary in commands.items():
            if name in sources:
                app.command(name, help=summary, rich_help_panel=panel)(_nothing)
    known = {name for commands in PANELS.values() for name in commands}
    for name, source in sources.items():
        if name not in known:
            with suppress(CommandUnavailable):
                add(app, name, load(name, source), NEIGHBOURS_PANEL)
    return typer.main.get_command(app)


def _nothing() -> None:
    """A name in the overview; whoever types it gets the command itself."""


def command_tree(sources: dict[str, str], strict: bool = False) -> Runnable:
    """Load commands into one tree; unless `strict`, what cannot be loaded is left out."""
    app = _root_app()
    for name, source in sources.items():
        try:
            add(app, name, load(name, source))
        except CommandUnavailable:
            if strict:
                raise
    return typer.main.get_command(app)


def _root_app() -> typer.Typer:
    app = typer.Typer(
        name="penstock",
        help="A message queue that speaks Kafka, works as a work queue, and feeds Spark.",
        epilog="`penstock COMMAND --help` says more. To begin with: `penstock up`, and in another terminal "
        "`penstock topic create NAME`.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


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


def add(app: typer.Typer, name: str, command: Command, panel: str | None = None) -> None:
    if isinstance(command, typer.Typer):
        for below in command.registered_commands:
            if below.callback is not None:
                below.callback = _with_login(below.callback)
        app.add_typer(command, name=name, rich_help_panel=panel)
    else:
        app.command(name, rich_help_panel=panel)(_with_login(command))


def _with_login(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, with the option for a login if it talks to brokers."""
    if {"bootstrap", "url"}.isdisjoint(signature(command).parameters):
        return command
    # Imported for those alone: the others start without a client.
    from penstock.cli.broker_options import with_command_config

    return with_command_config(command)


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
