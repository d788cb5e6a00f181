"""Offsets inside transactions, on the log of a coordinator."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import pytest

from penstock.broker.coordinator import log_rewrite
from penstock.broker.partitions import LeaderPartition, Leadership
from penstock.broker.transactions import markers, verification
from penstock.broker.transactions.markers import MarkerResults, MarkerWriter, TransactionMarker
from penstock.broker.transactions.offset_commits import TransactionalOffsetCommits
from penstock.broker.transactions.verification import TransactionalRequest, TransactionVerification
from penstock.core.groups import (
    CommitResults,
    CommitTransactionOffsets,
    Fact,
    FetchedOffsets,
    FetchOffsets,
    GroupCoordinator,
    OffsetToCommit,
    Reply,
    TopicToFetch,
)
from penstock.core.metadata import OFFSETS_TOPIC
from penstock.core.model import (
    ApiError,
    ErrorKind,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Timestamp,
    TopicPartition,
)
from penstock.core.records import ControlRecord, read_header
from penstock.storage.disk import CrashableDisk
from penstock.storage.log import CompactionRules, cleaner_for
from tests.unit.broker.coordinator.leader_bench import NODE
from tests.unit.broker.groups.groups_bench import GROUP, READ_ID, READ_TOPIC, GroupsBench, brisk

Answer = Mapping[TopicPartition, ApiError | None]
NEW = TransactionalRequest("payments", adds_partitions=True, knows_abortable=True)
OLD = TransactionalRequest("payments", adds_partitions=False, knows_abortable=False)
PLACE = TopicPartition(READ_TOPIC, PartitionIndex(0))
OFFSETS = TopicPartition(OFFSETS_TOPIC, PartitionIndex(0))  # type: ignore[arg-type]
ALICE = 7


class Transactions:
    """A transaction coordinator that lets everything pass, unless it is told otherwise."""

    def __init__(self, bench: GroupsBench) -> None:
        self.bench = bench
        self.asked: list[tuple[list[TopicPartition], bool]] = []
        self.error: ApiError | None = None
        self.is_held = False
        self.held: list[Callable[[], None]] = []
        guards = TransactionVerification(bench.runtime.timers, self)
        self.commits = TransactionalOffsetCommits(bench.groups, guards)
        self.markers = MarkerWriter(bench, bench.runtime, guards, bench.groups)

    def confirms_now(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> bool:
        return False

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: Callable[[Answer], None],
    ) -> None:
        assert (transactional_id, producer_id) == ("payments", ALICE)
        self.asked.append((list(partitions), verify_only))
        answer = partial(done, dict.fromkeys(partitions, self.error))
        if self.is_held:
            self.held.append(answer)
        else:
            self.bench.timers.soon(answer)

    def submit(
        self, offset: int, *, epoch: int = 0, request: TransactionalRequest = NEW, metadata: str = ""
    ) -> list[Reply]:
        replies: list[Reply] = []
        command = CommitTransactionOffsets(
            on_reply=replies.append,
            group_id=GROUP,
            producer_id=ProducerId(ALICE),
            producer_epoch=ProducerEpoch(epoch),
            offsets=(OffsetToCommit(PLACE, Offset(offset), metadata=metadata, topic_id=READ_ID),),
        )
        self.commits.commit(command, request)
        return replies

    def commit(self, offset: int, *, epoch: int = 0, request: TransactionalRequest = NEW) -> Reply:
        replies = self.submit(offset, epoch=epoch, request=request)
        self.bench.settle()
        (reply,) = replies
        return reply

    def end(self, *, is_commit: bool = True, epoch: int = 1) -> ErrorKind | None:
        heard: list[MarkerResults] = []
        self.markers.write([TransactionMarker(ALICE, epoch, 0, is_commit, 2, (OFFSETS,))], heard.append)
        self.bench.settle()
        ((result,),) = heard
        error = result[OFFSETS]
        return None if error is None else error.kind


def is_stable(bench: GroupsBench) -> bool:
    topics = (TopicToFetch(READ_TOPIC, (PartitionIndex(0),), READ_ID),)
    reply = bench.ask(FetchOffsets, topics=topics, require_stable=True)
    assert isinstance(reply, FetchedOffsets)
    return reply.offsets[0].kind is not ErrorKind.OFFSETS_UNSTABLE


def test_a_commit_waits_for_the_transactions_coordinator_once_and_counts_after_the_marker() -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)

    replies = [transactions.commit(20), transactions.commit(21)]
    before = bench.committed()

    assert all(isinstance(reply, CommitResults) for reply in replies)
    assert transactions.asked == [([OFFSETS], False)]
    assert transactions.end() is None
    assert (before, bench.committed()) == (-1, 21)
    assert bench.log.last_stable_offset == bench.log.end


def test_positions_are_stored_as_kafka_stores_them() -> None:
    bench = GroupsBench().start()
    Transactions(bench).commit(20)

    header = read_header(bench.log.read(bench.log.start, 1 << 20).to_bytes())

    assert (header.is_transactional, header.producer_id, header.producer_epoch) == (True, ALICE, 0)
    assert header.base_sequence == -1


def test_a_coordinator_that_starts_finds_what_is_pending_committed_and_aborted() -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)
    transactions.commit(20)
    transactions.end()
    transactions.commit(30, epoch=1)
    transactions.end(is_commit=False, epoch=2)
    transactions.commit(40, epoch=2)

    started = bench.restarted()

    assert (started.committed(), is_stable(started)) == (20, False)
    again = Transactions(started)
    assert again.end(epoch=3) is None
    assert (started.committed(), is_stable(started)) == (40, True)
    assert started.restarted(epoch=2).committed() == 40


def test_a_rewritten_log_keeps_what_is_pending() -> None:
    bench = GroupsBench(options=brisk(rewrite_records_min=50)).start()
    transactions = Transactions(bench)
    transactions.commit(1_000)
    for offset in range(60):
        bench.ask_to_commit(offset, group_id="others")
    assert bench.log.start > 0
    assert bench.log.last_stable_offset >= bench.log.start

    started = bench.restarted()

    assert not is_stable(started)
    assert Transactions(started).end() is None
    assert started.committed() == 1_000
    assert started.log.last_stable_offset == started.log.end


def during_rewrite(
    monkeypatch: pytest.MonkeyPatch, bench: GroupsBench, step: int, act: Callable[[], None]
) -> None:
    """Have the log rewritten a record at a time, and something happen after the first few of them."""
    taken = GroupCoordinator.snapshot

    def interrupted(coordinator: GroupCoordinator) -> Iterator[Fact]:
        monkeypatch.setattr(GroupCoordinator, "snapshot", taken)
        copies = taken(coordinator)
        yield from islice(copies, step)
        act()
        yield from copies

    monkeypatch.setattr(log_rewrite, "PORTION", 1)
    monkeypatch.setattr(GroupCoordinator, "snapshot", interrupted)
    for offset in range(60):
        bench.ask_to_commit(offset, group_id="others")
    assert bench.log.start > 0


@pytest.mark.parametrize("committed_before", [True, False])
@pytest.mark.parametrize("step", range(4))
def test_a_marker_that_comes_while_the_log_is_rewritten_counts(
    monkeypatch: pytest.MonkeyPatch, step: int, committed_before: bool
) -> None:
    bench = GroupsBench(options=brisk(rewrite_records_min=50)).start()
    transactions = Transactions(bench)
    if committed_before:
        bench.ask_to_commit(500)
    transactions.commit(1_000)

    marker = TransactionMarker(ALICE, 1, 0, True, 2, (OFFSETS,))
    during_rewrite(monkeypatch, bench, step, lambda: transactions.markers.write([marker], lambda _: None))

    assert bench.committed() == 1_000
    started = bench.restarted()
    assert (started.committed(), is_stable(started)) == (1_000, True)


@pytest.mark.parametrize("step", range(3))
def test_a_position_that_becomes_pending_while_the_log_is_rewritten_stays_pending(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    bench = GroupsBench(options=brisk(rewrite_records_min=50)).start()
    bench.ask_to_commit(500)
    # As if it had been verified before.
    command = CommitTransactionOffsets(
        on_reply=lambda _: None,
        group_id=GROUP,
        producer_id=ProducerId(ALICE),
        producer_epoch=ProducerEpoch(0),
        offsets=(OffsetToCommit(PLACE, Offset(1_000), topic_id=READ_ID),),
    )

    during_rewrite(monkeypatch, bench, step, lambda: bench.groups.submit(command))

    started = bench.restarted()
    assert (started.committed(), is_stable(started)) == (500, False)
    assert Transactions(started).end() is None
    assert started.committed() == 1_000


def compact(bench: GroupsBench) -> None:
    bench.log.roll()
    bench.log.checkpoint()
    bench.settle()
    compaction = bench.log.begin_compaction(CompactionRules(min_dirty_ratio=0.0), Timestamp(1), "token")
    assert compaction is not None
    assert bench.log.finish_compaction(compaction, cleaner_for(bench.crashable)(compaction.order))
    bench.settle()


@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_rewrite_that_did_not_end_and_a_compaction_leave_what_a_transaction_decided(
    monkeypatch: pytest.MonkeyPatch, step: int, is_commit: bool
) -> None:
    bench = GroupsBench(options=brisk(rewrite_records_min=50)).start()
    bench.ask_to_commit(500)
    Transactions(bench).commit(1_000)
    left: list[CrashableDisk] = []
    during_rewrite(monkeypatch, bench, step, lambda: left.append(bench.crashable.copy()))
    # The positions that were committed have been copied behind the pending one, which has not.
    successor = bench.restarted(disk=left[0])

    assert Transactions(successor).end(is_commit=is_commit) is None
    compact(successor)

    assert successor.restarted(epoch=2).committed() == (1_000 if is_commit else 500)


@pytest.mark.parametrize("step", range(4))
def test_a_node_that_ends_behind_a_marker_that_came_during_a_rewrite_leaves_what_it_decided(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    bench = GroupsBench(options=brisk(rewrite_records_min=50)).start()
    transactions = Transactions(bench)
    bench.ask_to_commit(500)
    transactions.commit(1_000)
    left: list[CrashableDisk] = []
    written = markers.append_marker

    def append(partition: LeaderPartition, marker: ControlRecord, now: Timestamp) -> Offset | ApiError:
        end = written(partition, marker, now)
        left.append(bench.crashable.copy())
        return end

    monkeypatch.setattr(markers, "append_marker", append)
    marker = TransactionMarker(ALICE, 1, 0, True, 2, (OFFSETS,))
    during_rewrite(monkeypatch, bench, step, lambda: transactions.markers.write([marker], lambda _: None))
    successor = bench.restarted(disk=left[0])

    compact(successor)

    assert successor.restarted(epoch=2).committed() == 1_000


def test_errors_of_the_transactions_coordinator_are_those_that_clients_of_groups_know() -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)

    transactions.error = ApiError(ErrorKind.CONCURRENT_TRANSACTIONS)
    busy = transactions.commit(1)
    transactions.error = ApiError(ErrorKind.INVALID_TRANSACTION)
    unknown = transactions.commit(1, request=OLD)

    assert isinstance(busy, ApiError)
    assert busy.kind is ErrorKind.COORDINATOR_LOADING
    assert isinstance(unknown, ApiError)
    assert unknown.kind is ErrorKind.INVALID_TRANSACTION
    assert transactions.asked[-1] == ([OFFSETS], True)
    assert bench.log.end == 0


def test_a_commit_that_was_verified_before_the_marker_is_refused() -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)
    transactions.commit(20)
    transactions.end()

    late = transactions.submit(30, epoch=1)
    transactions.markers.write([TransactionMarker(ALICE, 2, 0, False, 2, (OFFSETS,))], lambda _: None)
    bench.settle()

    assert isinstance(late[0], ApiError)
    assert late[0].kind is ErrorKind.INVALID_TRANSACTION
    assert (bench.committed(), is_stable(bench)) == (20, True)


def test_an_old_producer_is_fenced() -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)
    transactions.commit(20)
    transactions.end(epoch=1)

    reply = transactions.commit(30, epoch=0)

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.PRODUCER_FENCED


def test_a_marker_waits_for_a_coordinator_that_loads() -> None:
    bench = GroupsBench().start()
    Transactions(bench).commit(20)
    starting = GroupsBench(disk=bench.crashable.copy())
    starting.open_logs(epoch=1)

    error = Transactions(starting).end()

    assert error is ErrorKind.COORDINATOR_LOADING
    starting.serve()
    assert Transactions(starting).end() is None
    assert starting.committed() == 20


def test_commits_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)
    transactions.is_held = True
    monkeypatch.setattr(verification, "PARKED_BYTES_MAX", 2_000)

    replies = [transactions.submit(offset) for offset in range(10)]

    refused = [one[0].kind for one in replies if one and isinstance(one[0], ApiError)]
    assert refused == [ErrorKind.COORDINATOR_LOADING] * 7
    bench.settle()
    transactions.held.pop()()
    bench.settle()
    assert [isinstance(one[0], CommitResults) for one in replies].count(True) == 3


def test_what_commits_carry_counts_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)
    transactions.is_held = True
    monkeypatch.setattr(verification, "PARKED_BYTES_MAX", 2_000)

    (reply,) = transactions.submit(20, metadata="m" * 2_000)

    assert isinstance(reply, ApiError)
    assert reply.kind is ErrorKind.COORDINATOR_LOADING


def test_a_commit_for_a_group_that_moved_away_and_back_is_not_written() -> None:
    bench = GroupsBench().start()
    transactions = Transactions(bench)
    transactions.is_held = True
    replies = transactions.submit(20)
    bench.settle()

    bench.led[OFFSETS_TOPIC, 0].stop("it moves", wanted=True)
    term = Leadership.alone(NODE, LeaderEpoch(1))
    bench.led[OFFSETS_TOPIC, 0] = LeaderPartition(bench.kept[OFFSETS_TOPIC, 0], term, bench.runtime)
    bench.groups.roles_changed()
    bench.settle()
    transactions.held.pop()()
    bench.settle()

    assert isinstance(replies[0], ApiError)
    assert replies[0].kind is ErrorKind.NOT_COORDINATOR
    assert bench.log.end == 0
