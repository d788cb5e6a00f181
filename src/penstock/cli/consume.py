"""`penstock consume`: records to stdout, as lines of text or of JSON."""

import base64
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.broker_options import BOOTSTRAP, CLIENT_OPTION, InvalidOption, endpoint
from penstock.cli.output import note
from penstock.client import ConsumedRecord, ConsumerOptions, OffsetSpec, TopicConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client.bad_batch import BadBatch


def consume(
    topic: str = typer.Argument(metavar="TOPIC"),
    *,
    group: str | None = typer.Option(None, "--group", help="Read as a member of this consumer group."),
    start: str | None = typer.Option(
        None,
        "--from",
        metavar="beginning|end|OFFSET|TIME",
        help="Where to start: a word, an offset, an age such as 15m, or a time such as 2026-11-02T10:00. "
        "By default a group goes on where it was, and everybody else starts at the beginning.",
    ),
    count: int | None = typer.Option(None, "--count", min=1, help="Stop after so many records."),
    follow: bool = typer.Option(False, "--follow", help="Wait for further records at the end."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per record."),
    partition: int | None = typer.Option(None, "--partition", min=0, help="Read this partition only."),
    key_separator: str | None = typer.Option(
        None, "--key-separator", metavar="C", help="Print the key too, and this between key and value."
    ),
    committed_only: bool = typer.Option(
        False, "--read-committed", help="Leave out records of transactions that are open or were aborted."
    ),
    bootstrap: str = BOOTSTRAP,
    options: list[str] | None = CLIENT_OPTION,
) -> None:
    """Print the records of a topic, up to its end or for ever."""
    from penstock.client import TopicConsumer

    if group is not None and partition is not None:
        raise InvalidOption("--partition and --group exclude each other: a group shares out the partitions")
    reader_options = _reader_options(group, _position(start), partition, follow, committed_only)
    separator = None if key_separator is None else key_separator.replace("\\t", "\t").encode()
    written = 0

    def bad_batch(at: int, bad: "BadBatch") -> None:
        note(f"penstock: {topic}/{at}: {bad.what}; going on at {bad.end}")

    with TopicConsumer(endpoint(bootstrap, options), topic, reader_options, bad_batch) as reader:
        try:
            for batch in reader.batches():
                wanted = batch if count is None else batch[: count - written]
                _write([as_json_line(topic, one) if as_json else as_line(one, separator) for one in wanted])
                reader.dealt_with(wanted)
                written += len(wanted)
                if count is not None and written >= count:
                    break
        finally:
            # Whatever ended it, what was written out need not come again.
            reader.commit()
        for hint in _notes(reader, topic, reader_options, start, written):
            note(hint)


def _notes(
    reader: "TopicConsumer", topic: str, options: "ConsumerOptions", start: str | None, written: int
) -> "Iterator[str]":
    """A hint for a user who expected other records, or any."""
    from penstock.client import extent

    offset = None if options.position is None else options.position.offset
    gone = {one: mark for one, mark in reader.holds.items() if offset is not None and offset < mark.start}
    if gone:
        yield f"offset {start} is not there any more: {extent(gone)}"
    if written:
        return
    if options.position is None and options.group is not None:
        yield f"no records: group {options.group} has read all of {topic}"
    else:
        yield f"no records in {topic}{'' if start is None else f' from {start} on'}: {extent(reader.holds)}"


def _reader_options(
    group: str | None,
    position: "OffsetSpec | None",
    partition: int | None,
    follow: bool,
    committed_only: bool,
) -> "ConsumerOptions":
    from penstock.client import ConsumerOptions
    from penstock.config import load

    batch_records = load(environment=os.environ).config.groups.poll_records_max
    return ConsumerOptions(group, position, partition, follow, batch_records, committed_only)


def _position(text: str | None) -> "OffsetSpec | None":
    from penstock.client import parse_position
    from penstock.runtime.loop import MachineClock

    if text is None:
        return None
    try:
        return parse_position(text, MachineClock().wall())
    except ValueError as error:
        raise InvalidOption(f"--from {error}") from None


def _write(lines: list[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(lines))
    sys.stdout.buffer.flush()


def as_line(record: "ConsumedRecord", separator: bytes | None) -> bytes:
    """The value on a line, after the key where that is asked for; a missing one is empty."""
    value = record.value or b""
    return value + b"\n" if separator is None else (record.key or b"") + separator + value + b"\n"


def as_json_line(topic: str, record: "ConsumedRecord") -> bytes:
    """The record as one JSON object; bytes that are not text stand under `…_base64` instead."""
    shown: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **text_fields("key", record.key),
        **text_fields("value", record.value),
        "headers": [{"name": name, **text_fields("value", value)} for name, value in record.headers],
    }
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def text_fields(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
