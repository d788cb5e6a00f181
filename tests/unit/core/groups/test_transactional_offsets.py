"""Positions that are committed inside transactions: pending, then decided by a marker."""

from dataclasses import replace
from itertools import islice

import pytest

from penstock.core.groups import (
    CommitResults,
    CommitTransactionOffsets,
    DeleteGroup,
    DeleteOffsets,
    FetchedOffset,
    FetchedOffsets,
    FetchOffsets,
    ForgetTopics,
    GroupCoordinator,
    OffsetResult,
    OffsetToCommit,
    Reply,
    TransactionalOffsetCommitted,
    TransactionEnded,
)
from penstock.core.model import ErrorKind, Offset, ProducerEpoch, ProducerId, TopicName
from tests.unit.core.groups.consumer_driver import ConsumerDriver
from tests.unit.core.groups.group_driver import GROUP, OPTIONS, Driver, at, ignore, kind_of, position

ALICE, BOB = ProducerId(7), ProducerId(8)
RETENTION_MS = 60 * 60 * 1_000
EXPIRING = replace(OPTIONS, offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=60_000)


def commit(
    driver: Driver,
    *offsets: OffsetToCommit,
    producer: ProducerId = ALICE,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> Reply:
    return driver.ask(
        CommitTransactionOffsets(
            on_reply=ignore,
            group_id=GROUP,
            producer_id=producer,
            producer_epoch=ProducerEpoch(0),
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
            offsets=offsets,
        )
    )


def end(driver: Driver, producer: ProducerId = ALICE, *, is_commit: bool = True) -> None:
    """The partition's leader has written a marker."""
    fact = TransactionEnded(producer, is_commit)
    driver.coordinator.apply(fact)
    driver.facts.append(fact)


def stable(driver: Driver) -> tuple[FetchedOffset, ...]:
    reply = driver.ask(FetchOffsets(on_reply=ignore, group_id=GROUP, topics=None, require_stable=True))
    assert isinstance(reply, FetchedOffsets)
    return reply.offsets


def test_a_position_counts_from_the_marker_on_that_commits_it() -> None:
    driver = Driver()
    driver.commit(position(10))

    reply = commit(driver, position(20))
    pending = driver.committed()
    end(driver)

    assert reply == CommitResults((OffsetResult(at("t")),))
    assert (pending, driver.committed()) == (10, 20)


def test_a_position_of_an_aborted_transaction_never_counts() -> None:
    driver = Driver()
    driver.commit(position(10))
    commit(driver, position(20), position(5, partition=1))

    end(driver, is_commit=False)

    assert (driver.committed(), driver.committed(partition=1)) == (10, -1)
    assert len(driver.coordinator.image.pending) == 0


def test_a_transaction_commits_no_more_positions_than_its_end_can_decide_on_at_once() -> None:
    driver = Driver(replace(OPTIONS, transaction_positions_max=3))
    commit(driver, position(1), position(1, partition=1))

    reply = commit(driver, *[position(2, partition=number) for number in range(5)])
    other = commit(driver, position(3, partition=4), producer=BOB)
    end(driver)

    kinds = [None, None, None, ErrorKind.TOO_MANY_OFFSETS, ErrorKind.TOO_MANY_OFFSETS]
    assert reply == CommitResults(
        tuple([OffsetResult(at("t", number), kind) for number, kind in enumerate(kinds)])
    )
    assert other == CommitResults((OffsetResult(at("t", 4)),))
    assert [driver.committed(partition=number) for number in range(5)] == [2, 2, 2, -1, -1]


def test_who_asks_for_stable_positions_is_told_that_a_transaction_may_move_them() -> None:
    driver = Driver()
    driver.commit(position(10), position(11, partition=1))
    commit(driver, position(20), position(3, partition=2))

    unstable = stable(driver)
    end(driver)

    assert [fetched.kind for fetched in unstable] == [
        ErrorKind.OFFSETS_UNSTABLE,
        None,
        ErrorKind.OFFSETS_UNSTABLE,
    ]
    assert [fetched.offset for fetched in stable(driver)] == [20, 11, 3]


@pytest.mark.parametrize(("first", "kept"), [(ALICE, 30), (BOB, 30)])
def test_of_two_transactions_the_one_that_wrote_last_decides_whichever_ends_first(
    first: ProducerId, kept: int
) -> None:
    driver = Driver()
    commit(driver, position(20), producer=ALICE)
    commit(driver, position(30), producer=BOB)

    end(driver, first)
    end(driver, BOB if first is ALICE else ALICE)

    assert driver.committed() == kept


def test_a_commit_outside_of_the_transaction_that_comes_later_stands() -> None:
    driver = Driver()
    commit(driver, position(20))
    driver.commit(position(15))

    end(driver)

    assert driver.committed() == 15


@pytest.mark.parametrize("outcomes", [{ALICE: a, BOB: b} for a in (True, False) for b in (True, False)])
@pytest.mark.parametrize("copied", range(4))
def test_compaction_keeps_what_counts_after_a_rewrite_that_did_not_end(
    copied: int, outcomes: dict[ProducerId, bool]
) -> None:
    driver = Driver()
    driver.commit(position(10))
    commit(driver, position(20), producer=ALICE)
    commit(driver, position(30), producer=BOB)
    log = [*driver.facts, *islice(driver.coordinator.snapshot(), copied)]
    successor = GroupCoordinator(OPTIONS)
    for fact in log:
        successor.apply(fact)

    corrections = successor.image.pending.overtaken()
    ends = [TransactionEnded(producer, is_commit) for producer, is_commit in outcomes.items()]
    for correction in corrections:
        successor.apply(correction)
    for ended in ends:
        successor.apply(ended)

    kept = [
        fact.position if isinstance(fact, TransactionalOffsetCommitted) else fact
        for fact in [*log, *corrections]
        if not isinstance(fact, TransactionalOffsetCommitted) or outcomes[fact.producer_id]
    ][-1]
    assert successor.image.offsets[GROUP][at("t")] == kept


def test_positions_of_open_transactions_survive_a_failover_and_a_rewrite_of_the_log() -> None:
    driver = Driver()
    driver.commit(position(10), position(11, partition=1))
    commit(driver, position(20))
    commit(driver, position(25), producer=BOB)

    after_failover = driver.failed_over()
    rewritten = Driver(facts=list(driver.coordinator.snapshot()))
    # The machine whose log is rewritten applies the copies, too.
    for fact in driver.coordinator.snapshot():
        driver.coordinator.apply(fact)

    assert rewritten.coordinator.image == after_failover.coordinator.image == driver.coordinator.image
    assert driver.coordinator.size() == 4
    for each in (driver, after_failover, rewritten):
        assert (each.committed(), stable(each)[0].kind) == (10, ErrorKind.OFFSETS_UNSTABLE)
        end(each, BOB)
        assert each.committed() == 25


def test_a_copy_of_what_is_pending_keeps_its_place() -> None:
    driver = Driver()
    commit(driver, position(20), producer=ALICE)
    commit(driver, position(30), producer=BOB)

    driver.coordinator.apply(next(iter(driver.coordinator.snapshot())))
    end(driver, ALICE)
    end(driver, BOB)

    assert driver.committed() == 30


def test_a_transaction_that_names_no_member_may_commit_for_a_group_with_members() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    assert isinstance(commit(driver, position(1)), CommitResults)
    assert isinstance(commit(driver, position(1), generation=1, member_id=member), CommitResults)
    wrong_generation = commit(driver, position(1), generation=0, member_id=member)
    assert kind_of(wrong_generation) is ErrorKind.ILLEGAL_GENERATION
    assert kind_of(commit(driver, position(1), generation=1, member_id="x")) is ErrorKind.UNKNOWN_MEMBER
    fenced = commit(driver, position(1), generation=1, member_id=member, instance_id="i")
    assert kind_of(fenced) is ErrorKind.UNKNOWN_MEMBER


def test_the_same_holds_for_a_group_of_the_consumer_protocol() -> None:
    driver = ConsumerDriver()
    member = driver.member("a")

    assert isinstance(commit(driver, position(1)), CommitResults)
    assert isinstance(commit(driver, position(1), generation=member.epoch, member_id="a"), CommitResults)
    stale = commit(driver, position(1), generation=member.epoch - 1, member_id="a")
    assert kind_of(stale) is ErrorKind.ILLEGAL_GENERATION
    assert kind_of(commit(driver, position(1), generation=1, member_id="x")) is ErrorKind.UNKNOWN_MEMBER


def test_a_rebalance_does_not_keep_a_transaction_from_ending() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]
    driver.join_new()
    ticket = driver.join(member)
    while ticket not in driver.answers:
        driver.advance(1_000)
    generation = driver.joined(ticket).generation

    ordinary = driver.commit(position(1), generation=generation, member_id=member)
    transactional = commit(driver, position(1), generation=generation, member_id=member)

    assert kind_of(ordinary) is ErrorKind.REBALANCE_IN_PROGRESS
    assert isinstance(transactional, CommitResults)


