import json
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from penstock.cli import main
from penstock.core.model import LeaderEpoch, Timestamp, TopicId
from penstock.core.records import CompressionType, Record, check_batches, read_header, write_batch
from penstock.core.records.record import assemble
from penstock.storage.disk import PosixDisk
from penstock.storage.log import LogOptions, PartitionLog
from penstock.storage.log.index import FOOTER_BYTES, OFFSETS, TIMES, IndexRowFormat, footer

TOPIC = TopicId(UUID(int=7))
BATCHES = 60
RECORDS = 5
OPTIONS = LogOptions(segment_bytes=4_096, index_interval_bytes=512, time_index_interval_ms=1)


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        first = log.end
        records = [
            Record(0, 1_700_000_000_000 + first + i, b"key", b"%d" % (first + i) * 40, ())
            for i in range(RECORDS)
        ]
        batch = write_batch(records, codec=CompressionType.LZ4 if first % 2 else CompressionType.NONE)
        log.append(batch, check_batches(batch), LeaderEpoch(3), Timestamp(1_700_000_000_000))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A closed partition of several segments."""
    log = PartitionLog.create(PosixDisk(str(tmp_path)), "orders/0", TOPIC, OPTIONS)
    append(log, BATCHES)
    log.close()
    assert len(list((tmp_path / "orders/0").glob("*.log"))) > 3
    return tmp_path / "orders" / "0"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A partition whose writer never closed it: the checkpoint is that of its creation."""
    log = PartitionLog.create(PosixDisk(str(tmp_path)), "orders/0", TOPIC, LogOptions())
    append(log, BATCHES)
    log.sync(lambda error: None)
    return tmp_path / "orders" / "0"


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position if position >= 0 else path.stat().st_size + position)
        file.write(content)


def flip(path: Path, position: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x40]))


def verify(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, object]]]:
    code = main(["log", "verify", str(directory), "--json"])
    captured = capsys.readouterr()
    findings: list[dict[str, object]] = json.loads(captured.out)
    return code, findings


def test_a_sound_partition_is_called_sound(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = sum(path.stat().st_size for path in partition.glob("*.log"))

    assert main(["log", "verify", str(partition)]) == 0

    assert capsys.readouterr().out == f"sound: 1 partition, {size} bytes\n"


def test_inspecting_counts_what_is_there(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "inspect", str(partition), "--json"]) == 0

    [shown] = json.loads(capsys.readouterr().out)
    segments = shown["segments"]
    assert shown["topic_id"] == str(TOPIC)
    assert shown["recovery_point"] == BATCHES * RECORDS
    assert shown["leader_epochs"] == [[3, 0]]
    assert sum(segment["records"] for segment in segments) == BATCHES * RECORDS
    assert sum(segment["batches"] for segment in segments) == BATCHES
    assert [s["end_offset"] for s in segments[:-1]] == [s["base_offset"] for s in segments[1:]]
    assert {codec for segment in segments for codec in segment["codecs"]} == {"none", "lz4"}
    assert segments[0]["first_timestamp"] == 1_700_000_000_000


