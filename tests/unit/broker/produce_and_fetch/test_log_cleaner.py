"""The compactor of a node, on the simulated runtime and disk."""

from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.partitions import LeaderPartition, log_cleaner
from penstock.broker.partitions.log_cleaner import LogCleaner
from penstock.core.model import SECOND, Offset, StorageError, Timestamp
from penstock.core.records import Record, check_batches, read_records
from penstock.storage.disk import CrashableDisk, CrashableFile
from penstock.storage.log import CompactionRules, PartitionLog
from tests.support.recorded_events import recorded_events

if TYPE_CHECKING:
    from tests.unit.broker.produce_and_fetch.conftest import Bench

EAGER = {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0.1"}
LONG_ENOUGH = 60 * SECOND
# `log.cleaner.backoff.ms`, and what a checkpoint and a compaction may take after it.
BACKOFF, A_MOMENT = 15 * SECOND, 3 * SECOND


def records_of(partition: LeaderPartition) -> list[Record]:
    found: list[Record] = []
    offset = int(partition.log.start)
    while offset < partition.high_watermark:
        content = memoryview(partition.log.read(Offset(offset), 1).to_bytes())
        (header,) = check_batches(content, compacted=True)
        found += read_records(content)
        offset = header.next_offset
    return found


def fill(bench: "Bench", partition: LeaderPartition) -> None:
    for number in range(60):
        bench.append(partition, b"%d" % number)
        bench.run()


def test_a_compacted_topic_gets_smaller_and_keeps_the_latest_record(bench: "Bench") -> None:
    partition = bench.topic("prices", **EAGER)
    fill(bench, partition)
    before = partition.log.size_bytes

    bench.run(LONG_ENOUGH)

    assert partition.log.stats.compactions >= 1
    assert partition.log.size_bytes < before
    assert (records_of(partition)[-1].offset, records_of(partition)[-1].value) == (59, b"59")


def test_what_no_checkpoint_covers_yet_gets_one_and_does_not_wait_for_the_look_after_the_next(
    bench: "Bench",
) -> None:
    partition = bench.topic("prices", **EAGER)
    bench.run(BACKOFF - 2 * SECOND)
    fill(bench, partition)

    bench.run(2 * SECOND + A_MOMENT)

    assert partition.log.stats.compactions == 1


def test_the_next_log_is_compacted_soon_after_the_first(bench: "Bench") -> None:
    partitions = [bench.topic(name, **EAGER) for name in ("prices", "stocks")]
    for partition in partitions:
        fill(bench, partition)

    bench.run(BACKOFF + A_MOMENT)

    assert [partition.log.stats.compactions for partition in partitions] == [1, 1]


def test_a_look_at_many_logs_takes_several_turns_and_finds_the_last_one(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_cleaner, "LOGS_PER_TURN", 2)
    for number in range(7):
        bench.topic(f"quiet-{number}", **EAGER)
    partition = bench.topic("zebra", **EAGER)
    fill(bench, partition)
    most, looked = 0, 0
    ratio, look_at_some = PartitionLog.dirty_ratio, LogCleaner._look_at_some

    def count(log: PartitionLog, rules: CompactionRules, now: Timestamp) -> float:
        nonlocal looked
        looked += 1
        return ratio(log, rules, now)

    def count_turn(cleaner: LogCleaner, found: Any) -> None:
        nonlocal most, looked
        looked = 0
        look_at_some(cleaner, found)
        most = max(most, looked)

    monkeypatch.setattr(PartitionLog, "dirty_ratio", count)
    monkeypatch.setattr(LogCleaner, "_look_at_some", count_turn)
    bench.run(LONG_ENOUGH)

    assert most == 2
    assert partition.log.stats.compactions >= 1


@pytest.mark.parametrize("changed", [{"cleanup_policy": "delete"}, {"min_compaction_lag_ms": "900000"}])
def test_a_topic_that_does_not_want_it_yet_is_left_alone(bench: "Bench", changed: dict[str, str]) -> None:
    partition = bench.topic("prices", **{**EAGER, **changed})
    fill(bench, partition)

    bench.run(LONG_ENOUGH)

    assert partition.log.stats.compactions == 0
    assert len(records_of(partition)) == 60


def test_damage_that_a_compaction_meets_is_verified_and_after_the_repair_it_goes_on(bench: "Bench") -> None:
    partition = bench.topic("prices", **EAGER)
    for number in range(60):
        bench.append(partition, b"%d" % number)
    segment = partition.log.segments()[1]
    path = f"logs/prices/0/{segment.base_offset:020d}.log"
    bench.node.disk.flip_bit(path, 8 * 65)

    with recorded_events() as events:
        bench.run(LONG_ENOUGH)

    assert partition.log.stats.compactions == 0
    (told,) = events.named("partition.corrupt_range")
    assert told["segment"] == segment.base_offset
    assert len(events.named("partition.compaction_failed")) == 1

    # As a refill would leave it.
    bench.node.disk.flip_bit(path, 8 * 65)
    partition.log._state.set_damage(partition.log._state.segments[1], ())
    partition.log.stats.repaired_ranges += 1
    bench.run(LONG_ENOUGH)

    assert partition.log.stats.compactions >= 1


def test_a_compaction_that_ends_keeps_the_loop_waiting_for_one_sync(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = bench.topic("prices", **EAGER)
    fill(bench, partition)
    finish, sync_directory, sync = (
        PartitionLog.finish_compaction,
        CrashableDisk.sync_directory,
        CrashableFile.sync,
    )
    is_finishing, blocking = False, list[str]()

    def note(log: PartitionLog, *args: Any) -> Any:
        nonlocal is_finishing
        is_finishing = True
        try:
            return finish(log, *args)
        finally:
            is_finishing = False

    def note_names(disk: CrashableDisk, path: str) -> None:
        blocking.extend([path] * is_finishing)
        sync_directory(disk, path)

    def note_bytes(file: CrashableFile) -> None:
        blocking.extend([file.path] * is_finishing)
        sync(file)

    monkeypatch.setattr(PartitionLog, "finish_compaction", note)
    monkeypatch.setattr(CrashableDisk, "sync_directory", note_names)
    monkeypatch.setattr(CrashableFile, "sync", note_bytes)
    bench.run(BACKOFF + A_MOMENT)

    assert partition.log.stats.compactions >= 1
    assert blocking == ["logs/prices/0"] * partition.log.stats.compactions


def test_a_cleaner_that_is_stopped_while_a_compaction_is_prepared_does_nothing_more(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = bench.topic("prices", **EAGER)
    fill(bench, partition)
    prepare = PartitionLog.prepare_compaction

    def stop(log: PartitionLog, *args: Any) -> None:
        prepare(log, *args)
        bench.backend.partitions.cleaner.stop()

    monkeypatch.setattr(PartitionLog, "prepare_compaction", stop)
    bench.run(LONG_ENOUGH)

    assert partition.log.stats.compactions == 0
    assert len(records_of(partition)) == 60


def test_a_log_that_is_removed_while_a_compaction_is_prepared_keeps_no_other_from_its_turn(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [bench.topic(name, **EAGER) for name in ("prices", "stocks")]
    for partition in partitions:
        fill(bench, partition)
    prepare, removed = PartitionLog.prepare_compaction, list[PartitionLog]()

    def remove(log: PartitionLog, *args: Any) -> None:
        prepare(log, *args)
        if not removed:
            removed.append(log)
            log.abandon()

    monkeypatch.setattr(PartitionLog, "prepare_compaction", remove)
    bench.run(LONG_ENOUGH)

    (other,) = (partition for partition in partitions if partition.log is not removed[0])
    assert removed[0].stats.compactions == 0
    assert other.log.stats.compactions >= 1


@pytest.mark.parametrize("step", ["dirty_ratio", "is_due_after_checkpoint", "begin_compaction"])
def test_a_log_that_cannot_be_read_when_it_is_looked_at_does_not_stop_the_cleaner(
    bench: "Bench", monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    partition = bench.topic("prices", **EAGER)
    fill(bench, partition)
    failures = 0
    ask = getattr(PartitionLog, step)

    def fail_once(*arguments: Any) -> Any:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise StorageError("too many open files")
        return ask(*arguments)

    monkeypatch.setattr(PartitionLog, step, fail_once)
    bench.run(2 * LONG_ENOUGH)

    assert failures >= 1
    assert partition.log.stats.compactions >= 1
