"""What a broker says of its logs before anyone is elected for them."""

from collections.abc import Callable

import pytest

from penstock.broker.partitions.replica_reports import loss_in
from penstock.core.metadata import (
    NO_LEADER,
    Command,
    DeleteTopic,
    ElectReported,
    PartitionReport,
    ReplicaLoss,
    Reply,
    ReportReplicas,
)
from penstock.core.model import ApiError, BrokerEpoch, ErrorKind, LeaderEpoch, NodeId, Offset, PartitionIndex
from penstock.core.records import check_batches
from penstock.storage.disk import CrashableDisk, CrashableFile
from penstock.storage.log import CorruptRange, LostTail, RecoveryReport
from penstock.storage.log.loss import NotedLoss, write_loss
from tests.support.recorded_events import recorded_events
from tests.unit.broker.partitions.replicas_bench import TOPIC_ID, Producer, ReplicasBench
from tests.unit.core.metadata.clusters import broker_of, registration

DIRECTORY = "logs/orders/0"
SEGMENT = f"{DIRECTORY}/{0:020}.log"


@pytest.fixture
def bench() -> ReplicasBench:
    """Four committed records; then brokers 2 and 3 alone are in sync, and commit four more."""
    bench = ReplicasBench().create(2, 1, 3)
    producer = Producer(bench[2])
    for _ in range(4):
        producer.append(b"everywhere")
    for follower in (1, 3):
        bench.copy(follower)
        bench.copy(follower)
    bench.fence(1)
    for _ in range(4):
        producer.append(b"on two")
    bench.copy(3)
    bench.copy(3)
    assert len(producer.acknowledged) == 8
    return bench


class Reports:
    """The way of a broker's reports to the controller, which may be closed."""

    def __init__(self, bench: ReplicasBench, number: int) -> None:
        self._bench = bench
        self._number = number
        self.sent: list[ReportReplicas] = []
        self.error: ApiError | None = None
        self.ended = 0

    def start(self, *, is_settled: bool = True) -> "Reports":
        epoch = broker_of(self._bench.machine, self._number).epoch
        broker = self._bench[self._number]
        broker.partitions.report_replicas(epoch, self._submit, self._ended)
        if is_settled:
            broker.settle()
        return self

    def _submit(self, command: Command, done: Callable[[Reply], None]) -> None:
        assert isinstance(command, ReportReplicas)
        self.sent.append(command)
        error = self.error
        self._bench.timers.soon(lambda: done(error or self._bench.perform(command)))

    def _ended(self) -> None:
        self.ended += 1

    @property
    def last(self) -> PartitionReport:
        return self.sent[-1].reports[-1]


def test_a_report_waits_until_what_it_says_is_durable() -> None:
    bench = ReplicasBench(journal=True).create(2, 1, 3)
    bench[2].syncs.held = True
    producer = Producer(bench[2])
    producer.append(b"in a frame")
    producer.append(b"not yet")
    for node in (1, 2, 3):
        bench.perform(registration(node, fenced=True))
    bench.restart(2, is_settled=False)

    reports = Reports(bench, 2).start(is_settled=False)

    ((files, _),) = bench[2].syncs.waiting
    assert [type(file) for file in files] == [CrashableFile], "the journal alone"
    assert reports.sent == []
    bench[2].settle()
    assert [report.end for report in reports.sent[0].reports] == [2]


def test_a_log_that_is_removed_before_it_is_durable_is_no_failed_sync() -> None:
    bench = ReplicasBench(journal=True).create(2, 1, 3)
    bench[2].syncs.held = True
    producer = Producer(bench[2])
    producer.append(b"in a frame")
    producer.append(b"not yet")
    broker = bench.restart(2, is_settled=False)
    assert len(broker.syncs.waiting) == 1
    broker.directory.set_boot(BrokerEpoch(5), "this boot")

    bench.perform(DeleteTopic("orders"))

    assert broker.partitions.are_synced
    assert broker.directory.surviving_epoch("this boot") == 5


def crash_all(bench: ReplicasBench, damage: Callable[[CrashableDisk], None], number: int) -> None:
    """Every broker falls, one of them is damaged, and all register again."""
    damage(bench[number].disk)
    for node in (1, 2, 3):
        bench.perform(registration(node, fenced=True))
    for node in (1, 2, 3):
        bench.restart(node)
    assert (bench.state.leader, bench.state.elr) == (NO_LEADER, (2, 3))


