"""`penstock cluster reassign`: moving partitions to other nodes, and watching them move."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import typer

from penstock.cli.cluster.asking import ClusterDoor
from penstock.cli.cluster.moves import MOVE_COLUMNS, move_row, moves_of
from penstock.cli.cluster.overview import Move
from penstock.cli.cluster.targets import Plan, bytes_per_second, chosen, nodes, read_plan, spread
from penstock.cli.cluster.watching import Progress, watch
from penstock.cli.messaging.options import BOOTSTRAP, BadOption
from penstock.cli.output import JSON_OPTION, counted, show_json, show_table

TIMEOUT_MS = 15_000
Places = Sequence[tuple[str, int]]


def reassign(
    targets: list[str] | None = typer.Argument(None, metavar="[TOPIC[:PARTITION]...]"),
    *,
    to: str | None = typer.Option(
        None,
        "--to",
        metavar="NODE,NODE,...",
        help="The nodes that shall hold them, the preferred leader first; several partitions take turns.",
    ),
    file: str | None = typer.Option(
        None, "--file", metavar="FILE", help="A plan in JSON, as Kafka's own tool has it."
    ),
    cancel: bool = typer.Option(False, "--cancel", help="Call moves off; all of them if none are named."),
    throttle: str | None = typer.Option(
        None,
        "--throttle",
        metavar="BYTES/S",
        help="What each broker may send to replicas that catch up, such as 50M; `none` lifts it. "
        "With --watch it is lifted when the moves are done.",
    ),
    watching: bool = typer.Option(
        False, "--watch", help="Stay until they are done, and show how far they are."
    ),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
) -> None:
    """Move partitions to other nodes; without anything to do, show the moves under way.

    A partition stays available while it moves: new replicas are copied first, and old ones go when the
    new ones are in sync.
    """
    from penstock.cli.cluster.asking import door_to

    _check(targets or [], to, file, cancel)
    rate = None if throttle in (None, "none") else bytes_per_second("--throttle", throttle or "")
    with door_to(bootstrap) as door:
        if throttle is not None:
            # Before the first byte is copied.
            door.throttle(rate)
        places = _begin(door, targets or [], to, file, cancel)
        if watching:
            follow(door, places)
            if rate is not None:
                door.throttle(None)
        moves = _moves(door, places)
    if as_json:
        show_json([{**asdict(one), "percent": one.percent} for one in moves])
        return
    show_table("", MOVE_COLUMNS, [move_row(one) for one in moves])
    sys.stderr.write(f"{counted(len(moves), 'partition')} moving\n")


def _begin(
    door: "ClusterDoor", targets: Sequence[str], to: str | None, file: str | None, cancel: bool
) -> Places:
    """Do what was asked for; answers the partitions that it is about."""
    if cancel or (to is None and file is None):
        places = _under_way(door, targets)
        if cancel and places:
            change(door, dict.fromkeys(places))
        return places
    plan = _plan(door, targets, to) if file is None else read_plan(file)
    change(door, plan)
    return list(plan)


def _plan(door: "ClusterDoor", targets: Sequence[str], to: str | None) -> Plan:
    from penstock.cli.cluster.asking import layout_of

    assert to is not None
    replicas = nodes("--to", to)
    return spread(chosen(targets, layout_of(door.partitions())), replicas)


def _check(targets: Sequence[str], to: str | None, file: str | None, cancel: bool) -> None:
    if sum((to is not None, file is not None, cancel)) > 1:
        raise BadOption("give one of --to, --file and --cancel")
    if to is not None and not targets:
        raise BadOption("--to needs topics or partitions to move")
    if file is not None and targets:
        raise BadOption("--file says what to move: name no topics")


def change(door: "ClusterDoor", plan: Plan | Mapping[tuple[str, int], None]) -> None:
    """Ask for moves, or call them off where the plan has no nodes; all that is refused is said at once."""
    from penstock.cli.cluster.asking import complaint, expect
    from penstock.client import ClientError
    from penstock.core.protocol import ErrorCode
    from penstock.core.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsRequestPartition,
        AlterPartitionReassignmentsRequestTopic,
    )

    topics: dict[str, list[AlterPartitionReassignmentsRequestPartition]] = {}
    for (topic, partition), replicas in plan.items():
        topics.setdefault(topic, []).append(
            AlterPartitionReassignmentsRequestPartition(partition_index=partition, replicas=replicas)
        )
    answer = door.ask(
        AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=tuple(
                AlterPartitionReassignmentsRequestTopic(name=topic, partitions=tuple(partitions))
                for topic, partitions in topics.items()
            ),
        )
    )
    expect("the reassignment", answer.error_code, answer.error_message)
    refused = [
        f"{topic.name}:{one.partition_index}: {complaint(one.error_code, one.error_message)}"
        for topic in answer.responses
        for one in topic.partitions
        if one.error_code != ErrorCode.NONE
    ]
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise ClientError(refused[0] + more)


def follow(door: "ClusterDoor", places: Places) -> None:
    """Watch these partitions until none of them moves any more."""

    def look() -> Progress | None:
        moves = _moves(door, places)
        if not moves:
            return None
        done, total = sum(one.bytes_done for one in moves), sum(one.bytes_all for one in moves)
        left = f"{counted(len(moves), 'partition')} of {len(places)} still moving"
        return Progress(done, total, f"{left}, {100 * done // total if total else 0}% of their bytes copied")

    watch("reassigning", look)


def _under_way(door: "ClusterDoor", targets: Sequence[str]) -> list[tuple[str, int]]:
    """The partitions that move, or those of them that are named."""
    from penstock.cli.cluster.asking import layout_of

    moving = [(one.topic, one.partition) for one in door.moves()]
    if not targets:
        return moving
    named = chosen(targets, layout_of(door.partitions()))
    return [place for place in named if place in moving]


def _moves(door: "ClusterDoor", places: Places) -> "list[Move]":
    concerned = set(places)
    found = moves_of(door, door.registered(door.cluster()), door.partitions())
    return [one for one in found if (one.topic, one.partition) in concerned]
