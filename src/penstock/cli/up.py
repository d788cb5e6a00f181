"""`penstock up`: one node in this process, until a signal stops it."""

import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.configuration import FILE_OPTION, SET_OPTION

if TYPE_CHECKING:
    from penstock.app import NodeAddresses
    from penstock.config import Config, Loaded
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


def _flag(name: str, metavar: str, what: str) -> Any:
    return typer.Option(None, name, metavar=metavar, help=f"{what} (`{FLAGS[name]}`).")


DATA_DIR = _flag("--data-dir", "DIR", "Directory that holds everything the node keeps")
NODE_ID = _flag("--node-id", "N", "Number of this node")
KAFKA = _flag("--kafka", "HOST:PORT", "Where Kafka clients connect; port 0 is any free port")
HTTP = _flag("--http", "HOST:PORT", "Where health and metrics are served over HTTP")
GRPC = _flag("--grpc", "HOST:PORT", "Where gRPC will listen; nothing does so far")
METRICS = _flag("--metrics", "HOST:PORT", "Where Prometheus finds metrics")
PEER = _flag("--peer", "HOST:PORT", "Where other nodes connect; by default as `--voters` says")
VOTERS = _flag("--voters", "ID@HOST:PORT,...", "The nodes that found a cluster together")
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
    assignments: list[str] | None = SET_OPTION,
    as_json: bool = READY_JSON,
) -> None:
    """Run a node: print one line when it is ready, and stop on SIGTERM or Ctrl-C.

    Events go to stderr. Flags win over `--set`, `--set` over the environment, and the
    environment over the file.
    """
    given = (data_dir, node_id, kafka, http, grpc, metrics, peer, voters)
    loaded = _load(config, assignments or [], dict(zip(FLAGS, given, strict=True)))
    run(loaded.config, as_json)


def run(config: "Config", as_json: bool) -> None:
    """Run a node of this configuration until it is stopped."""
    from penstock.app import options_from, run_node

    _listen_to_events(config)

    def ready(addresses: "NodeAddresses") -> None:
        sys.stdout.write(ready_line(config, addresses, as_json) + "\n")
        sys.stdout.flush()

    try:
        run_node(options_from(config), ready)
    except KeyboardInterrupt:
        # Before the loop watches for signals there is nothing to wind down.
        sys.stderr.write("penstock: stopped before it was ready\n")


def _load(file: str | None, assignments: list[str], flags: "dict[str, str | None]") -> "Loaded":
    from penstock.config import ConfigError, load, not_available, override, warnings_for
    from penstock.config.given import Given

    overrides: list[Given] = [override("--set", text) for text in assignments]
    overrides += [Given(FLAGS[flag], text, flag) for flag, text in flags.items() if text is not None]
    loaded = load(file, os.environ, overrides)
    if problems := not_available(loaded.config):
        raise ConfigError(problems)
    for warning in warnings_for(loaded.config):
        sys.stderr.write(f"warning: {warning}\n")
    return loaded


def _listen_to_events(config: "Config") -> None:
    from penstock.observability import DescriptorSink, Level, LogFormat, LogOptions, log
    from penstock.runtime.clock import MachineClock

    options = LogOptions(
        Level[config.logging.level.upper()], LogFormat(config.logging.format), {"node": config.node.id}
    )
    log.configure(options, DescriptorSink(sys.stderr.fileno()), MachineClock().wall)


def ready_line(config: "Config", addresses: "NodeAddresses", as_json: bool) -> str:
    """Everything that somebody who has started a node wants to know, on one line."""
    import json

    kafka = {name: show_address(address) for name, address in addresses.kafka.items()}
    doors = {"http": addresses.http, "metrics": addresses.metrics, "peer": addresses.peer}
    others = {name: show_address(address) for name, address in doors.items() if address is not None}
    if as_json:
        main = next(iter(kafka.values()))
        return json.dumps(
            {
                "event": "ready",
                "node_id": config.node.id,
                "pid": os.getpid(),
                "data_dir": os.path.abspath(config.node.data_dir),
                "kafka": main,
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
