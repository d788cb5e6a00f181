"""The worked examples of docs/formats/record-batch.md are what the code reads and writes."""

import re
from pathlib import Path

import pytest

from penstock.core.records import (
    ControlRecord,
    ControlType,
    Record,
    check_batch,
    read_control,
    read_records,
    write_batch,
    write_control_batch,
)

DOCUMENT = Path(__file__).parents[4] / "docs" / "formats" / "record-batch.md"
LINE = re.compile(r"^ *(\d+)  ((?:[0-9a-f]{2} )+) +(.+)$")
EXAMPLES = ["worked-example", "worked-control-example", "worked-sealed-example"]


def example(name: str) -> list[tuple[int, bytes, str]]:
    """The lines of one example: position, bytes, meaning."""
    (block,) = re.findall(rf"^```{name}\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    matches = [LINE.match(line) for line in block.splitlines()]
    return [(int(m[1]), bytes.fromhex(m[2]), m[3]) for m in matches if m is not None]


def bytes_of(name: str) -> bytes:
    return b"".join(part for _, part, _ in example(name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_line_stands_at_the_position_it_names(name: str) -> None:
    position = 0
    for stated, part, _ in example(name):
        assert stated == position
        position += len(part)

    assert position == check_batch(bytes_of(name)).size_bytes


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_header_field_has_the_value_it_is_said_to_have(name: str) -> None:
    header = check_batch(bytes_of(name))

    stated = dict(meaning.split(" = ") for _, _, meaning in example(name) if " = " in meaning)

    assert {field: int(value, 0) for field, value in stated.items()} == header._asdict()


def test_the_example_is_what_the_writer_writes() -> None:
    records = [
        Record(1000, 1_700_000_000_000, b"user-7", b"hello", (("trace", b"\x2a"),)),
        Record(1001, 1_700_000_000_250, b"user-7", None),
    ]

    batch = write_batch(
        records, base_offset=1000, leader_epoch=3, producer_id=41, producer_epoch=0, base_sequence=12
    )

    assert batch == bytes_of("worked-example")
    assert list(read_records(bytes_of("worked-example"))) == records


def test_the_control_example_is_what_the_writer_writes() -> None:
    marker = ControlRecord(
        offset=1002,
        timestamp=1_700_000_000_300,
        control_type=ControlType.COMMIT,
        producer_id=41,
        producer_epoch=0,
        coordinator_epoch=5,
    )

    assert write_control_batch(marker, leader_epoch=3) == bytes_of("worked-control-example")
    assert read_control(bytes_of("worked-control-example")) == marker
