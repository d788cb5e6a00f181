"""`penstock cluster scrub`: what brokers verify in the background, what they found, and what they keep."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer

from penstock.cli.broker_options import BOOTSTRAP, InvalidOption
from penstock.cli.cluster.admin_client import AdminClient, BrokerInfo
from penstock.cli.output import JSON_OPTION, counted, show_json, show_table
from penstock.client import ClientError

SECOND_MS = 1000


@dataclass(frozen=True, slots=True)
class PartitionDamage:
    """One replica: when it was last verified, what is damaged in it now, and what was since it was opened."""

    topic: str
    partition: int
    verified_at_ms: int | None
    damaged: tuple[tuple[int, int], ...]
    found: int
    repaired: int
    lost: int
    quarantine_files: int
    quarantine_bytes: int

    @property
    def is_worth_a_row(self) -> bool:
        return bool(self.damaged or self.found or self.lost or self.quarantine_files)


@dataclass(frozen=True, slots=True)
class BrokerScrub:
    """Where the scrub of one broker is, and its replicas. Without a time it is switched off.

    A broker that does not respond has an `error` instead.
    """

    node_id: int
    started_ms: int | None
    is_done: bool
    at: str | None
    partitions: tuple[PartitionDamage, ...]
    error: str | None = None


def scrub(
    node: int | None = typer.Argument(None, metavar="[NODE]", help="Only this broker."),
    *,
    now: bool = typer.Option(False, "--now", help="Begin to verify everything at once, at the usual rate."),
    drop: bool = typer.Option(
        False, "--drop-quarantine", help="Remove what is in quarantine by now; it cannot be brought back."
    ),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
) -> None:
    """Show how far brokers have verified their logs, and what is damaged; exit with 1 if anything is.

    Damaged ranges are repaired from other replicas. Those that stay are lost on that broker: nobody else
    has them, or nobody who does can be reached. What was taken out of logs is kept in their quarantine.
    """
    from penstock.cli.cluster.admin_client import admin_client

    with admin_client(bootstrap) as admin:
        brokers = _chosen(admin, node)
        if now or drop:
            for node_id in brokers:
                admin.configure_broker(node_id, _requests(now=now, drop=drop))
    found = [_of(node_id, broker) for node_id, broker in brokers.items()]
    errors = [one.error for one in found if one.error is not None]
    if errors and len(errors) == len(found):
        raise ClientError(errors[0])
    if as_json:
        show_json([asdict(one) for one in found])
    else:
        _show(found)
        for what, is_asked in (("begin to verify", now), ("drop their quarantines", drop)):
            if is_asked:
                sys.stderr.write(f"{counted(len(found), 'broker')} will {what}\n")
    damaged = sum(len(partition.damaged) for one in found for partition in one.partitions)
    if damaged:
        sys.stderr.write(f"penstock: {counted(damaged, 'range')} damaged\n")
        raise typer.Exit(1)


def _chosen(admin: AdminClient, node: int | None) -> dict[int, BrokerInfo]:
    known = admin.registered(admin.cluster())
    if node is not None and node not in known:
        raise InvalidOption(f"there is no broker {node}: `penstock cluster status` shows them")
    return {node_id: one for node_id, one in sorted(known.items()) if node in (None, node_id)}


def _requests(*, now: bool, drop: bool) -> dict[str, str]:
    from penstock.runtime.loop import MachineClock

    # A second later than now: what a broker's clock calls now may be a little behind.
    at = str(MachineClock().wall() + SECOND_MS)
    wanted = {"log.scrub.requested.ms": now, "log.quarantine.drop.before.ms": drop}
    return {key: at for key, is_wanted in wanted.items() if is_wanted}


def _of(node_id: int, broker: BrokerInfo) -> BrokerScrub:
    from penstock.cli.cluster.admin_client import admin_client

    try:
        with admin_client(broker.address) as admin:
            (directory,) = admin.log_dirs_with_scrub()
    except ClientError as error:
        return BrokerScrub(node_id, None, False, None, (), str(error))
    at = directory.scrub
    return BrokerScrub(
        node_id,
        at.started_ms if at.started_ms >= 0 else None,
        at.is_done,
        f"{at.topic}/{at.partition} {at.segment}" if at.topic else None,
        tuple(
            PartitionDamage(
                topic.name,
                one.partition_index,
                one.damage.verified_at_ms if one.damage.verified_at_ms >= 0 else None,
                tuple((damage.start, damage.end) for damage in one.damage.damaged),
                one.damage.found,
                one.damage.repaired,
                one.damage.lost,
                one.damage.quarantine_files,
                one.damage.quarantine_bytes,
            )
            for topic in directory.topics
            for one in topic.partitions
        ),
    )


def _show(found: Sequence[BrokerScrub]) -> None:
    show_table("", ("node", "began", "state", "verified", "replicas"), [_broker_row(one) for one in found])
    rows = [
        _partition_row(one.node_id, partition)
        for one in found
        for partition in one.partitions
        if partition.is_worth_a_row
    ]
    if rows:
        columns = (
            "node",
            "partition",
            "damaged now",
            "found",
            "repaired",
            "lost",
            "files kept",
            "bytes kept",
        )
        show_table("", columns, rows)


def _broker_row(one: BrokerScrub) -> tuple[Any, ...]:
    if one.error is not None:
        return one.node_id, "-", one.error, "-", "-"
    state = "off" if one.started_ms is None else "done" if one.is_done else f"at {one.at or 'the beginning'}"
    verified = sum(partition.verified_at_ms is not None for partition in one.partitions)
    return one.node_id, _time(one.started_ms), state, verified, len(one.partitions)


def _partition_row(node_id: int, one: PartitionDamage) -> tuple[Any, ...]:
    ranges = " ".join(f"{start}..{end}" for start, end in one.damaged) or "-"
    name = f"{one.topic}/{one.partition}"
    return (
        node_id,
        name,
        ranges,
        one.found,
        one.repaired,
        one.lost,
        one.quarantine_files,
        one.quarantine_bytes,
    )


def _time(at_ms: int | None) -> str:
    return "-" if at_ms is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / SECOND_MS))