def test_a_generation_of_a_group_that_nobody_knows_is_refused() -> None:
    driver = Driver()

    assert kind_of(commit(driver, position(1), generation=3, member_id="m")) is ErrorKind.ILLEGAL_GENERATION


def test_metadata_that_is_too_large_is_refused_for_its_partition_alone() -> None:
    driver = Driver()
    large = "m" * (driver.options.offset_metadata_chars_max + 1)

    reply = commit(driver, position(1, metadata=large), position(2, partition=1))

    assert reply == CommitResults(
        (OffsetResult(at("t"), ErrorKind.OFFSET_METADATA_TOO_LARGE), OffsetResult(at("t", 1)))
    )


def test_what_is_pending_counts_as_memory_until_its_transaction_ends() -> None:
    driver = Driver()
    pending = driver.coordinator.image.pending

    commit(driver, position(1, metadata="m" * 100))
    commit(driver, position(2, metadata="m" * 50))
    commit(driver, position(2, metadata="m" * 7), producer=BOB)
    counted = pending.metadata_bytes
    after_failover = driver.failed_over().coordinator.image.pending
    end(driver)
    end(driver, BOB, is_commit=False)

    assert counted == 57
    assert (after_failover.metadata_bytes, after_failover.size_bytes > 2 * 400) == (57, True)
    assert (pending.size_bytes, pending.metadata_bytes) == (0, 0)
    assert driver.coordinator.image.metadata_bytes == 50


