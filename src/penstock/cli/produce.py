"""`penstock produce`: lines of stdin or of a file, each a record."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, assignments, endpoint
from penstock.cli.delays import deliver_at_ms
from penstock.cli.output import counted, note, progress_bar, show_json
from penstock.client import ProducerOptions

if TYPE_CHECKING:
    from penstock.client.delays import DelayAdmin, LaterRecord

# Names of ours and Kafka's numbers.
ACKS = {"all": "all", "leader": "1", "none": "0", "-1": "all", "1": "1", "0": "0"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROGRESS_RECORDS = 10_000
DELAYED_RECORDS = 1_000


def produce(
    topic: str = typer.Argument(metavar="TOPIC"),
    *,
    key_separator: str | None = typer.Option(
        None, "--key-separator", metavar="C", help="What stands between key and value on a line."
    ),
    partition: int = typer.Option(-1, "--partition", help="Send to this partition, whatever the key."),
    file: str | None = typer.Option(None, "--file", metavar="FILE", help="Read lines from FILE, not stdin."),
    headers: list[str] | None = typer.Option(
        None, "--header", metavar="NAME=VALUE", help="A header of every record; may be repeated."
    ),
    acks: str | None = typer.Option(
        None,
        "--acks",
        help="all, leader (or 1), none (or 0); by default as `client.acks` says, which is all.",
    ),
    codec: str = typer.Option("none", "--codec", help=f"{', '.join(CODECS[:-1])} or {CODECS[-1]}."),
    timeout: float = typer.Option(
        30.0, "--timeout", min=0.1, max=3_600, help="Seconds after which a record counts as not delivered."
    ),
    delay: str | None = typer.Option(
        None, "--delay", metavar="TIME", help="Publish so much later: 500ms, 30s, 5m, 2h, 1d."
    ),
    deliver_at: str | None = typer.Option(
        None, "--deliver-at", metavar="TIME", help="Publish at this time, such as 2030-01-01T12:00:00Z."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print what was sent as JSON."),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Send lines to a topic, each as one record; exit with 1 if any is not delivered."""
    from penstock.client import TopicProducer, reach
    from penstock.client.delays import DelayAdmin, LaterRecord
    from penstock.runtime.loop import MachineClock

    sender_options = _sender_options(acks, codec, timeout)
    fixed = [(name, value.encode()) for name, value in assignments("--header", headers).items()]
    separator = _separator(key_separator)
    target = endpoint(bootstrap, options)
    if delay is not None or deliver_at is not None:
        time_ms = deliver_at_ms(delay, deliver_at, MachineClock().wall())
        assert time_ms is not None
        with _lines(file) as (lines, _):
            pairs = (_split(line.removesuffix(b"\n"), separator) for line in lines)
            records = (
                LaterRecord(topic, time_ms, value, key, partition, tuple(fixed)) for key, value in pairs
            )
            _delay(DelayAdmin(target, timeout), topic, records, as_json)
        return
    reach(target)
    sender = TopicProducer(target, topic, sender_options)
    with _lines(file) as (lines, size_bytes), _progress(f"sending to {topic}", size_bytes, lines) as advance:
        seen_bytes = 0
        for line in lines:
            key, value = _split(line.removesuffix(b"\n"), separator)
            sender.send(value, key, partition=partition, headers=fixed or None)
            seen_bytes += len(line)
            if not sender.sent.records % PROGRESS_RECORDS:
                advance(seen_bytes)
                seen_bytes = 0
        sent = sender.finish()
    if as_json:
        show_json({"topic": topic, "records": sent.delivered, "value_bytes": sent.value_bytes})
    else:
        note(f"{counted(sent.delivered, 'record')} delivered to {topic}")


def _delay(admin: "DelayAdmin", topic: str, records: "Iterator[LaterRecord]", as_json: bool) -> None:
    """Store the records, some at a time; the ids say how to cancel them."""
    ids: list[str] = []
    while portion := list(islice(records, DELAYED_RECORDS)):
        stored = admin.schedule(portion)
        if as_json:
            ids += stored
        else:
            sys.stdout.write("".join(f"{delay_id}\n" for delay_id in stored))
            note(f"{counted(len(stored), 'record')} to be published to {topic}")
    if as_json:
        show_json({"topic": topic, "records": len(ids), "delay_ids": ids})


def _sender_options(acks: str | None, codec: str, timeout_seconds: float) -> "ProducerOptions":
    from penstock.client import ProducerOptions
    from penstock.config import load

    client = load(environment=os.environ).config.client
    chosen = acks or client.acks
    if chosen not in ACKS:
        raise InvalidOption(f"--acks {chosen}: expected all, leader or none")
    if codec not in CODECS:
        raise InvalidOption(f"--codec {codec}: expected {', '.join(CODECS)}")
    return ProducerOptions(
        ACKS[chosen],
        codec,
        client.linger_ms,
        client.batch_bytes,
        timeout_ms=int(timeout_seconds * 1_000),
    )


def _separator(text: str | None) -> bytes | None:
    if text == "":
        raise InvalidOption("--key-separator must not be empty")
    return None if text is None else text.replace("\\t", "\t").encode()


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise InvalidOption(
            f"no {separator.decode()!r} between key and value in: {line[:60].decode(errors='replace')}"
        )
    return key, value


@contextmanager
def _progress(title: str, size_bytes: int, lines: BinaryIO) -> Iterator[Callable[[int], None]]:
    """A bar, except where somebody is typing the lines: it would get in their way."""
    if lines.isatty():
        sys.stderr.write("one record per line; Ctrl-D ends\n")
        yield lambda step: None  # noqa: ARG005
        return
    with progress_bar(title, size_bytes) as advance:
        yield advance


@contextmanager
def _lines(file: str | None) -> "Iterator[tuple[BinaryIO, int]]":
    if file is None or file == "-":
        yield sys.stdin.buffer, 0
        return
    with open(file, "rb") as opened:
        yield opened, os.fstat(opened.fileno()).st_size
