"""`penstock up`: one node in this process, or several in processes of their own, until a signal stops it."""

from typing import Any

import typer

from penstock.cli.configuration import FILE_OPTION, SET_OPTION
from penstock.cli.node_process import FLAGS, NodeArguments, load_config, run_node_process
from penstock.config import SETTINGS


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
HTTP = _flag("--http", "HOST:PORT", "Where REST and WebSocket clients connect; health and metrics too")
GRPC = _flag("--grpc", "HOST:PORT", "Where gRPC clients connect")
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
    arguments = NodeArguments(config, tuple(assignments or ()), flags, as_json)
    if brokers is not None:
        from penstock.cli.local_cluster import run_local_cluster

        raise typer.Exit(run_local_cluster(load_config(arguments), brokers, _sources(arguments), as_json))
    run_node_process(arguments)


def _sources(arguments: NodeArguments) -> list[str]:
    """Arguments that say the same, in a form that later `--set` can change."""
    said = [*arguments.assignments, *(f"{FLAGS[flag]}={text}" for flag, text in arguments.flags.items())]
    chosen = [word for assignment in said for word in ("--set", assignment)]
    return chosen if arguments.file is None else ["--config", arguments.file, *chosen]