def test_metadata_of_a_transaction_needs_room_beside_what_the_group_has() -> None:
    room = [100]
    driver = Driver(replace(OPTIONS, metadata_room=lambda: room[0]))
    driver.commit(position(1, metadata="m" * 100))
    room[0] = 10

    refused, taken = (commit(driver, position(2, metadata="m" * size)) for size in (100, 10))

    assert refused == CommitResults((OffsetResult(at("t"), ErrorKind.OFFSET_METADATA_TOO_LARGE),))
    assert taken == CommitResults((OffsetResult(at("t")),))


def test_what_is_pending_does_not_expire_and_keeps_its_group() -> None:
    driver = Driver(EXPIRING)
    driver.commit(position(10))
    commit(driver, position(20))

    driver.advance(3 * RETENTION_MS)

    assert driver.committed() == 10
    end(driver, is_commit=False)
    driver.advance(RETENTION_MS)
    assert driver.committed() == -1


@pytest.mark.parametrize(
    "command",
    [
        DeleteGroup(on_reply=ignore, group_id=GROUP),
        DeleteOffsets(on_reply=ignore, group_id=GROUP, partitions=(at("t"),)),
        ForgetTopics(on_reply=ignore, topics=frozenset({TopicName("t")})),
    ],
    ids=["the group", "the offset", "the topic"],
)
def test_what_is_deleted_does_not_come_back_with_the_transaction(
    command: DeleteGroup | DeleteOffsets | ForgetTopics,
) -> None:
    driver = Driver()
    commit(driver, position(20))

    driver.ask(command)
    end(driver)

    assert driver.committed() == -1
    assert not driver.coordinator.image.knows(GROUP)


def test_a_marker_of_a_producer_without_positions_changes_nothing() -> None:
    machine = GroupCoordinator()

    machine.apply(TransactionEnded(ALICE, is_commit=True))

    assert machine.size() == 0


def test_the_last_position_of_a_producer_counts() -> None:
    driver = Driver()
    commit(driver, position(20))
    commit(driver, OffsetToCommit(at("t"), Offset(21)))

    end(driver)

    assert driver.committed() == 21
