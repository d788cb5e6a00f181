"""`penstock queue`: the work queue that every topic is, from the command line."""

import sys
from dataclasses import asdict
from typing import Any

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.consume import text_fields
from penstock.cli.dead_letters import dlq, redrive
from penstock.cli.output import JSON_OPTION, counted, show_json, show_table

app = typer.Typer(
    help="Receive and acknowledge records of a topic as a work queue, and look after queues.",
    no_args_is_help=True,
)
GROUP = typer.Option(..., "--group", "-g", help="The group whose queues these are.")
app.command()(dlq)
app.command()(redrive)
TOPIC = typer.Argument(metavar="TOPIC")
RECEIPTS = typer.Argument(metavar="RECEIPT...", help="What `receive` printed; `-` reads them from stdin.")
PARTITIONS = typer.Option(None, "--partition", "-p", help="Only this partition; may be repeated.")


@app.command()
def receive(
    topics: list[str] = typer.Argument(metavar="TOPIC..."),
    *,
    group: str = GROUP,
    partitions: list[int] | None = PARTITIONS,
    consumer: str = typer.Option("cli", "--consumer", help="Who receives; shown by `peek`."),
    count: int = typer.Option(10, "--count", "-n", min=1, help="How many records at most."),
    wait_ms: int = typer.Option(0, "--wait-ms", min=0, help="How long to wait for the first record."),
    lease_ms: int | None = typer.Option(
        None,
        "--lease-ms",
        min=1,
        help="How long nobody else gets the records; the group's setting without it.",
    ),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Lease records, and print them with the receipts to acknowledge them with."""
    from penstock.client.queues import GroupQueues

    received = GroupQueues(endpoint(bootstrap, options), group).receive(
        [(topic, partitions or ()) for topic in topics],
        consumer=consumer,
        count=count,
        wait_ms=wait_ms,
        lease_ms=lease_ms,
    )
    if as_json:
        show_json([_json(record) for record in received])
        return
    show_table(
        "",
        ("topic", "partition", "offset", "attempt", "value", "receipt"),
        [
            (each.topic, each.partition, each.offset, each.attempt, _shown(each.value), each.receipt)
            for each in received
        ],
    )


@app.command()
def ack(
    receipts: list[str] = RECEIPTS,
    *,
    group: str = GROUP,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Acknowledge records: they are done."""
    from penstock.client.queues import GroupQueues

    known = _read(receipts)
    GroupQueues(endpoint(bootstrap, options), group).acknowledge(known)
    sys.stderr.write(f"acknowledged {counted(len(known), 'record')}\n")


@app.command()
def nack(
    receipts: list[str] = RECEIPTS,
    *,
    group: str = GROUP,
    delay_ms: int | None = typer.Option(
        None, "--delay-ms", min=0, help="When to deliver them again; the group's backoff if left out."
    ),
    reason: str = typer.Option("", "--reason", help="Why; dead letters carry the last one."),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Release records: they are delivered again."""
    from penstock.client.queues import GroupQueues

    known = _read(receipts)
    GroupQueues(endpoint(bootstrap, options), group).release(known, delay_ms=delay_ms, reason=reason)
    sys.stderr.write(f"released {counted(len(known), 'record')}\n")


@app.command()
def reject(
    receipts: list[str] = RECEIPTS,
    *,
    group: str = GROUP,
    reason: str = typer.Option("", "--reason", help="Why; dead letters carry it."),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Give records up: they move to the dead-letter topic."""
    from penstock.client.queues import GroupQueues

    known = _read(receipts)
    GroupQueues(endpoint(bootstrap, options), group).reject(known, reason=reason)
    sys.stderr.write(f"rejected {counted(len(known), 'record')}\n")


@app.command()
def renew(
    receipts: list[str] = RECEIPTS,
    *,
    group: str = GROUP,
    lease_ms: int | None = typer.Option(
        None, "--lease-ms", min=1, help="How long from now on; as long as before if left out."
    ),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Keep records for longer: their leases count anew."""
    from penstock.client.queues import GroupQueues

    known = _read(receipts)
    GroupQueues(endpoint(bootstrap, options), group).renew(known, lease_ms=lease_ms)
    sys.stderr.write(f"renewed {counted(len(known), 'lease')}\n")


@app.command()
def peek(
    topic: str = TOPIC,
    *,
    group: str = GROUP,
    partition: int = typer.Option(0, "--partition", "-p", min=0, help="The partition to look into."),
    from_offset: int = typer.Option(0, "--from", min=0, help="The offset to begin at."),
    count: int = typer.Option(10, "--count", "-n", min=1, help="How many records at most."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Show records that are not finished, without leasing them."""
    from penstock.client.queues import GroupQueues

    found = GroupQueues(endpoint(bootstrap, options), group).peek(
        topic, partition, from_offset=from_offset, count=count
    )
    if as_json:
        show_json([_json(record) for record in found])
        return
    show_table(
        "",
        ("offset", "state", "attempts", "consumer", "value", "reason"),
        [
            (
                each.offset,
                each.state,
                each.attempts,
                each.consumer or "-",
                _shown(each.value),
                each.reason or "-",
            )
            for each in found
        ],
    )


@app.command("list")
def list_(
    *,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List the queues of all groups."""
    _describe((), (), as_json=as_json, bootstrap=bootstrap, options=options)


@app.command()
def describe(
    groups: list[str] = typer.Argument(metavar="GROUP..."),
    *,
    topics: list[str] | None = typer.Option(None, "--topic", help="Only this topic; may be repeated."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Show what groups have to do, also those that nobody consumes for."""
    _describe(tuple(groups), tuple(topics or ()), as_json=as_json, bootstrap=bootstrap, options=options)


@app.command()
def pause(
    topic: str = TOPIC,
    *,
    group: str = GROUP,
    partitions: list[int] | None = PARTITIONS,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Deliver nothing until the queues are resumed."""
    from penstock.client.queues import GroupQueues
    from penstock.core.protocol.messages.queue_alter import PAUSE

    GroupQueues(endpoint(bootstrap, options), group).alter(PAUSE, topic, partitions or ())


@app.command()
def resume(
    topic: str = TOPIC,
    *,
    group: str = GROUP,
    partitions: list[int] | None = PARTITIONS,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Deliver again."""
    from penstock.client.queues import GroupQueues
    from penstock.core.protocol.messages.queue_alter import RESUME

    GroupQueues(endpoint(bootstrap, options), group).alter(RESUME, topic, partitions or ())


@app.command()
def reset(
    topic: str = TOPIC,
    *,
    group: str = GROUP,
    partitions: list[int] | None = PARTITIONS,
    to: str = typer.Option(..., "--to", help="earliest, latest, or an offset."),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Begin again somewhere else, whatever was delivered; leases end."""
    from penstock.client.queues import GroupQueues
    from penstock.core.protocol.messages.queue_alter import RESET, TO_EARLIEST, TO_LATEST

    offset = {"earliest": TO_EARLIEST, "latest": TO_LATEST}.get(to)
    if offset is None:
        if not to.isdecimal():
            raise InvalidOption(f"--to {to}: earliest, latest, or an offset")
        offset = int(to)
    GroupQueues(endpoint(bootstrap, options), group).alter(RESET, topic, partitions or (), offset=offset)


@app.command()
def forget(
    topic: str = TOPIC,
    *,
    group: str = GROUP,
    partitions: list[int] | None = PARTITIONS,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Delete the group's queues on a topic."""
    from penstock.client.queues import GroupQueues
    from penstock.core.protocol.messages.queue_alter import FORGET

    GroupQueues(endpoint(bootstrap, options), group).alter(FORGET, topic, partitions or ())


def _describe(
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    *,
    as_json: bool,
    bootstrap: str,
    options: list[str] | None,
) -> None:
    from penstock.client.queues import describe_queues

    found = describe_queues(endpoint(bootstrap, options), groups, topics)
    if as_json:
        show_json([asdict(each) for each in found])
        return
    show_table(
        "",
        (
            "group",
            "topic",
            "partition",
            "finished",
            "ready",
            "leased",
            "delayed",
            "blocked",
            "moving",
            "paused",
        ),
        [
            (
                each.group_id,
                each.topic,
                each.partition,
                each.finished_below,
                each.ready,
                each.leased,
                each.delayed,
                each.blocked,
                each.moving,
                "yes" if each.is_paused else "no",
            )
            for each in found
        ],
    )


def _read(receipts: list[str]) -> list[str]:
    known = sys.stdin.read().split() if receipts == ["-"] else receipts
    if not known:
        raise InvalidOption("no receipt was given")
    return known


def _shown(value: bytes | None) -> str:
    return "-" if value is None else value.decode("utf-8", "replace")


def _json(record: Any) -> dict[str, Any]:
    """Bytes that are not text stand under `…_base64` instead."""
    fields = asdict(record)
    key, value = fields.pop("key"), fields.pop("value")
    headers = [{"name": name, **text_fields("value", content)} for name, content in fields.pop("headers")]
    return {**fields, **text_fields("key", key), **text_fields("value", value), "headers": headers}
