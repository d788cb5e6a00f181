"""The worked example of docs/formats/log-directory.md is what the code writes, and reads."""

import re
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.model import LeaderEpoch, Offset, ProducerId, Timestamp, TopicId
from penstock.core.records import (
    ControlRecord,
    ControlType,
    Record,
    check_batches,
    write_batch,
    write_control_batch,
)
from penstock.core.replica import decode_snapshot
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import LogOptions, PartitionLog
from penstock.storage.log.file_names import SEGMENT_SUFFIXES
from penstock.storage.log.files import FileKind, decode_checkpoint, decode_epochs, decode_identity, unframe
from penstock.storage.log.index import ABORTED, OFFSETS, TIMES, parse_sealed

DOCUMENT = Path(__file__).parents[4] / "docs" / "formats" / "log-directory.md"
TOPIC = TopicId(UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))
LINE = re.compile(r"^((?:[0-9a-f]{2} ?)+)(?:   .*)?$")
BLOCK = re.compile(r"^```([0-9a-z.-]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIRST = "00000000000000000000"


def examples() -> dict[str, bytes]:
    """The files that the document spells out."""
    found = {}
    for name, block in BLOCK.findall(DOCUMENT.read_text()):
        matches = [LINE.match(line) for line in block.splitlines()]
        assert all(matches), name
        found[name] = b"".join(bytes.fromhex(match[1]) for match in matches if match)
    return found


EXAMPLES = examples()


def written() -> CrashableDisk:
    disk = CrashableDisk()
    log = PartitionLog.create(disk, "p", TOPIC, LogOptions(index_interval_bytes=80))
    now = Timestamp(1_700_000_000_000)
    for number, timestamp in enumerate((1000, 1500, 2000)):
        batch = write_batch(
            [Record(0, timestamp, None, b"abc", ())] * 2,
            producer_id=9,
            producer_epoch=1,
            base_sequence=2 * number,
            transactional=number == 1,
        )
        log.append(batch, check_batches(batch), LeaderEpoch(5), now)
    marker = write_control_batch(ControlRecord(0, 2000, ControlType.ABORT, 9, 1, 3))
    log.append(marker, check_batches(marker), LeaderEpoch(5), now)
    log.roll()
    log.set_high_watermark(Offset(7))
    log.close()
    return disk


def test_every_kind_of_file_but_the_batches_has_an_example() -> None:
    disk = written()

    files = {path.removeprefix("p/") for path in disk.files()} - {f"{FIRST}.log", "00000000000000000007.log"}

    assert set(EXAMPLES) == files
    assert {name.rpartition(".")[2] for name in EXAMPLES} >= set(SEGMENT_SUFFIXES) - {"log"}


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_log_writes_the_bytes_of_the_document(name: str) -> None:
    file = written().open(f"p/{name}", readonly=True)

    assert file.pread(0, file.size()).hex(" ") == EXAMPLES[name].hex(" ")


def test_the_parsers_read_the_bytes_of_the_document() -> None:
    offsets = parse_sealed(OFFSETS, EXAMPLES[f"{FIRST}.index"])
    times = parse_sealed(TIMES, EXAMPLES[f"{FIRST}.timeindex"])
    aborted = parse_sealed(ABORTED, EXAMPLES[f"{FIRST}.txnindex"])
    snapshot = decode_snapshot(unframe(FileKind.SNAPSHOT, EXAMPLES["00000000000000000007.snapshot"]))
    checkpoint = decode_checkpoint(EXAMPLES["checkpoint"])

    assert list(offsets) == [2 << 32 | 81, 4 << 32 | 162, 6 << 32 | 243]
    assert list(times) == [1500, 2, 2000, 6]
    assert list(aborted) == [9, 2, 6, 7]
    producer = snapshot.get(ProducerId(9))
    assert producer is not None
    assert [batch.first_offset for batch in producer.batches] == [0, 2, 4]
    assert (checkpoint.recovery_point, checkpoint.sealed[0].size_bytes) == (7, 321)
    assert decode_epochs(EXAMPLES["leader-epochs"]).entries() == ((5, 0),)
    assert decode_identity(EXAMPLES["partition.metadata"]) == TOPIC
