"""`penstock queue dlq` and `penstock queue redrive`: records that queues have given up, and the way back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import JSON_OPTION, counted, show_json, show_table
from penstock.core.protocol import ErrorCode
from penstock.core.queues import REDRIVE_GROUP
from penstock.core.queues.record_headers import ATTEMPTS, ERROR, ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC

SUFFIX = ".dlq"
PER_REQUEST = 200
VALUE_CHARS_MAX = 60
TOPIC = typer.Argument(metavar="TOPIC", help="The topic that the records were in, without `.dlq`.")
T = TypeVar("T")


def dlq(
    topic: str = TOPIC,
    *,
    count: int = typer.Option(100, "--count", "-n", min=1, help="How many dead letters at most."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """List dead letters that were not redriven: where they were, how often tried, and why they failed."""

    async def list_all(cluster: Any, queues: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        name = topic + SUFFIX
        for partition in range(await _partitions(cluster, topic)):
            start = 0
            while start >= 0 and len(found) < count:
                page = await queues.peek(
                    REDRIVE_GROUP, name, partition, from_offset=start, count=count - len(found)
                )
                found += [_letter(name, partition, record) for record in page.records]
                start = page.next_offset
        return found

    letters = _run(bootstrap, options, list_all)
    if as_json:
        show_json(letters)
        return
    columns = ("id", "origin", "attempts", "reason", "value")
    show_table("", columns, [tuple(letter[name] for name in columns) for letter in letters])


def redrive(
    topic: str = TOPIC,
    *,
    ids: list[str] | None = typer.Option(
        None, "--id", help="Only this dead letter, as `dlq` prints it; may be repeated."
    ),
    to_topic: str | None = typer.Option(None, "--to", help="Another topic than the one they came from."),
    count: int = typer.Option(1_000_000, "--count", "-n", min=1, help="How many dead letters at most."),
    rate: float | None = typer.Option(None, "--rate", min=0.001, help="How many per second at most."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Move nothing, and print what would be moved."),
    as_json: bool = JSON_OPTION,
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Move dead letters back to the topics they came from; all of them without `--id`."""
    chosen = _chosen(topic + SUFFIX, ids or [])

    async def move(cluster: Any, queues: Any) -> list[dict[str, Any]]:
        places = chosen or {partition: [] for partition in range(await _partitions(cluster, topic))}
        moves = _Moves(queues, topic + SUFFIX, to_topic, dry_run, count, rate)
        for partition, offsets in places.items():
            await moves.add(partition, offsets)
        return moves.rows

    rows = _run(bootstrap, options, move)
    if as_json:
        show_json(rows)
    else:
        show_table(
            "", ("id", "to", "error"), [(each["id"], each["to"], each["error"] or "-") for each in rows]
        )
        done = sum(not each["error"] for each in rows)
        typer.echo(f"{'would move' if dry_run else 'moved'} {counted(done, 'dead letter')}", err=True)
    if any(each["error"] for each in rows):
        raise typer.Exit(1)


class _Moves:
    """Dead letters that were moved, some at a time and no faster than at a rate."""

    def __init__(
        self, queues: Any, name: str, to_topic: str | None, dry_run: bool, count: int, rate: float | None
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._queues = queues
        self._name = name
        self._to_topic = to_topic
        self._dry_run = dry_run
        self._count = count
        self._rate = rate
        self._begun = asyncio.get_running_loop().time()

    async def add(self, partition: int, offsets: list[int]) -> None:
        """Move those of a partition: the chosen ones, or until none is left that can be moved."""
        left, start = list(offsets), 0
        while len(self.rows) < self._count:
            most = await self._next_portion()
            portion, left = left[:most], left[most:]
            rows, start = await self._move(partition, portion, most, start)
            self.rows += rows
            # What cannot be moved would come again and again; a dry run goes on behind what it has seen.
            is_stuck = start < 0 if self._dry_run else not rows or any(each["error"] for each in rows)
            if not left if offsets else is_stuck:
                return

    async def _next_portion(self) -> int:
        most = min(PER_REQUEST, self._count - len(self.rows))
        if self._rate is None or self._dry_run:
            return most
        if self.rows:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(max(0.0, self._begun + len(self.rows) / self._rate - now))
        return max(1, min(most, int(self._rate / 10)))

    async def _move(
        self, partition: int, offsets: list[int], most: int, start: int
    ) -> tuple[list[dict[str, Any]], int]:
        (row,) = await self._queues.redrive(
            self._name,
            {partition: offsets},
            to_topic=self._to_topic,
            is_dry_run=self._dry_run,
            records_max=most,
            from_offset=max(0, start),
        )
        if row.error_code != ErrorCode.NONE:
            from penstock.client.cluster import ClusterError

            raise ClusterError(row.error_code, row.error_message)
        return [_moved(self._name, partition, record) for record in row.records], row.next_offset


def _run(bootstrap: str, options: list[str] | None, work: Callable[[Any, Any], Awaitable[T]]) -> T:
    from penstock.client.cluster import ClusterClient, QueueClient, cluster_security

    where = endpoint(bootstrap, options)
    addresses, security = where.addresses(), cluster_security(where)

    async def run() -> T:
        async with ClusterClient(addresses, client_id="penstock-cli", security=security) as cluster:
            return await work(cluster, QueueClient(cluster))

    return asyncio.run(run())


async def _partitions(cluster: Any, topic: str) -> int:
    from penstock.client.cluster import ClusterError

    try:
        return len((await cluster.topic(topic + SUFFIX)).partitions)
    except ClusterError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        # Nothing was given up, unless there is no such topic at all.
        await cluster.topic(topic)
        return 0


def _chosen(name: str, ids: list[str]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for each in ids:
        topic, _, rest = each.partition("/")
        partition, _, offset = rest.partition("/")
        if topic != name or not (rest.isascii() and partition.isdigit() and offset.isdigit()):
            raise InvalidOption(f"--id {each}: the id of a dead letter is {name}/partition/offset")
        found.setdefault(int(partition), []).append(int(offset))
    return found


def _letter(name: str, partition: int, record: Any) -> dict[str, Any]:
    headers = {each.key: (each.value or b"").decode("utf-8", "replace") for each in record.headers}
    value = (record.value or b"").decode("utf-8", "replace")
    place = [headers.get(each, "?") for each in (ORIGIN_TOPIC, ORIGIN_PARTITION, ORIGIN_OFFSET)]
    return {
        "id": f"{name}/{partition}/{record.offset}",
        "origin": "/".join(place) if ORIGIN_TOPIC in headers else "-",
        "attempts": headers.get(ATTEMPTS, "-"),
        "reason": headers.get(ERROR, "-"),
        "value": value if len(value) <= VALUE_CHARS_MAX else value[:VALUE_CHARS_MAX] + "…",
    }


def _moved(name: str, partition: int, record: Any) -> dict[str, Any]:
    is_moved = record.error_code == ErrorCode.NONE
    return {
        "id": f"{name}/{partition}/{record.offset}",
        "to": f"{record.to_topic}/{record.to_partition}" if is_moved else "-",
        "error": None if is_moved else record.error_message or ErrorCode(record.error_code).name,
    }
