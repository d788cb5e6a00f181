"""`penstock cluster drain`: a broker that leads nothing, before it is stopped for longer."""

import sys
from typing import TYPE_CHECKING

import typer

from penstock.cli.cluster.watching import Progress, watch
from penstock.cli.messaging.options import BOOTSTRAP, BadOption
from penstock.cli.output import JSON_OPTION, counted, show_json

if TYPE_CHECKING:
    from penstock.cli.cluster.asking import ClusterDoor


def drain(
    node: int = typer.Argument(metavar="NODE"),
    *,
    undo: bool = typer.Option(False, "--undo", help="Let it lead again, and get new partitions."),
    watching: bool = typer.Option(
        False, "--watch", help="Stay until it leads nothing that another could lead."
    ),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
) -> None:
    """Let a broker lead nothing and get nothing new, also after a restart, until `--undo`.

    What it leads goes to replicas that are in sync; what no other can lead stays. The replicas that it
    holds stay too: `penstock cluster reassign` moves them.
    """
    from penstock.cli.cluster.asking import door_to
    from penstock.client.cluster import drain as change
    from penstock.client.endpoint import Endpoint

    with door_to(bootstrap) as door:
        if node not in door.registered(door.cluster()):
            raise BadOption(f"there is no broker {node}: `penstock cluster status` shows them")
        change(Endpoint(door.address), node, undo=undo)
        if watching and not undo:
            _follow(door, node)
        leads, holds = _counts(door, node)
    if as_json:
        show_json({"node_id": node, "drained": not undo, "leads": leads, "replicas": holds})
        return
    state = "may lead again" if undo else "is drained"
    counts = f"leads {counted(leads, 'partition')}, holds {counted(holds, 'replica')}"
    sys.stderr.write(f"node {node} {state}: it {counts}\n")


def _follow(door: "ClusterDoor", node: int) -> None:
    first = _movable(door, node)

    def look() -> Progress | None:
        left = _movable(door, node)
        if not left:
            return None
        return Progress(max(0, first - left), first, f"{counted(left, 'partition')} still led by {node}")

    watch(f"draining node {node}", look)


def _movable(door: "ClusterDoor", node: int) -> int:
    """How many partitions the node leads that another has in sync."""
    return sum(one.leader == node and len(one.in_sync) > 1 for one in door.partitions())


def _counts(door: "ClusterDoor", node: int) -> tuple[int, int]:
    partitions = door.partitions()
    return (
        sum(one.leader == node for one in partitions),
        sum(node in one.replicas for one in partitions),
    )
