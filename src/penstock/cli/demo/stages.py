"""The stages: sending through a stock client, and reading back in a consumer group."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from penstock.cli.demo.account import Account, DemoFailed
from penstock.cli.demo.series import records
from penstock.client import Endpoint, Groups, Reader, ReaderOptions
from penstock.client.load import Stream
from penstock.core.records import murmur2_partition
from penstock.runtime.loop import MachineClock

BLOCK_RECORDS = 50_000
READ_RECORDS = 10_000
Advance = Callable[[int], None]


@dataclass(slots=True)
class Lag:
    """How far behind the group was: in records, and as the age of the first one it had not read."""

    records: int
    seconds: float | None


@dataclass(slots=True)
class Outcome:
    """What happened, stage by stage."""

    partitions: int
    sent: int = 0
    sent_bytes: int = 0
    sending_ns: int = 0
    latencies_ns: list[int] = field(default_factory=list)
    read: int = 0
    read_bytes: int = 0
    reading_ns: int = 0
    lag_halfway: Lag | None = None
    lag_at_end: Lag | None = None


def send_all(endpoint: Endpoint, topic: str, messages: int, outcome: Outcome, advance: Advance) -> Account:
    """Send made-up measurements block by block; answers the account of them."""
    account = Account(outcome.partitions)
    stream = Stream(endpoint, topic)
    first_timestamp = MachineClock().wall() - messages * 14  # 72 measurements a second, up to about now
    for block in _blocks(messages, first_timestamp, account):
        outcome.sent_bytes += sum(len(key) + len(value) for key, value, _ in block)
        stream.send(block)
        outcome.sent += len(block)
        advance(len(block))
    outcome.sending_ns, outcome.latencies_ns = stream.elapsed_ns, stream.latencies_ns
    return account


def _blocks(
    messages: int, first_timestamp: int, account: Account
) -> Iterator[list[tuple[bytes, bytes, int]]]:
    partition_of: dict[bytes, int] = {}
    series = records(messages, first_timestamp)
    while taken := list(islice(series, BLOCK_RECORDS)):
        block = []
        for record in taken:
            key, value = record.key or b"", record.value or b""
            if key not in partition_of:
                # The broker's client must choose as the Java client would, and as we do.
                partition_of[key] = murmur2_partition(key, len(account.counts))
            account.note(partition_of[key], key, value, record.timestamp)
            block.append((key, value, record.timestamp))
        yield block


def read_all(endpoint: Endpoint, topic: str, group: str, outcome: Outcome, advance: Advance) -> Account:
    """Read everything as a group of one, committing halfway and at the end; answers the account of it."""
    account = Account(outcome.partitions)
    clock = MachineClock()
    with Reader(endpoint, topic, ReaderOptions(group=group, batch_records=READ_RECORDS)) as reader:
        began, paused_ns = clock.now(), 0
        for batch in reader.batches():
            for read in batch:
                if read.offset != account.counts[read.partition]:
                    raise DemoFailed(
                        f"partition {read.partition}: offset {read.offset} "
                        f"instead of {account.counts[read.partition]}"
                    )
                key, value = read.key or b"", read.value or b""
                account.note(read.partition, key, value, read.timestamp_ms or 0)
                outcome.read_bytes += len(key) + len(value)
            reader.dealt_with(batch)
            advance(len(batch))
            if outcome.lag_halfway is None and account.records * 2 >= outcome.sent:
                paused = clock.now()
                reader.commit()
                outcome.lag_halfway = lag_of(endpoint, group)
                paused_ns += clock.now() - paused
        reader.commit()
        outcome.reading_ns = clock.now() - began - paused_ns
    outcome.read = account.records
    outcome.lag_at_end = lag_of(endpoint, group)
    return account


def lag_of(endpoint: Endpoint, group: str) -> Lag:
    partitions = Groups(endpoint).describe(group).partitions
    ages = [one.lag_seconds for one in partitions if one.lag_seconds is not None]
    # Nothing was committed yet in a partition of which nothing was read: all of it is still to come.
    behind = sum((one.end or 0) if one.lag is None else one.lag for one in partitions)
    return Lag(behind, max(ages, default=None))
