"""Files of the quorum that rot while its member runs: what is in memory takes their place."""

import pytest

from penstock.broker.cluster import QuorumOptions, raft_recovery
from penstock.broker.cluster.raft_log_repair import RaftLogRepair
from penstock.broker.partitions.log_scrubber import LogScrubber, ScrubOptions
from penstock.core.model import SECOND, Offset
from penstock.core.raft import Index
from penstock.storage.disk import Disk, FailureRule
from penstock.storage.log import SegmentDraft
from tests.support.recorded_events import recorded_events
from tests.unit.broker.cluster.raft.test_quorum_of_one import EAGER, Machine

# Nothing is snapshotted: everything is in the log.
LONG = QuorumOptions(snapshot_facts=10_000, segment_bytes=1_000)
BALLOT = "meta/raft/ballot"


def filled(options: QuorumOptions = LONG) -> Machine:
    machine = Machine(options).with_a_broker()
    machine.with_topics(12)
    assert len(repair_of(machine).log.segments()) > 1
    return machine


def repair_of(machine: Machine) -> RaftLogRepair:
    return machine.host.quorum.scrubbed_log


def rot(machine: Machine, offset: int) -> None:
    """Damage the entry at this offset."""
    (piece,) = repair_of(machine).log.read(Offset(offset), 1).ranges
    machine.disk.flip_bit(piece.file.path, 8 * (piece.position + 65))


def scrub(machine: Machine) -> None:
    """One pass over the files of the quorum."""
    host = machine.host.quorum._runtime
    scrubber = LogScrubber(host, list, machine.disk)
    scrubber.add(repair_of(machine))
    scrubber.on_pass(machine.host.quorum.verify_files)
    scrubber.start(ScrubOptions(1 << 20, 3_600_000))
    machine.world.run(30 * SECOND)
    assert machine.world.failures == []
    assert scrubber.metrics.passes.count == 1
    scrubber.stop()


@pytest.mark.parametrize("offsets", [[3], [2, 3, 7], [-1], [1, -2]], ids=str)
def test_entries_that_rot_are_written_anew_and_the_next_start_doubts_nothing(offsets: list[int]) -> None:
    machine = filled()
    log = repair_of(machine).log
    before, end = machine.host.controller.image, log.end
    for offset in offsets:
        rot(machine, offset if offset >= 0 else end + offset)

    with recorded_events() as events:
        scrub(machine)
        assert log.corruption == ()
        machine.with_topics(2, start=50)
        after = machine.host.controller.image
        assert machine.restart().controller.image == after

    assert len(after.topics) == len(before.topics) + 2
    assert events.named("partition.corrupt_range")
    assert events.named("quorum.log_repaired")
    assert events.named("quorum.log_damaged") == []
    assert not machine.host.quorum.raft.is_doubtful


def test_a_repair_that_meets_a_bad_disk_is_tried_again() -> None:
    machine = filled()
    rot(machine, 3)
    # The note of what is damaged, and then the repair.
    machine.node.fail_disk(FailureRule("open", path_ends=".tmp", times=2))

    with recorded_events() as events:
        scrub(machine)

    assert len(events.named("log.loss_not_noted")) == 1
    assert len(events.named("quorum.log_repair_failed")) == 1
    assert len(events.named("quorum.log_repaired")) == 1
    assert repair_of(machine).log.corruption == ()


@pytest.mark.parametrize("further", [0, 1])
def test_a_log_that_is_cut_before_its_damage_while_it_is_repaired_needs_no_repair(
    further: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = filled()
    store, end = machine.host.quorum._host.store, repair_of(machine).log.end
    copy = SegmentDraft.copy

    def copy_and_cut(draft: SegmentDraft, disk: Disk) -> None:
        copy(draft, disk)
        if int(store.last) == int(end):
            store.truncate(Index(end - further))

    monkeypatch.setattr(SegmentDraft, "copy", copy_and_cut)
    rot(machine, end - 1)

    with recorded_events() as events:
        scrub(machine)

    assert repair_of(machine).log.end == end - 1 - further
    assert repair_of(machine).log.corruption == ()
    assert len(events.named("quorum.log_repaired")) == 1


def test_damaged_entries_that_are_not_in_memory_any_more_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft_recovery, "LAG_MAX", 0)
    machine = filled(QuorumOptions(snapshot_facts=10, segment_bytes=3_000))
    log = repair_of(machine).log
    first = machine.host.quorum._host.store.first
    assert log.start < first - 1
    rot(machine, log.start)
    before = machine.host.controller.image

    with recorded_events() as events:
        scrub(machine)
        assert log.corruption == ()
        assert machine.restart().controller.image == before

    assert len(events.named("quorum.old_entries_dropped")) == 1
    assert events.named("quorum.log_damaged") == []


@pytest.mark.parametrize("damage", ["bit", "gone"])
def test_a_hard_state_that_rots_is_written_again(damage: str) -> None:
    machine = filled()
    if damage == "bit":
        machine.disk.flip_bit(BALLOT, 40)
    else:
        machine.disk.remove(BALLOT)
    before = machine.host.quorum.raft.hard_state

    with recorded_events() as events:
        scrub(machine)
        machine.node.kill()
        machine.start()

    assert len(events.named("quorum.hard_state_damaged")) == 1
    assert events.named("quorum.hard_state_lost") == []
    assert before is not None
    assert machine.host.quorum.raft.term >= before.term


def test_an_older_snapshot_that_rots_is_removed() -> None:
    machine = filled(EAGER)
    older, newest = machine.snapshots()
    machine.disk.flip_bit(older, 100)

    with recorded_events() as events:
        scrub(machine)

    assert len(events.named("metadata.old_snapshots_dropped")) == 1
    assert machine.snapshots() == [newest]
