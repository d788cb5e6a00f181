"""`penstock cluster elect`: giving partitions to the leaders they should have."""

import sys
from typing import Any

import typer

from penstock.cli.cluster.asking import ClusterDoor
from penstock.cli.messaging.options import BOOTSTRAP, BadOption
from penstock.cli.output import JSON_OPTION, counted, show_json, show_table

PREFERRED, UNCLEAN = 0, 1
TIMEOUT_MS = 15_000


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
    """Elect leaders: preferred ones back into office, or any for partitions that have none."""
    from penstock.cli.cluster.asking import door_to

    if preferred == unclean:
        raise BadOption("give either --preferred or --unclean")
    if bool(targets) == everything:
        raise BadOption("name topics or partitions, or give --all")
    with door_to(bootstrap) as door:
        rows = _elect(door, None if everything else targets, UNCLEAN if unclean else PREFERRED)
    if as_json:
        show_json(rows)
    else:
        show_table("", ("partition", "leader", "outcome"), [tuple(row.values()) for row in rows])
    failed = [row for row in rows if row["outcome"] not in ("elected", "not needed")]
    if failed:
        sys.stderr.write(f"penstock: {counted(len(failed), 'partition')} without the leader asked for\n")
        raise typer.Exit(1)


def _elect(door: "ClusterDoor", targets: list[str] | None, kind: int) -> list[dict[str, Any]]:
    from penstock.cli.cluster.asking import expect, layout_of
    from penstock.cli.cluster.targets import chosen
    from penstock.core.protocol.messages.elect_leaders import (
        ElectLeadersRequest,
        ElectLeadersRequestTopicPartitions,
    )

    wanted: dict[str, list[int]] = {}
    if targets is not None:
        for topic, partition in chosen(targets, layout_of(door.partitions())):
            wanted.setdefault(topic, []).append(partition)
    asked = tuple(
        ElectLeadersRequestTopicPartitions(topic=topic, partitions=tuple(partitions))
        for topic, partitions in wanted.items()
    )
    answer = door.ask(
        ElectLeadersRequest(
            election_type=kind,
            topic_partitions=None if targets is None else asked,
            timeout_ms=TIMEOUT_MS,
        )
    )
    expect("the election", answer.error_code, None)
    leaders = {(one.topic, one.partition): one.leader for one in door.partitions()}
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
    from penstock.cli.cluster.asking import complaint
    from penstock.core.protocol import ErrorCode

    if code == ErrorCode.NONE:
        return "elected"
    return "not needed" if code == ErrorCode.ELECTION_NOT_NEEDED else complaint(code, message)
