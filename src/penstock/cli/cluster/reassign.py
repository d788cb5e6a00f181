"""`penstock cluster reassign`, `elect` and `drain`: moving partitions and leaders to other nodes."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import typer

from penstock.cli.broker_options import BOOTSTRAP, InvalidOption
from penstock.cli.cluster.admin_client import (
    MOVE_COLUMNS,
    AdminClient,
    Plan,
    Reassignment,
    bytes_per_second,
    chosen,
    nodes,
    read_plan,
    reassignment_row,
    reassignments_of,
    spread,
)
from penstock.cli.output import JSON_OPTION, counted, note, printable, show_json, show_table
from penstock.core.model import MILLISECOND
from penstock.runtime.loop import MachineClock

LOOK_SECONDS = 0.5
LINE_MS = 5_000
TIMEOUT_MS = 15_000
Places = Sequence[tuple[str, int]]
PREFERRED, UNCLEAN = 0, 1


class WatchProgress(NamedTuple):
    """How far it is, and in words; `total` may grow."""

    done: int
    total: int
    words: str


def watch(title: str, look: Callable[[], WatchProgress | None]) -> None:
    """Poll until it is done, showing the progress."""
    if sys.stderr.isatty():
        _bar(title, look)
    else:
        _lines(title, look)


def _bar(title: str, look: Callable[[], WatchProgress | None]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn(printable(title)),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        while (seen := look()) is not None:
            bar.update(task, completed=seen.done, total=seen.total or None, description=printable(seen.words))
            time.sleep(LOOK_SECONDS)


def _lines(title: str, look: Callable[[], WatchProgress | None]) -> None:
    clock = MachineClock()
    said, next_line = "", 0
    while (seen := look()) is not None:
        if seen.words != said and clock.now() >= next_line:
            note(f"{title}: {seen.words}")
            sys.stderr.flush()
            said, next_line = seen.words, clock.now() + LINE_MS * MILLISECOND
        time.sleep(LOOK_SECONDS)


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
    from penstock.cli.cluster.admin_client import admin_client

    _check(targets or [], to, file, cancel)
    rate = None if throttle in (None, "none") else bytes_per_second("--throttle", throttle or "")
    with admin_client(bootstrap) as admin:
        if throttle is not None:
            # Before the first byte is copied.
            admin.throttle(rate)
        places = _begin(admin, targets or [], to, file, cancel)
        if watching:
            follow(admin, places)
            if rate is not None:
                admin.throttle(None)
        moves = _moves(admin, places)
    if as_json:
        show_json([{**asdict(one), "percent": one.percent} for one in moves])
        return
    show_table("", MOVE_COLUMNS, [reassignment_row(one) for one in moves])
    note(f"{counted(len(moves), 'partition')} moving")


def _begin(
    admin: "AdminClient", targets: Sequence[str], to: str | None, file: str | None, cancel: bool
) -> Places:
    """Do what was asked for; returns the partitions that it is about."""
    if cancel or (to is None and file is None):
        places = _under_way(admin, targets)
        if cancel and places:
            change(admin, dict.fromkeys(places))
        return places
    plan = _plan(admin, targets, to) if file is None else read_plan(file)
    change(admin, plan)
    return list(plan)


def _plan(admin: "AdminClient", targets: Sequence[str], to: str | None) -> Plan:
    from penstock.cli.cluster.admin_client import layout_of

    assert to is not None
    replicas = nodes("--to", to)
    return spread(chosen(targets, layout_of(admin.partitions())), replicas)


def _check(targets: Sequence[str], to: str | None, file: str | None, cancel: bool) -> None:
    if sum((to is not None, file is not None, cancel)) > 1:
        raise InvalidOption("give one of --to, --file and --cancel")
    if to is not None and not targets:
        raise InvalidOption("--to needs topics or partitions to move")
    if file is not None and targets:
        raise InvalidOption("--file says what to move: name no topics")


def change(admin: "AdminClient", plan: Plan | Mapping[tuple[str, int], None]) -> None:
    """Ask for moves, or cancel them where the plan has no nodes; all errors are reported at once."""
    from penstock.cli.cluster.admin_client import complaint, expect
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
    answer = admin.ask(
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


def follow(admin: "AdminClient", places: Places) -> None:
    """Watch these partitions until none of them moves any more."""

    def look() -> WatchProgress | None:
        moves = _moves(admin, places)
        if not moves:
            return None
        done, total = sum(one.bytes_done for one in moves), sum(one.bytes_all for one in moves)
        left = f"{counted(len(moves), 'partition')} of {len(places)} still moving"
        return WatchProgress(
            done, total, f"{left}, {100 * done // total if total else 0}% of their bytes copied"
        )

    watch("reassigning", look)


def _under_way(admin: "AdminClient", targets: Sequence[str]) -> list[tuple[str, int]]:
    """The partitions that move, or those of them that are named."""
    from penstock.cli.cluster.admin_client import layout_of

    moving = [(one.topic, one.partition) for one in admin.moves()]
    if not targets:
        return moving
    named = chosen(targets, layout_of(admin.partitions()))
    return [place for place in named if place in moving]


def _moves(admin: "AdminClient", places: Places) -> "list[Reassignment]":
    concerned = set(places)
    found = reassignments_of(admin, admin.registered(admin.cluster()), admin.partitions())
    return [one for one in found if (one.topic, one.partition) in concerned]


def elect(
    targets: list[str] | None = typer.Argument(None, metavar="[TOPIC[:PARTITION]...]"),
    *,
    preferred: bool = typer.Option(False, "--preferred", help="Elect the first replica, if it is in sync."),
    unclean: bool = typer.Option(
        False,
        "--unclean",
        help="Elect any replica that is alive where none is in sync; what it has not copied is lost.",
    ),
    everything: bool = typer.Option(False, "--all", help="All partitions that need it."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
) -> None:
    """Elect leaders: preferred ones again, or any for partitions that have none."""
    from penstock.cli.cluster.admin_client import admin_client

    if preferred == unclean:
        raise InvalidOption("give either --preferred or --unclean")
    if bool(targets) == everything:
        raise InvalidOption("name topics or partitions, or give --all")
    with admin_client(bootstrap) as admin:
        rows = _elect(admin, None if everything else targets, UNCLEAN if unclean else PREFERRED)
    if as_json:
        show_json(rows)
    else:
        show_table("", ("partition", "leader", "outcome"), [tuple(row.values()) for row in rows])
    failed = [row for row in rows if row["outcome"] not in ("elected", "not needed")]
    if failed:
        note(f"penstock: {counted(len(failed), 'partition')} did not get the requested leader")
        raise typer.Exit(1)


def _elect(admin: "AdminClient", targets: list[str] | None, kind: int) -> list[dict[str, Any]]:
    from penstock.cli.cluster.admin_client import chosen, expect, layout_of
    from penstock.core.protocol.messages.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersRequestTopicPartitions,
    )

    wanted: dict[str, list[int]] = {}
    if targets is not None:
        for topic, partition in chosen(targets, layout_of(admin.partitions())):
            wanted.setdefault(topic, []).append(partition)
    asked = tuple(
        ElectLeadersRequestTopicPartitions(topic=topic, partitions=tuple(partitions))
        for topic, partitions in wanted.items()
    )
    answer = admin.ask(
        ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None if targets is None else asked,
            timeout_ms=TIMEOUT_MS,
        )
    )
    expect("the election", answer.error_code, None)
    leaders = {(one.topic, one.partition): one.leader for one in admin.partitions()}
    return [
        {
            "partition": f"{topic.topic}:{one.partition_id}",
            "leader": leaders.get((topic.topic, one.partition_id)),
            "outcome": _outcome(one.error_code, one.error_message),
        }
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ]


def _outcome(code: int, message: str | None) -> str:
    from penstock.cli.cluster.admin_client import complaint
    from penstock.core.protocol import ErrorCode

    if code == ErrorCode.NONE:
        return "elected"
    return "not needed" if code == ErrorCode.ELECTION_NOT_NEEDED else complaint(code, message)


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
    from penstock.cli.cluster.admin_client import admin_client
    from penstock.client.admin import drain as change

    with admin_client(bootstrap) as admin:
        if node not in admin.registered(admin.cluster()):
            raise InvalidOption(f"there is no broker {node}: `penstock cluster status` shows them")
        change(admin.endpoint, node, undo=undo)
        if watching and not undo:
            _follow(admin, node)
        leads, holds = _counts(admin, node)
    if as_json:
        show_json({"node_id": node, "drained": not undo, "leads": leads, "replicas": holds})
        return
    state = "may lead again" if undo else "is drained"
    counts = f"leads {counted(leads, 'partition')}, holds {counted(holds, 'replica')}"
    note(f"node {node} {state}: it {counts}")


def _follow(admin: "AdminClient", node: int) -> None:
    first = _movable(admin, node)

    def look() -> WatchProgress | None:
        left = _movable(admin, node)
        if not left:
            return None
        return WatchProgress(max(0, first - left), first, f"{counted(left, 'partition')} still led by {node}")

    watch(f"draining node {node}", look)


def _movable(admin: "AdminClient", node: int) -> int:
    """How many partitions the node leads that another has in sync."""
    return sum(one.leader == node and len(one.in_sync) > 1 for one in admin.partitions())


def _counts(admin: "AdminClient", node: int) -> tuple[int, int]:
    partitions = admin.partitions()
    return (
        sum(one.leader == node for one in partitions),
        sum(node in one.replicas for one in partitions),
    )
