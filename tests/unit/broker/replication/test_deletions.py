"""Records that are deleted on the leader are deleted on its followers before anybody is told so."""

from penstock.core.model import ApiError, ErrorKind, Offset
from tests.unit.broker.replication.stage import Stage


def delete(stage: Stage, before: int, timeout_ms: int = 5_000) -> list[ApiError | None]:
    """Delete on the leader; returns where the outcome will be."""
    outcomes: list[ApiError | None] = []
    partition = stage.leader()
    start = partition.log.delete_records(Offset(before))
    partition.log_start_moved()
    partition.when_deleted(start, outcomes.append, timeout_ms)
    return outcomes


def stage_with_records(min_insync_replicas: str = "1") -> Stage:
    stage = Stage()
    stage.create(1, 2, 3, min_insync_replicas=min_insync_replicas)
    stage.append("a", "b", "c")
    stage.run(2_000)
    return stage


def test_a_deletion_is_done_when_the_followers_in_sync_start_there_and_does_not_wait_for_a_long_poll() -> (
    None
):
    stage = stage_with_records()

    outcomes = delete(stage, 2)
    assert outcomes == []
    stage.run(30)

    assert outcomes == [None]
    assert [stage.log(node).start for node in (1, 2, 3)] == [2, 2, 2]
    assert stage.leader().isr.assignment.isr == (1, 2, 3)


def test_a_deletion_that_a_follower_does_not_hear_of_times_out() -> None:
    stage = stage_with_records()
    stage.world.network.cut("n1", "n3")

    outcomes = delete(stage, 2, timeout_ms=500)
    stage.run(1_000)

    assert [outcome.kind if outcome is not None else None for outcome in outcomes] == [ErrorKind.TIMED_OUT]


def test_a_deletion_does_not_wait_for_a_follower_that_has_left_the_isr() -> None:
    stage = stage_with_records()
    stage.world.network.cut("n1", "n3")
    stage.world.network.cut("n3", "n1")

    outcomes = delete(stage, 2, timeout_ms=20_000)
    stage.append("d")
    stage.run(8_000)

    assert outcomes == [None]
    assert 3 not in stage.leader().isr.assignment.isr


def test_a_leader_that_is_stopped_leaves_no_deletion_waiting() -> None:
    stage = stage_with_records()

    outcomes = delete(stage, 2)
    stage.leader().stop("moved", wanted=True)

    assert [outcome.kind if outcome is not None else None for outcome in outcomes] == [ErrorKind.NOT_LEADER]


def test_a_follower_whose_own_retention_was_faster_is_not_waited_for() -> None:
    stage = stage_with_records()
    stage.log(3).delete_records(Offset(2))

    outcomes = delete(stage, 2)
    stage.run(30)

    assert outcomes == [None]


def test_a_deletion_waits_while_replicas_are_eligible_that_are_not_in_sync() -> None:
    """One of them may lead next, and has not heard of it."""
    stage = stage_with_records(min_insync_replicas="3")
    stage.world.network.cut("n1", "n3")
    stage.world.network.cut("n3", "n1")
    stage.append("d")
    stage.run(8_000)
    assert stage.leader().isr.assignment.isr == (1, 2)

    outcomes = delete(stage, 2, timeout_ms=60_000)
    stage.run(1_000)
    assert outcomes == []
    stage.world.network.heal_all()
    stage.run(5_000)

    assert outcomes == [None]
    assert [stage.log(node).start for node in (1, 2, 3)] == [2, 2, 2]