def test_a_whole_data_directory_can_be_looked_into(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = PartitionLog.create(PosixDisk(str(partition.parents[1])), "orders/1", TOPIC, OPTIONS)
    append(log, 1)
    log.close()

    assert main(["log", "inspect", str(partition.parents[1])]) == 0

    out = capsys.readouterr().out
    assert f"{partition}: topic {TOPIC}, checkpoint 300\n" in out
    assert "orders/1: topic" in out
    assert "  none 1  whole\n" in out
    assert "SEGMENT  END  BATCHES" in out


def test_neither_command_changes_anything(crashed: Path) -> None:
    before = contents(crashed)

    assert main(["log", "inspect", str(crashed)]) == 0
    assert main(["log", "verify", str(crashed)]) == 0

    assert contents(crashed) == before


def test_a_flipped_bit_below_the_checkpoint_is_damage(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = sorted(partition.glob("*.log"))[1]
    flip(segment, 200)

    code, findings = verify(partition, capsys)

    assert code == 1
    assert [(f["meaning"], f["file"], f["position"]) for f in findings] == [("damage", segment.name, 0)]
    assert "CRC" in str(findings[0]["what"])


def test_damage_is_one_line_on_stderr(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(sorted(partition.glob("*.log"))[1], 200)

    assert main(["log", "verify", str(partition)]) == 1

    captured = capsys.readouterr()
    assert captured.out.startswith("damage ")
    assert captured.err.splitlines()[-1] == f"penstock: {partition}: 1 damaged place"


def test_an_unfinished_tail_above_the_checkpoint_is_not_damage(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [segment] = crashed.glob("*.log")
    whole = segment.stat().st_size
    overwrite(segment, whole, segment.read_bytes()[:100])

    code, findings = verify(crashed, capsys)

    assert code == 0
    assert [(f["meaning"], f["file"], f["position"]) for f in findings] == [("tail", segment.name, whole)]


def test_a_missing_segment_is_damage(partition: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sorted(partition.glob("*.log"))[1].unlink()

    code, findings = verify(partition, capsys)

    assert code == 1
    assert {f["meaning"] for f in findings} == {"damage"}


def test_a_hole_between_segments_is_damage_also_without_a_checkpoint(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, second, third, *_ = sorted(partition.glob("*.log"))
    (partition / "checkpoint").unlink()
    second.unlink()

    code, findings = verify(partition, capsys)

    assert code == 1
    damaged = [(f["file"], f["what"]) for f in findings if f["meaning"] == "damage"]
    expected = f"offsets {int(second.stem)} to {int(third.stem)} are missing before it"
    assert damaged == [(third.name, expected)]


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: overwrite(path, -3, b"\x00\x01\x02")])
def test_a_broken_index_costs_time_and_no_data(
    suffix: str, harm: Callable[[Path], None], partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = sorted(partition.glob(f"*.{suffix}"))[1]
    harm(index)

    code, findings = verify(partition, capsys)

    assert code == 0
    assert [(f["meaning"], f["file"]) for f in findings] == [("rebuildable", index.name)]


@pytest.mark.parametrize("shape", [OFFSETS, TIMES], ids=["index", "timeindex"])
def test_an_index_that_leads_astray_is_noticed_though_its_crc_is_right(
    shape: IndexRowFormat, partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = sorted(partition.glob(f"*.{shape.suffix}"))[1]
    rows = bytearray(index.read_bytes()[:-FOOTER_BYTES])
    rows[0] ^= 1
    index.write_bytes(rows + footer(shape, rows))

    code, findings = verify(partition, capsys)

    assert code == 0
    assert [(f["meaning"], f["file"]) for f in findings] == [("rebuildable", index.name)]
    assert "row 0 says" in str(findings[0]["what"])


def test_a_lost_checkpoint_or_identity_is_told_apart(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (partition / "checkpoint").unlink()

    code, findings = verify(partition, capsys)

    assert (code, findings[0]["meaning"], findings[0]["file"]) == (0, "rebuildable", "checkpoint")

    (partition / "partition.metadata").write_bytes(b"nonsense")

    code, findings = verify(partition, capsys)

    assert code == 1


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_a_directory_without_a_log_is_refused_in_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["log", command, str(tmp_path)]) == 1
    assert main(["log", command, str(tmp_path / "missing")]) == 1

    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"penstock: {tmp_path} holds no log")
    assert lines[1] == f"penstock: {tmp_path / 'missing'} is not a directory"


def batch_positions(segment: Path) -> list[int]:
    content, position = segment.read_bytes(), 0
    found = []
    while position < len(content):
        found.append(position)
        position += read_header(content, position).size_bytes
    return found


def test_each_damaged_batch_of_a_segment_is_named_and_the_rest_of_it_verified(
    partition: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    segment = sorted(partition.glob("*.log"))[1]
    positions = batch_positions(segment)
    for damaged in (positions[0], positions[2]):
        flip(segment, damaged + 70)
    # The length of one batch does not lead to the next.
    flip(segment, positions[4] + 10)

    code, findings = verify(partition, capsys)

    assert code == 1
    base = int(segment.stem)
    assert [(f["meaning"], f["position"], f["offset"]) for f in findings] == [
        ("damage", positions[0], base),
        ("damage", positions[2], base + 2 * RECORDS),
        ("damage", positions[4], base + 4 * RECORDS),
    ]


def test_a_batch_that_nobody_can_decode_is_named_and_what_is_behind_it_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = PartitionLog.create(PosixDisk(str(tmp_path)), "orders/0", TOPIC, LogOptions())
    append(log, 1)
    for payload in (b"noise" * 20, b""):
        batch = assemble(read_header(write_batch([Record(0, 1, None, None)])), payload)
        log.append(batch, check_batches(batch), LeaderEpoch(3), Timestamp(1_700_000_000_000))
    append(log, 1)
    log.close()
    partition = tmp_path / "orders" / "0"
    (segment,) = partition.glob("*.log")

    code, findings = verify(partition, capsys)

    assert code == 1
    positions = batch_positions(segment)
    assert [(f["meaning"], f["position"], f["offset"]) for f in findings] == [
        ("unreadable", positions[1], RECORDS),
        ("unreadable", positions[2], RECORDS + 1),
    ]
    assert str(findings[1]["what"]).endswith("record 0: the records end early")

    assert main(["log", "verify", str(partition)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"penstock: {partition}: 2 unreadable places"
