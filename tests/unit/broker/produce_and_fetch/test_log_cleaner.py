"""The compactor of a node, on the simulated runtime and disk."""

from typing import TYPE_CHECKING, Any

import pytest

from penstock.broker.partitions import LeaderPartition, log_cleaner
from penstock.broker.partitions.log_cleaner import LogCleaner
from penstock.core.model import SECOND, Offset, Timestamp
from penstock.core.records import Record, check_batches, read_records
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
