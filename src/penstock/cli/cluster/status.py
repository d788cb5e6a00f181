"""`penstock cluster status`: whether everything is where it should be."""

import sys
from dataclasses import asdict, replace
from typing import Any

import typer

from penstock.cli.broker_options import BOOTSTRAP
from penstock.cli.cluster.admin_client import (
    DRAINED,
    MOVE_COLUMNS,
    RUNNING,
    AdminClient,
    BrokerInfo,
    ClusterOverview,
    PartitionOverview,
    ids,
    reassignment_row,
    reassignments_of,
    survey,
)
from penstock.cli.output import JSON_OPTION, counted, note, say, show_json, show_table


def status(*, as_json: bool = JSON_OPTION, bootstrap: str = BOOTSTRAP) -> None:
    """Show brokers, what is offline or behind, and what is being moved; exit with 1 if anything is offline.

    Without a controller nothing can change, and what is shown may be old: that is an exit with 1 too.
    Partitions are offline without a leader, under-replicated when a replica is not in sync, and under
    their minimum when fewer are in sync than `min.insync.replicas`, so that acks=all is refused.
    """
    from penstock.cli.cluster.admin_client import admin_client

    with admin_client(bootstrap) as admin:
        found = fetch_overview(admin)
    if as_json:
        show_json(_json(found))
    else:
        _show(found)
    if found.controller is None:
        sys.stderr.write(
            "penstock: no controller: most voters cannot be reached, and this may be out of date\n"
        )
    if found.offline:
        note(f"penstock: {counted(len(found.offline), 'partition')} offline")
    if found.offline or found.controller is None:
        raise typer.Exit(1)


def fetch_overview(admin: "AdminClient") -> ClusterOverview:
    """Ask for everything that a status is made of."""
    cluster = admin.cluster()
    registered = {
        node_id: replace(broker, state=_state(node_id, broker))
        for node_id, broker in admin.registered(cluster).items()
    }
    partitions = admin.partitions()
    return survey(
        (cluster.cluster_id, admin.controller(cluster)),
        registered,
        partitions,
        reassignments_of(admin, registered, partitions),
    )


def _state(node_id: int, broker: BrokerInfo) -> str:
    from penstock.cli.cluster.admin_client import is_drained

    return DRAINED if broker.state == RUNNING and is_drained(broker.address, node_id) else broker.state


def _json(found: ClusterOverview) -> dict[str, Any]:
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "brokers": [asdict(one) for one in found.brokers],
        "partitions": found.partitions,
        "offline": [asdict(one) for one in found.offline],
        "under_replicated": [asdict(one) for one in found.under_replicated],
        "under_min_isr": [asdict(one) for one in found.under_minimum],
        "reassignments": [{**asdict(one), "percent": one.percent} for one in found.moves],
    }


def _show(found: ClusterOverview) -> None:
    say(f"cluster {found.cluster_id}, controller {_or_none(found.controller)}")
    show_table(
        "",
        ("node", "address", "state", "rack", "leads", "replicas"),
        [
            (one.node_id, one.address or "-", one.state, one.rack or "-", one.leads, one.replicas)
            for one in found.brokers
        ],
    )
    sys.stdout.write(
        f"{counted(found.partitions, 'partition')}: {len(found.offline)} offline, "
        f"{len(found.under_replicated)} under-replicated, {len(found.under_minimum)} under min ISR\n"
    )
    wrong = {
        one: None for group in (found.offline, found.under_minimum, found.under_replicated) for one in group
    }
    if wrong:
        show_table("", ("partition", "leader", "replicas", "in sync", "what"), map(_row, wrong))
    if found.moves:
        say(f"{counted(len(found.moves), 'reassignment')} under way")
        show_table("", MOVE_COLUMNS, map(reassignment_row, found.moves))


def _row(one: PartitionOverview) -> tuple[object, ...]:
    what = "offline" if one.is_offline else "under min ISR" if one.is_under_minimum else "under-replicated"
    return one.name, _or_none(one.leader), ids(one.replicas), ids(one.in_sync), what


def _or_none(node_id: int | None) -> object:
    return "none" if node_id is None else node_id
