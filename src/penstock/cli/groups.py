"""`penstock group`: who reads what, how far behind they are, and moving them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, counted, note, say, show_json, show_table
from penstock.client import PartitionLag

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)
GROUP = typer.Argument(metavar="GROUP")


@app.command("list")
def list_(
    *,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List the consumer groups."""
    from penstock.client import GroupAdmin

    listed = GroupAdmin(endpoint(bootstrap, options)).list()
    if as_json:
        show_json([asdict(one) for one in listed])
    else:
        show_table("", ("group", "state", "type"), [(one.group, one.state, one.type) for one in listed])


@app.command()
def describe(
    group: str = GROUP,
    *,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Show a group's members, and its lag in records and in seconds.

    The lag in seconds is the age of the first record that the group has not read.
    """
    from penstock.client import GroupAdmin

    found = GroupAdmin(endpoint(bootstrap, options)).describe(group)
    if as_json:
        show_json(asdict(found))
        return
    say(f"{found.group}: {found.state}, {counted(len(found.members), 'member')}")
    if found.epoch is not None:
        say(
            f"consumer protocol: epoch {found.epoch}, target of epoch {found.target_epoch}, "
            f"assignor {found.assignor}"
        )
        columns = ("member", "client", "instance", "protocol", "epoch", "partitions", "subscribed to")
        show_table("", columns, map(_member, found.members))
    show_table(
        "",
        ("topic", "partition", "committed", "end", "lag", "lag seconds", "member"),
        map(_row, found.partitions),
    )


@app.command()
def reset(
    group: str = GROUP,
    *,
    topics: list[str] | None = typer.Option(
        None, "--topic", help="Only this topic; may be repeated. By default all that the group has read."
    ),
    to: str = typer.Option(
        ..., "--to", metavar="beginning|end|OFFSET|TIME", help="Where the group shall go on."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show what would be done, and do nothing."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Move a group that has no members to another position."""
    from penstock.client import GroupAdmin, parse_position
    from penstock.runtime.loop import MachineClock

    try:
        position = parse_position(to, MachineClock().wall())
    except ValueError as error:
        raise InvalidOption(f"--to {error}") from None
    groups = GroupAdmin(endpoint(bootstrap, options))
    targets = groups.targets(group, tuple(topics or ()), position)
    if not dry_run:
        groups.reset(group, targets)
    rows = [
        {"topic": topic, "partition": partition, "offset": offset}
        for (topic, partition), offset in sorted(targets.items())
    ]
    if as_json:
        show_json(rows)
    else:
        show_table("", ("topic", "partition", "offset"), [tuple(row.values()) for row in rows])


@app.command()
def delete(
    groups: list[str] = typer.Argument(metavar="GROUP..."),
    *,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Forget groups that have no members, and their offsets."""
    from penstock.client import GroupAdmin

    existing = GroupAdmin(endpoint(bootstrap, options))
    for group in groups:
        existing.delete(group)
        note(f"deleted {group}")


def _member(member: Mapping[str, Any]) -> tuple[object, ...]:
    """A member of a consumer group (KIP-848)."""
    subscribed = [*member.get("topics", ()), *([f"/{member['pattern']}/"] if member.get("pattern") else [])]
    return (
        member["member"],
        member["client"],
        member["instance"] or "-",
        member.get("protocol", "-"),
        member.get("epoch", "-"),
        len(member["partitions"]),
        ", ".join(subscribed) or "-",
    )


def _row(one: "PartitionLag") -> tuple[object, ...]:
    return (
        one.topic,
        one.partition,
        _known(one.committed),
        _known(one.end),
        _known(one.lag),
        "-" if one.lag_seconds is None else f"{one.lag_seconds:.1f}",
        one.member or "-",
    )


def _known(number: int | None) -> object:
    return "-" if number is None else number
