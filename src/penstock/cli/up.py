"""`penstock up`: one node in this process, or several in processes of their own, until a signal stops it."""

import os
import sys
from typing import Any

import typer

from penstock.cli.configuration import FILE_OPTION, SET_OPTION
from penstock.config import SETTINGS, Config, LoadedConfig
from penstock.core.model import PenstockError
from penstock.node import NodeAddresses
from penstock.runtime import Address

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


def _flag(name: str, metavar: str, what: str) -> Any:
    setting = SETTINGS[FLAGS[name]]
    return typer.Option(
        None,
        name,
        metavar=metavar,
        help=f"{what} (`{FLAGS[name]}`).",
        # Not the option's own: without the flag, the environment and the file have their say first.
        show_default=bool(setting.default) and setting.show(setting.default),
    )


DATA_DIR = _flag("--data-dir", "DIR", "Directory that holds everything the node keeps")
NODE_ID = _flag("--node-id", "N", "Number of this node")
KAFKA = _flag("--kafka", "HOST:PORT", "Where Kafka clients connect; port 0 is any free port")
HTTP = _flag("--http", "HOST:PORT", "Where health and metrics are served over HTTP")
GRPC = _flag("--grpc", "HOST:PORT", "Where gRPC will listen; nothing does so far")
METRICS = _flag("--metrics", "HOST:PORT", "Where Prometheus finds metrics")
PEER = _flag("--peer", "HOST:PORT", "Where other nodes connect; by default as `--voters` says")
VOTERS = _flag("--voters", "ID@HOST:PORT,...", "The nodes that found a cluster together")
BROKERS = typer.Option(
    None,
    "--brokers",
    min=1,
    max=9,
    metavar="N",
    help="Run a local cluster of N nodes instead of one: node K keeps its data in node-K below the data "
    "directory (`./penstock-cluster` unless another is given), and adds 100 times (K - 1) to every port.",
)
READY_JSON = typer.Option(False, "--json", help="Print the ready line as one JSON object.")


def up(
    *,
    config: str | None = FILE_OPTION,
    data_dir: str | None = DATA_DIR,
    node_id: str | None = NODE_ID,
    kafka: str | None = KAFKA,
    http: str | None = HTTP,
    grpc: str | None = GRPC,
    metrics: str | None = METRICS,
    peer: str | None = PEER,
    voters: str | None = VOTERS,
    brokers: int | None = BROKERS,
    assignments: list[str] | None = SET_OPTION,
    as_json: bool = READY_JSON,
) -> None:
    """Run a node, or a local cluster: print one line when it is ready, and stop on SIGTERM or Ctrl-C.

    Events go to stderr. Flags win over `--set`, `--set` over the environment, and the
    environment over the file.
    """
    given = (data_dir, node_id, kafka, http, grpc, metrics, peer, voters)
    flags = {flag: text for flag, text in zip(FLAGS, given, strict=True) if text is not None}
    loaded = _load(config, assignments or [], flags)
    if brokers is not None:
        from penstock.cli.local_cluster import run_local_cluster

        sources = _sources(config, assignments or [], flags)
        raise typer.Exit(run_local_cluster(loaded, brokers, sources, as_json))
    _ready_to_start(loaded.config)
    run(loaded.config, as_json)


def _sources(file: str | None, assignments: list[str], flags: dict[str, str]) -> list[str]:
    """Arguments that say the same, in a form that later `--set` can change."""
    said = [*assignments, *(f"{FLAGS[flag]}={text}" for flag, text in flags.items())]
    chosen = [word for assignment in said for word in ("--set", assignment)]
    return chosen if file is None else ["--config", file, *chosen]


def _ready_to_start(config: "Config") -> None:
    from penstock.config import ConfigError, not_available, warnings_for

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


def run(config: "Config", as_json: bool) -> None:
    """Run a node of this configuration until it is stopped."""
    from penstock.core.model import CorruptionError, StorageError
    from penstock.node import options_from, run_node
    from penstock.node.options import AddressInUse
    from penstock.node.run import DataDirectoryUnusable
    from penstock.storage.disk import DirectoryLocked

    _listen_to_events(config)

    def ready(addresses: "NodeAddresses") -> None:
        sys.stdout.write(ready_line(config, addresses, as_json) + "\n")
        sys.stdout.flush()

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
    if name in ("http", "metrics", "peer"):
        return f"--{name}"
    return "--kafka" if name == "kafka PLAINTEXT" else "listen.listeners"


def other_address(flag: str) -> str:
    """What to do about an address that is taken."""
    return f"stop what listens there, or choose another with {flag} (port 0 is any free one)"


def _load(file: str | None, assignments: list[str], flags: dict[str, str]) -> "LoadedConfig":
    from penstock.config import load, override
    from penstock.config.environment import RawSetting

    overrides: list[RawSetting] = [override("--set", text) for text in assignments]
    overrides += [RawSetting(FLAGS[flag], text, flag) for flag, text in flags.items()]
    return load(file, os.environ, overrides)


def _listen_to_events(config: "Config") -> None:
    from penstock.observability import DescriptorSink, EventLogOptions, LogFormat, LogLevel, log
    from penstock.runtime.loop import MachineClock

    options = EventLogOptions(
        LogLevel[config.logging.level.upper()], LogFormat(config.logging.format), {"node": config.node.id}
    )
    log.configure(options, DescriptorSink(sys.stderr.fileno()), MachineClock().wall)


def ready_line(config: "Config", addresses: "NodeAddresses", as_json: bool) -> str:
    """Everything that somebody who has started a node wants to know, on one line."""
    import json

    kafka = {name: show_address(address) for name, address in addresses.kafka.items()}
    listeners = {"http": addresses.http, "metrics": addresses.metrics, "peer": addresses.peer}
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


def show_address(address: "Address") -> str:
    host = address.host or "0.0.0.0"
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
