"""`penstock transaction`: what is open, what hangs, and ending it."""

from dataclasses import asdict

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, counted, note, show_json, show_table

app = typer.Typer(
    help="List, describe and abort transactions, and find those that hang.", no_args_is_help=True
)
TRANSACTIONAL_ID = typer.Argument(metavar="ID")
MINUTE_MS = 60_000


@app.command("list")
def list_(
    *,
    states: list[str] | None = typer.Option(
        None, "--state", help="Only this state, such as Ongoing; may be repeated."
    ),
    producer_ids: list[int] | None = typer.Option(
        None, "--producer-id", help="Only this producer; may be repeated."
    ),
    running_ms: int = typer.Option(
        -1, "--running-longer-than-ms", help="Only transactions that began longer ago than this."
    ),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List the transactional ids of all coordinators."""
    from penstock.client.transactions import TransactionAdmin

    listed = TransactionAdmin(endpoint(bootstrap, options)).listed(
        tuple(states or ()), tuple(producer_ids or ()), running_ms
    )
    if as_json:
        show_json([asdict(one) for one in listed])
        return
    show_table(
        "",
        ("transactional id", "coordinator", "producer id", "state"),
        [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in listed],
    )


@app.command()
def describe(
    transactional_id: str = TRANSACTIONAL_ID,
    *,
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Show the state of a transactional id, and the partitions of its transaction."""
    from penstock.client.transactions import TransactionAdmin

    found = TransactionAdmin(endpoint(bootstrap, options)).describe(transactional_id)
    if as_json:
        show_json(asdict(found))
        return
    duration = "-" if found.duration_ms is None else f"{found.duration_ms / 1_000:.1f} s"
    show_table(
        "",
        ("transactional id", "coordinator", "producer id", "epoch", "state", "timeout ms", "open for"),
        [
            (
                found.transactional_id,
                found.coordinator,
                found.producer_id,
                found.producer_epoch,
                found.state,
                found.timeout_ms,
                duration,
            )
        ],
    )
    if found.partitions:
        show_table("", ("topic", "partition"), found.partitions)


@app.command()
def abort(
    transactional_id: str | None = typer.Argument(
        None, metavar="[ID]", help="Fence its producer, and abort what it has open."
    ),
    *,
    topic: str | None = typer.Option(None, "--topic", help="End a transaction in one partition instead."),
    partition: int | None = typer.Option(None, "--partition", help="The partition of --topic."),
    start_offset: int | None = typer.Option(
        None, "--start-offset", help="Where the transaction begins; `find-hanging` shows it."
    ),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Abort the transaction of an id, or one that hangs in a partition.

    A transaction in a partition is ended by a marker that its coordinator does not know of. Use it only
    for what `find-hanging` shows.
    """
    from penstock.client.transactions import TransactionAdmin

    admin = TransactionAdmin(endpoint(bootstrap, options))
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        admin.abort(transactional_id)
        note(f"aborted the transaction of {transactional_id}, and fenced its producer")
    elif (
        transactional_id is None and topic is not None and partition is not None and start_offset is not None
    ):
        ended = admin.abort_at(topic, partition, start_offset)
        note(f"aborted the transaction of producer {ended.producer_id} in {topic}/{partition}")
    else:
        raise InvalidOption("name a transactional id, or --topic, --partition and --start-offset")


@app.command("find-hanging")
def find_hanging(
    *,
    topics: list[str] | None = typer.Option(
        None, "--topic", help="Look only into this topic; may be repeated."
    ),
    minutes: float = typer.Option(
        15.0,
        "--max-transaction-minutes",
        min=0,
        help="How long a transaction may be open; older ones may hang.",
    ),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Find transactions that no coordinator will end; exit with 1 if there are any.

    They keep consumers with read_committed from reading on. End them with `penstock transaction abort
    --topic ... --partition ... --start-offset ...`.
    """
    from penstock.client.transactions import TransactionAdmin

    found = TransactionAdmin(endpoint(bootstrap, options)).find_hanging(
        tuple(topics or ()), int(minutes * MINUTE_MS)
    )
    if as_json:
        show_json([asdict(one) for one in found])
    else:
        show_table(
            "",
            ("topic", "partition", "producer id", "epoch", "start offset", "silent for"),
            [
                (
                    one.topic,
                    one.partition,
                    one.producer_id,
                    one.producer_epoch,
                    one.start_offset,
                    f"{one.duration_ms / 1_000:.1f} s",
                )
                for one in found
            ],
        )
    if found:
        note(f"penstock: {counted(len(found), 'transaction')} hanging")
        raise typer.Exit(1)
