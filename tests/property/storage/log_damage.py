"""A log on a disk that flips bits and loses the ends of files."""

import copy
import random
from dataclasses import dataclass

from penstock.core.model import CorruptionError
from penstock.sim.checkers.durability import (
    DurabilityChecker,
    LogAnomaly,
    LogViolation,
    StoredBatch,
    read_back,
)
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import PartitionLog, RecoveryReport
from tests.property.storage.log_runs import DIRECTORY, OPTIONS, TOPIC, Lives

IDENTITY, CHECKPOINT, LOG = "partition.metadata", "checkpoint", "log"


@dataclass(frozen=True, slots=True)
class Harm:
    """One piece of damage: a bit that flips, or a size that a file is cut to."""

    path: str
    bit: int | None
    size: int | None

    @property
    def kind(self) -> str:
        """`log`, `index`, `timeindex`, `snapshot`, `checkpoint`, …"""
        return self.path.rpartition("/")[2].rpartition(".")[2] if IDENTITY not in self.path else IDENTITY

    def do(self, disk: CrashableDisk) -> None:
        if self.bit is not None:
            disk.flip_bit(self.path, self.bit)
        if self.size is not None:
            disk.cut_short(self.path, self.size)


def grown_log(seed: int, *, clean: bool) -> Lives:
    """A log with a past, all of it durable; `clean` if it was closed in order."""
    run = Lives(seed)
    run.start()
    for _ in range(70):
        run.step()
    run.append()
    run.sync()
    run.finish_syncs()
    if clean:
        run.checker.made_durable(run.log.end)
        run.log.close()
        run.finish_syncs()
    run.disk = run.disk.crash(run.chance)
    return run


def some_harm(disk: CrashableDisk, chance: random.Random) -> Harm:
    """Damage to a file of any kind, all kinds alike."""
    harms = [
        Harm(path, None, None)
        for path in disk.files()
        if path.startswith(DIRECTORY) and disk.size(path) and not path.endswith(".tmp")
    ]
    kind = chance.choice(sorted({harm.kind for harm in harms}))
    path = chance.choice([harm.path for harm in harms if harm.kind == kind])
    size = disk.size(path)
    if chance.random() < 0.7:
        return Harm(path, chance.randrange(size * 8), None)
    return Harm(path, None, chance.randrange(size))


def judge_damaged(run: Lives, harm: Harm) -> list[LogViolation]:
    """Damage a copy of the log, open it, read all of it, and name what should not have happened."""
    disk, checker = run.disk.copy(), copy.deepcopy(run.checker)
    harm.do(disk)
    try:
        log, report = PartitionLog.open(disk, DIRECTORY, TOPIC, OPTIONS)
    except CorruptionError:
        # Whose directory it is cannot be guessed; everything else can be opened.
        return (
            [] if harm.kind == IDENTITY else [LogViolation(LogAnomaly.LOST, f"the log does not open: {harm}")]
        )
    if harm.kind == CHECKPOINT:
        checker.may_start_at(log.segments()[0].base_offset)
    if harm.kind != LOG:
        again = Lives(0)
        again.log = log
        found = read_back(log)
        return checker.judge(found) + again.search(found.batches, samples=20)
    return _judge_hurt_batches(log, report, checker)


def _judge_hurt_batches(
    log: PartitionLog, report: RecoveryReport, checker: DurabilityChecker
) -> list[LogViolation]:
    durable = checker.durable
    for _ in log.scrub():
        pass
    found = read_back(log)
    if report.recovery_point <= found.end < durable:
        # Above the checkpoint, what is missing or broken cannot be told from an unfinished
        # write, and is cut off. Below it, it has to be reported.
        found = found._replace(end=durable, damaged=(*found.damaged, (found.end, durable)))
    # Epochs stand outside of the CRC, and above the checkpoint nothing else knows them.
    known = {batch.base: batch for batch in checker.history if batch.base >= report.recovery_point}
    batches = [_unless_only_the_epoch_differs(batch, known.get(batch.base)) for batch in found.batches]
    return checker.judge(found._replace(batches=tuple(batches)), disk_was_damaged=True)


def _unless_only_the_epoch_differs(found: StoredBatch, appended: StoredBatch | None) -> StoredBatch:
    if (
        appended is None
        or found.content[:12] + found.content[16:] != appended.content[:12] + appended.content[16:]
    ):
        return found
    return appended
