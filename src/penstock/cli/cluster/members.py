"""`penstock cluster members`: who votes on the metadata, who only follows, and changing that."""

import sys
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import typer

from penstock.cli.broker_options import BOOTSTRAP, InvalidOption
from penstock.cli.cluster.admin_client import AdminClient
from penstock.cli.output import JSON_OPTION, show_json, show_table
from penstock.config import ListenAddress
from penstock.core.protocol.messages.describe_quorum import DescribeQuorumResponseReplica

NODE = typer.Argument(metavar="NODE")


def members(*, as_json: bool = JSON_OPTION, bootstrap: str = BOOTSTRAP) -> None:
    """Show every member of the metadata quorum: who leads it, who votes, and how far each has got."""
    from penstock.cli.cluster.admin_client import admin_client

    with admin_client(bootstrap) as admin:
        rows = _members(admin)
    if as_json:
        show_json(rows)
        return
    show_table("", list(rows[0]) if rows else [], [_cells(row) for row in rows])


def _members(admin: "AdminClient") -> list[dict[str, Any]]:
    quorum = admin.quorum()
    brokers = {one.broker_id: one for one in admin.cluster().brokers}
    ends = {one.replica_id: one.log_end_offset for one in (*quorum.current_voters, *quorum.observers)}
    leader_end = ends.get(quorum.leader_id, -1)

    def row(one: "DescribeQuorumResponseReplica", role: str) -> dict[str, Any]:
        known = one.log_end_offset >= 0 and leader_end >= 0
        broker = brokers.get(one.replica_id)
        return {
            "node_id": one.replica_id,
            "role": "leader" if one.replica_id == quorum.leader_id else role,
            "directory_id": str(one.replica_directory_id),
            "log_end": one.log_end_offset if one.log_end_offset >= 0 else None,
            "lag": max(0, leader_end - one.log_end_offset) if known else None,
            "broker": None if broker is None else "fenced" if broker.is_fenced else "running",
        }

    voters = [row(one, "voter") for one in quorum.current_voters]
    return sorted(
        voters + [row(one, "observer") for one in quorum.observers], key=lambda member: member["node_id"]
    )


def _cells(row: dict[str, Any]) -> list[object]:
    return ["-" if value is None else value for value in row.values()]


def add_voter(
    node: int = NODE,
    *,
    peer: str | None = typer.Option(
        None, "--peer", metavar="HOST:PORT", help="Where the node listens for peers, if it must be said."
    ),
    bootstrap: str = BOOTSTRAP,
) -> None:
    """Let a member that only follows vote from now on."""
    from penstock.cli.cluster.admin_client import admin_client, expect
    from penstock.core.protocol.messages.add_raft_voter import (
        AddRaftVoterRequest,
        AddRaftVoterRequestListener,
    )

    place = None if peer is None else _address(peer)
    listeners = (
        () if place is None else (AddRaftVoterRequestListener(name="PEER", host=place.host, port=place.port),)
    )
    with admin_client(bootstrap) as admin:
        answer = admin.ask(
            AddRaftVoterRequest(
                cluster_id=admin.cluster().cluster_id,
                timeout_ms=15_000,
                voter_id=node,
                voter_directory_id=_directory(node, admin.quorum().observers, "member that only follows"),
                listeners=listeners,
            )
        )
    expect(f"node {node}", answer.error_code, answer.error_message)
    sys.stderr.write(f"node {node} is a voter now\n")


def remove_voter(node: int = NODE, *, bootstrap: str = BOOTSTRAP) -> None:
    """Let a voter vote no more; while it runs, it goes on as a member that follows."""
    from penstock.cli.cluster.admin_client import admin_client, expect
    from penstock.core.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

    with admin_client(bootstrap) as admin:
        answer = admin.ask(
            RemoveRaftVoterRequest(
                cluster_id=admin.cluster().cluster_id,
                voter_id=node,
                voter_directory_id=_directory(node, admin.quorum().current_voters, "voter"),
            )
        )
    expect(f"node {node}", answer.error_code, answer.error_message)
    sys.stderr.write(f"node {node} is no longer a voter\n")


def unregister(node: int = NODE, *, bootstrap: str = BOOTSTRAP) -> None:
    """Forget a broker that is down and will not come back; move its replicas away first."""
    from penstock.cli.cluster.admin_client import admin_client, expect
    from penstock.core.protocol.messages.unregister_broker import UnregisterBrokerRequest

    with admin_client(bootstrap) as admin:
        answer = admin.ask(UnregisterBrokerRequest(broker_id=node))
    expect(f"node {node}", answer.error_code, answer.error_message)
    sys.stderr.write(f"node {node} is unregistered\n")


def _directory(node: int, known: "Sequence[DescribeQuorumResponseReplica]", what: str) -> UUID:
    """Who exactly is meant: the same number on another disk is another member."""
    for one in known:
        if one.replica_id == node:
            return one.replica_directory_id
    raise InvalidOption(f"node {node} is no {what}: `penstock cluster members` shows them")


def _address(text: str) -> "ListenAddress":
    from penstock.config import ListenAddress

    try:
        return ListenAddress.parse(text)
    except ValueError as error:
        raise InvalidOption(f"--peer: {error}") from None
