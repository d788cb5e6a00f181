"""Killing a writer in the middle of a write, and looking at what is left."""

import select
import subprocess
import sys
from dataclasses import dataclass

from penstock.cli.demo.engine.ledger import DemoFailed, Ledger
from penstock.cli.demo.engine.produce import OPTIONS
from penstock.cli.demo.engine.readback import Now, ReadBack, read_all
from penstock.cli.demo.series import records
from penstock.core.model import TopicId
from penstock.storage.disk import PosixDisk
from penstock.storage.log import PartitionLog, RecoveryReport

BATCHES_ACKNOWLEDGED = 60
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Crash:
    """What the writer had been promised, and what recovery found."""

    acknowledged: int
    recovered: int
    opening_ns: int
    report: RecoveryReport


def crash_and_recover(
    disk: PosixDisk, directory: str, topic_id: TopicId, first_timestamp: int, now: Now
) -> Crash:
    """Let a writer work and die, reopen its log, and check every acknowledged record."""
    acknowledged = _let_die(disk.root, directory, topic_id, first_timestamp)
    began = now()
    log, report = PartitionLog.open(disk, directory, topic_id, OPTIONS)
    opening_ns = now() - began
    try:
        if log.end < acknowledged:
            raise DemoFailed(f"{acknowledged} records were acknowledged, and only {log.end} are there")
        if report.cut is None:
            raise DemoFailed("the writer was killed halfway through a batch, and recovery saw nothing of it")
        _check(log, first_timestamp, now)
        crash = Crash(acknowledged, log.end, opening_ns, report)
    finally:
        log.close()
    return crash


def _check(log: PartitionLog, first_timestamp: int, now: Now) -> None:
    sent = Ledger()
    for record in records(log.end, first_timestamp):
        sent.note(record)
    found = read_all(log, now, ReadBack(), _nobody_watches)
    sent.check(found, log.directory)


def _let_die(root: str, directory: str, topic_id: TopicId, first_timestamp: int) -> int:
    """How many records the writer had reported as acknowledged when it was killed."""
    arguments = [root, directory, str(topic_id), str(first_timestamp), str(BATCHES_ACKNOWLEDGED)]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.demo.engine.writer", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as writer:
        try:
            acknowledged = _acknowledged_until_halfway(writer)
        finally:
            writer.kill()  # SIGKILL: no handler, no flush, no goodbye
    return acknowledged


def _acknowledged_until_halfway(writer: "subprocess.Popen[bytes]") -> int:
    assert writer.stdout is not None
    acknowledged, unread = 0, b""
    while True:
        if not select.select([writer.stdout], [], [], PATIENCE_S)[0]:
            raise DemoFailed(f"the writer said nothing for {PATIENCE_S:.0f} s")
        chunk = writer.stdout.read1()  # type: ignore[attr-defined]
        if not chunk:
            assert writer.stderr is not None
            lines = writer.stderr.read().decode(errors="replace").strip().splitlines()
            raise DemoFailed(f"the writer ended by itself: {lines[-1] if lines else 'without a word'}")
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            if line == b"halfway":
                return acknowledged
            acknowledged = int(line.removeprefix(b"acked "))


def _nobody_watches(step: int) -> None:
    """A step that nobody sees."""
