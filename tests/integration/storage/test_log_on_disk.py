"""The log on a real filesystem: sendfile ranges, many segments, and a process that dies."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from uuid import UUID

import pytest

from penstock.core.model import LeaderEpoch, Offset, Timestamp, TopicId
from penstock.core.records import Record, check_batches, write_batch
from penstock.storage.disk import PosixDisk
from penstock.storage.log import LogOptions, PartitionLog
from tests.support.descriptors import open_descriptors

TOPIC = TopicId(UUID(int=7))
DIRECTORY = "logs/orders/0"
OPTIONS = LogOptions(segment_bytes=64 << 10, index_interval_bytes=1024)


@pytest.fixture
def disk(tmp_path: Path) -> PosixDisk:
    return PosixDisk(str(tmp_path), readers_open_max=3)


def append(log: PartitionLog, number: int, value_bytes: int = 500) -> None:
    batch = write_batch([Record(0, number, b"key", b"%d" % number + b"." * value_bytes, ())])
    log.append(batch, check_batches(batch), LeaderEpoch(0), Timestamp(number))


def offsets(log: PartitionLog) -> list[int]:
    found: list[int] = []
    offset = log.start
    while offset < log.end:
        headers = check_batches(log.read(offset, 20_000).to_bytes())
        found += [header.base_offset for header in headers]
        offset = Offset(headers[-1].next_offset)
    return found


def test_a_log_of_many_segments_is_read_back_after_a_restart(disk: PosixDisk) -> None:
    log = PartitionLog.create(disk, DIRECTORY, TOPIC, OPTIONS)
    for number in range(1500):
        append(log, number)
    log.close()

    log, report = PartitionLog.open(disk, DIRECTORY, TOPIC, OPTIONS)

    assert report.was_clean
    assert len(log.segments()) > 10
    assert offsets(log) == list(range(1500))
    found = log.offset_for_timestamp(Timestamp(777))
    assert found == (777, 777)


def test_ranges_go_from_file_to_socket_without_passing_through_the_process(disk: PosixDisk) -> None:
    log = PartitionLog.create(disk, DIRECTORY, TOPIC, OPTIONS)
    for number in range(40):
        append(log, number)
    lent = log.read(Offset(10), 10_000)
    ours, theirs = socket.socketpair()

    with ours, theirs:
        for part in lent.ranges:
            assert os.sendfile(ours.fileno(), part.file.fileno(), part.position, part.length) == part.length
        received = theirs.recv(20_000, socket.MSG_WAITALL | socket.MSG_DONTWAIT)

    assert received == lent.to_bytes()
    assert check_batches(received)[0].base_offset == 10


def test_a_range_outlives_its_segment_and_its_descriptor_does_not_outlive_the_range(
    disk: PosixDisk, tmp_path: Path
) -> None:
    log = PartitionLog.create(disk, DIRECTORY, TOPIC, OPTIONS)
    for number in range(600):
        append(log, number)
    before = open_descriptors(tmp_path)
    lent = log.read(Offset(0), 5_000)
    content = lent.to_bytes()

    log.delete_records(Offset(500))
    still = lent.to_bytes()
    del lent

    assert still == content
    assert open_descriptors(tmp_path) <= before + 1


def test_rolls_truncations_and_deletions_leak_no_descriptor(disk: PosixDisk, tmp_path: Path) -> None:
    log = PartitionLog.create(disk, DIRECTORY, TOPIC, OPTIONS)
    append(log, 0)
    before = open_descriptors(tmp_path)

    for _ in range(20):
        for number in range(300):
            append(log, number)
        offsets(log)
        log.truncate_to(Offset(log.end - 130))
        log.delete_records(Offset(log.end - 10))

    assert open_descriptors(tmp_path) <= before + 4


KILLED = textwrap.dedent(
    """
    import sys
    from uuid import UUID
    from penstock.core.records import Record, check_batches, write_batch
    from penstock.storage.disk import PosixDisk
    from penstock.storage.log import LogOptions, PartitionLog

    options = LogOptions(segment_bytes=64 << 10, index_interval_bytes=1024)
    log = PartitionLog.create(PosixDisk(sys.argv[1]), "logs/orders/0", UUID(int=7), options)
    while True:
        batch = write_batch([Record(0, 1, None, b"." * 700, ())])
        log.append(batch, check_batches(batch), 0, 1)
        if log.end % 50 == 0:
            log.sync(lambda error: print(log.synced, flush=True))
        if log.end % 170 == 0:
            log.checkpoint()
    """
)


def test_what_was_reported_durable_is_there_after_the_process_was_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        synced = 0
        while synced < 1000:
            synced = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            synced = int(line) if line.endswith("\n") else synced

    log, report = PartitionLog.open(PosixDisk(str(tmp_path)), DIRECTORY, TOPIC, OPTIONS)

    assert report.corruption == ()
    assert log.end >= synced
    assert report.recovery_point > 0
    assert report.bytes_read < log.size_bytes / 2
    assert offsets(log) == list(range(log.end))
