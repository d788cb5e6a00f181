"""From a configuration to a cluster that runs: the part of `penstock up` that is for several nodes."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence

from penstock.cli.local.launching import ClusterNotStarted, LocalCluster
from penstock.cli.local.node import NodeChild
from penstock.cli.local.plan import PORT_STEP, NodePlan, data_dir_of, plan_nodes, voters_of
from penstock.cli.up import FLAGS, other_address
from penstock.config import Address as ConfiguredAddress
from penstock.config import ConfigError, Loaded, not_available
from penstock.node.options import AddressInUse, PortReservations
from penstock.runtime import Address


def run_local_cluster(loaded: Loaded, count: int, sources: Sequence[str], as_json: bool) -> int:
    """Run `count` nodes until they are stopped; `sources` are the arguments that say what `loaded` says."""
    if problems := not_available(loaded.config):
        raise ConfigError(problems)
    plans = plan_nodes(loaded, count)
    reserved = _reserve(plans)
    try:
        plans = [plan.at(doors) for plan, doors in zip(plans, _found(plans, reserved), strict=True)]
        voters = voters_of(plans)
        events = ("--set", f"logging.format={_format(loaded)}")
        commands = [
            (plan.number, [*sources, *events, *_set(plan.with_voters(voters).assignments())])
            for plan in plans
        ]

        def ready(children: Sequence[NodeChild]) -> None:
            reserved.close()
            sys.stdout.write(ready_line(data_dir_of(loaded), children, as_json) + "\n")
            sys.stdout.flush()

        return asyncio.run(
            LocalCluster(ready, is_verbose=loaded.config.logging.level == "debug").run(commands)
        )
    finally:
        reserved.close()


def ready_line(data_dir: str, children: Sequence[NodeChild], as_json: bool) -> str:
    """Every address of every node, on one line."""
    nodes = [child.ready for child in children if child.ready is not None]
    doors = {
        name: ",".join(node[name] for node in nodes)
        for name in ("kafka", "http", "metrics", "peer")
        if name in nodes[0]
    }
    if as_json:
        return json.dumps(
            {
                "event": "ready",
                "brokers": len(nodes),
                "pid": os.getpid(),
                "data_dir": os.path.abspath(data_dir),
                **doors,
                "nodes": nodes,
            }
        )
    count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
    shown = ", ".join(f"{name} {addresses}" for name, addresses in doors.items())
    return f"ready: {count}, {shown}, data in {data_dir}"


def _reserve(plans: Sequence[NodePlan]) -> PortReservations:
    """Hold every address until the nodes listen, so that two starts at a time cannot find the same ports."""
    try:
        return PortReservations(
            {
                f"{plan.number} {key}": Address(door.host, door.port)
                for plan in plans
                for key, door in plan.doors.items()
            }
        )
    except AddressInUse as taken:
        number, key, *_ = taken.name.split()
        flag = next((flag for flag, setting in FLAGS.items() if setting == key), key)
        raise ClusterNotStarted(
            f"{taken}: {other_address(flag)}; node {number} adds {PORT_STEP * (int(number) - 1)} to it"
        ) from taken


def _found(plans: Sequence[NodePlan], reserved: PortReservations) -> Iterator[dict[str, ConfiguredAddress]]:
    for plan in plans:
        yield {key: ConfiguredAddress(*reserved[f"{plan.number} {key}"]) for key in plan.doors}


def _format(loaded: Loaded) -> str:
    """The nodes write to a pipe; what `auto` means is decided by where their lines end up."""
    chosen = loaded.config.logging.format
    if chosen != "auto":
        return chosen
    return "text" if sys.stderr.isatty() else "json"


def _set(assignments: Iterator[str]) -> Iterator[str]:
    for assignment in assignments:
        yield from ("--set", assignment)