def come_back(bench: ReplicasBench, number: int) -> Reports:
    reports = Reports(bench, number).start()
    assert reports.ended == 1
    bench.unfence(number)
    return reports


def cut(disk: CrashableDisk) -> None:
    size = disk.open(SEGMENT, readonly=True).size()
    disk.open(SEGMENT).truncate(size // 2)


def remove_directory(disk: CrashableDisk) -> None:
    disk.remove_tree(DIRECTORY)


def spare(_disk: CrashableDisk) -> None:
    pass


@pytest.mark.parametrize("damage", [cut, remove_directory])
@pytest.mark.parametrize("first", [2, 3])
def test_a_shortened_log_does_not_lead_whoever_comes_back_first(
    bench: ReplicasBench, damage: Callable[[CrashableDisk], None], first: int
) -> None:
    crash_all(bench, damage, 2)

    come_back(bench, first)
    assert bench.state.leader == NO_LEADER
    come_back(bench, 5 - first)

    assert bench.state.leader == 3
    assert bench[3].led.log.end == 8


def test_a_report_says_how_far_the_log_goes_and_what_is_missing(bench: ReplicasBench) -> None:
    crash_all(bench, remove_directory, 2)

    lost = come_back(bench, 2).last
    whole = come_back(bench, 3).last

    assert (lost.end, lost.loss) == (0, ReplicaLoss.EVERYTHING)
    assert (whole.last_epoch, whole.end, whole.loss) == (0, 8, ReplicaLoss.NOTHING)


def test_a_broker_is_not_ready_to_lead_before_its_reports_are_committed(bench: ReplicasBench) -> None:
    crash_all(bench, spare, 2)
    reports = Reports(bench, 2)
    reports.error = ApiError(ErrorKind.NOT_CONTROLLER)
    reports.start()
    assert reports.ended == 0

    reports.error = None
    bench.timers.pass_ms(100)
    bench[2].settle()

    assert reports.ended == 1
    assert len(reports.sent) == 2


@pytest.mark.parametrize("kind", [ErrorKind.STALE_BROKER_EPOCH, ErrorKind.UNKNOWN_BROKER])
def test_a_broker_that_was_replaced_does_not_report_for_ever(bench: ReplicasBench, kind: ErrorKind) -> None:
    crash_all(bench, spare, 2)
    reports = Reports(bench, 2)
    reports.error = ApiError(kind)

    reports.start()

    assert reports.ended == 1
    assert len(reports.sent) == 1


def test_who_has_a_replica_reports_when_its_partition_loses_its_leader(bench: ReplicasBench) -> None:
    """Broker 1 is not eligible, yet its log may be the longest that is left."""
    bench.unfence(1)
    reports = Reports(bench, 1).start()
    assert reports.sent == []

    bench.fence(3)
    bench.fence(2)
    bench[1].settle()

    assert [report.node_id for report in bench.state.reports] == [1]
    assert (reports.last.end, reports.last.loss) == (4, ReplicaLoss.NOTHING)
    sent = len(reports.sent)
    bench.follow()
    assert len(reports.sent) == sent


def test_a_log_that_was_lost_counts_as_lost_until_it_is_in_sync_again(bench: ReplicasBench) -> None:
    crash_all(bench, remove_directory, 2)
    reports = come_back(bench, 2)
    come_back(bench, 3)
    bench.copy(2)
    assert bench[2].followed.log.end == 8

    bench.fence(3)
    bench[2].settle()
    assert (reports.last.end, reports.last.loss) == (8, ReplicaLoss.TAIL)

    bench.unfence(3)
    bench.copy(2)
    bench.change_isr(2, 3)
    bench.fence(2)
    bench.fence(3)
    bench[2].settle()
    assert (reports.last.end, reports.last.loss) == (8, ReplicaLoss.NOTHING)


def note_doubt(disk: CrashableDisk) -> None:
    """As a start does that finds the journal damaged."""
    write_loss(disk, DIRECTORY, NotedLoss(doubt="a frame is damaged"))


def test_a_doubt_is_reported_by_every_start_until_the_replica_is_in_sync(bench: ReplicasBench) -> None:
    crash_all(bench, note_doubt, 2)
    assert come_back(bench, 2).last.loss is ReplicaLoss.DOUBTFUL
    bench.perform(registration(2, fenced=True))
    bench.restart(2)
    assert come_back(bench, 2).last.loss is ReplicaLoss.DOUBTFUL

    come_back(bench, 3)
    assert bench.state.leader == 3
    assert bench[2].disk.exists(f"{DIRECTORY}/loss")
    bench.copy(2)
    bench.change_isr(2, 3)

    assert not bench[2].disk.exists(f"{DIRECTORY}/loss")


def test_a_leader_that_misses_records_says_which(bench: ReplicasBench) -> None:
    crash_all(bench, remove_directory, 2)
    place = (TOPIC_ID, PartitionIndex(0))
    row = PartitionReport(
        *place, LeaderEpoch(0), Offset(8), bench.state.leader_epoch, ReplicaLoss.TAIL, Offset(12)
    )
    bench.perform(ReportReplicas(NodeId(3), broker_of(bench.machine, 3).epoch, (row,)))
    bench.unfence(3)
    come_back(bench, 2)

    with recorded_events() as events:
        come_back(bench, 1)

    assert bench.state.leader == 3
    (event,) = events.named("partition.elected_with_loss")
    assert (event["partition"], event["end"], event["lost"]) == ("orders/0", 8, "8..12")
    assert event["reports"] == ["2: 0 everything", "1: 4 nothing", "3: 8 tail"]


def test_recovery_says_what_was_lost() -> None:
    damage = CorruptRange(Offset(0), Offset(10), Offset(20), "rot")
    lost = LostTail(Offset(30), Offset(40), "cut")

    assert loss_in(RecoveryReport()) == (ReplicaLoss.NOTHING, -1)
    assert loss_in(RecoveryReport(doubt="no journal")) == (ReplicaLoss.DOUBTFUL, -1)
    assert loss_in(RecoveryReport(lost=lost, doubt="no journal")) == (ReplicaLoss.TAIL, 40)
    assert loss_in(RecoveryReport(corruption=(damage,))) == (ReplicaLoss.RANGE, 20)
    assert loss_in(RecoveryReport(corruption=(damage,), lost=lost)) == (ReplicaLoss.RANGE, 40)


@pytest.mark.parametrize("number", [2, 3], ids=["leader", "follower"])
def test_after_a_failed_sync_nobody_counts_on_the_page_cache(bench: ReplicasBench, number: int) -> None:
    broker = bench[number]
    broker.directory.set_boot(BrokerEpoch(5), "monday")
    for one in (2, 3):
        bench[one].syncs.held = True
    Producer(bench[2]).append(b"unsynced")
    content = bench[2].led.log.read(Offset(8), 1 << 20).to_bytes()
    bench[3].followed.append(content, check_batches(memoryview(content)))
    assert broker.directory.surviving_epoch("monday") == 5

    broker.syncs.finish(OSError(5, "the device is gone"))

    assert broker.directory.surviving_epoch("monday") is None


@pytest.mark.parametrize(("damage", "sent"), [(spare, 0), (remove_directory, 1)])
def test_the_only_replica_reports_what_it_lost_and_nothing_else(
    damage: Callable[[CrashableDisk], None], sent: int
) -> None:
    bench = ReplicasBench().create(1)
    Producer(bench[1]).append(b"here")
    damage(bench[1].disk)
    bench.perform(registration(1, fenced=True))
    bench.restart(1)

    reports = come_back(bench, 1)

    assert len(reports.sent) == sent
    assert bench.state.leader == 1


def test_a_log_that_may_miss_its_beginning_does_not_lead_although_it_is_as_long() -> None:
    bench = ReplicasBench().create(2, 1, 3, segment_bytes="512")
    producer = Producer(bench[2])
    for _ in range(20):
        producer.append(b"everywhere")
    for follower in (1, 3):
        bench.copy(follower)
        bench.copy(follower)
    bench.fence(1)
    producer.append(b"on two")
    bench.copy(3)
    bench.copy(3)

    def remove_start(disk: CrashableDisk) -> None:
        disk.remove(SEGMENT)
        disk.remove(f"{DIRECTORY}/checkpoint")

    crash_all(bench, remove_start, 2)
    come_back(bench, 1)
    come_back(bench, 2)
    assert bench.state.leader == NO_LEADER
    # Broker 3 has reported, and is not unfenced yet.
    Reports(bench, 3).start()
    bench.perform(ElectReported(((TOPIC_ID, PartitionIndex(0)),)))

    assert bench.state.leader != 2
