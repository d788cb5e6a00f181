"""One node in this process: from its arguments to its end.

`penstock up` starts here without typer, unless its arguments are unusual: loading typer and what it
needs takes as long as a fifth of a start, and after a crash clients wait for that.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.config import Config, ConfigError, LoadedConfig, load, not_available, override, warnings_for
from penstock.config.environment import RawSetting
from penstock.core.model import CorruptionError, PenstockError, StorageError
from penstock.node import NodeAddresses, options_from, run_node
from penstock.node.options import AddressInUse
from penstock.node.run import DataDirectoryUnusable
from penstock.observability import DescriptorSink, EventLogOptions, LogFormat, LogLevel, log
from penstock.runtime import Address
from penstock.runtime.core_files import prevent_core_files
from penstock.runtime.descriptors import raise_limit
from penstock.runtime.loop import MachineClock
from penstock.storage.disk import DirectoryLocked

# Flag -> the setting it stands for.
FLAGS = {
    "--data-dir": "node.data_dir",
    "--node-id": "node.id",
    "--kafka": "listen.kafka",
    "--http": "listen.http",
    "--grpc": "listen.grpc",
    "--metrics": "listen.metrics",
    "--peer": "listen.peer",
    "--voters": "cluster.voters",
}


class NodeNotStarted(PenstockError):
    """What kept a node from running, and what its operator can do about it."""


class NodeArguments(NamedTuple):
    """What the command line says: `flags` are those of `FLAGS`, `assignments` those of `--set`."""

    file: str | None
    assignments: tuple[str, ...]
    flags: Mapping[str, str]
    as_json: bool


def parse_plain(arguments: Sequence[str]) -> NodeArguments | None:
    """The arguments of `penstock up` if each is an option that is known here; None if not."""
    file: str | None = None
    assignments: list[str] = []
    flags: dict[str, str] = {}
    as_json = False
    rest = iter(arguments)
    for argument in rest:
        if argument == "--json":
            as_json = True
            continue
        name, equals, text = argument.partition("=")
        if not equals:
            text = next(rest, "-")
            if text.startswith("-"):
                return None
        if name == "--config":
            file = text
        elif name == "--set":
            assignments.append(text)
        elif name in FLAGS:
            flags[name] = text
        else:
            return None
    return NodeArguments(file, tuple(assignments), flags, as_json)


def load_config(arguments: NodeArguments) -> LoadedConfig:
    """Flags win over `--set`, `--set` over the environment, and the environment over the file."""
    overrides = [override("--set", text) for text in arguments.assignments]
    overrides += [RawSetting(FLAGS[flag], text, flag) for flag, text in arguments.flags.items()]
    return load(arguments.file, os.environ, overrides)


def run_node_process(arguments: NodeArguments) -> None:
    """Run a node until it is stopped."""
    config = load_config(arguments).config
    _ready_to_start(config)
    _run(config, arguments.as_json)


def _ready_to_start(config: Config) -> None:
    problems = not_available(config)
    if os.path.isdir(os.path.join(config.node.data_dir, "node-1")):
        problems.append(
            f"{config.node.data_dir} holds a local cluster: start it with --brokers, "
            "or choose another directory with --data-dir"
        )
    if problems:
        raise ConfigError(problems)
    for warning in warnings_for(config):
        sys.stderr.write(f"warning: {warning}\n")


def _run(config: Config, as_json: bool) -> None:
    """Run a node of this configuration until it is stopped."""
    _listen_to_events(config)

    def ready(addresses: NodeAddresses) -> None:
        sys.stdout.write(ready_line(config, addresses, as_json) + "\n")
        sys.stdout.flush()

    raise_limit()
    security = config.security
    if security.enabled or security.tls.key or security.encryption.enabled:
        prevent_core_files()
    try:
        run_node(options_from(config), ready)
    except AddressInUse as taken:
        raise NodeNotStarted(f"{taken}: {other_address(_flag_of(taken.name))}") from taken
    except (DataDirectoryUnusable, DirectoryLocked) as unusable:
        raise NodeNotStarted(f"{unusable}: choose another with --data-dir") from unusable
    except (StorageError, CorruptionError) as error:
        # Most of these know a file's place below the data directory, and not where that is.
        raise NodeNotStarted(f"{error} (data directory {os.path.abspath(config.node.data_dir)})") from error
    except KeyboardInterrupt:
        # Before the loop watches for signals there is nothing to wind down.
        sys.stderr.write("penstock: stopped before it was ready\n")


def _flag_of(name: str) -> str:
    """The flag, or else the setting, that says where something listens; `name` is what the node calls it."""
    if name in ("http", "grpc", "metrics", "peer"):
        return f"--{name}"
    return "--kafka" if name == "kafka PLAINTEXT" else "listen.listeners"


def other_address(flag: str) -> str:
    """What to do about an address that is taken."""
    return f"stop what listens there, or choose another with {flag} (port 0 is any free one)"


def _listen_to_events(config: Config) -> None:
    options = EventLogOptions(
        LogLevel[config.logging.level.upper()], LogFormat(config.logging.format), {"node": config.node.id}
    )
    log.configure(options, DescriptorSink(sys.stderr.fileno()), MachineClock().wall)


def ready_line(config: Config, addresses: NodeAddresses, as_json: bool) -> str:
    """Everything that somebody who has started a node wants to know, on one line."""
    kafka = {name: show_address(address) for name, address in addresses.kafka.items()}
    listeners = {
        "http": addresses.http,
        "grpc": addresses.grpc,
        "metrics": addresses.metrics,
        "peer": addresses.peer,
    }
    others = {name: show_address(address) for name, address in listeners.items() if address is not None}
    if as_json:
        return json.dumps(
            {
                "event": "ready",
                "node_id": config.node.id,
                "pid": os.getpid(),
                "data_dir": os.path.abspath(config.node.data_dir),
                # A node that is no broker has none.
                **({"kafka": next(iter(kafka.values()))} if kafka else {}),
                "listeners": kafka,
                **others,
            }
        )
    shown = [
        f"kafka {address}" if not index else f"kafka ({name}) {address}"
        for index, (name, address) in enumerate(kafka.items())
    ]
    shown += [f"{name} {address}" for name, address in others.items()]
    return f"ready: node {config.node.id}, {', '.join(shown)}, data in {config.node.data_dir}"


def show_address(address: Address) -> str:
    host = address.host or "0.0.0.0"
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
