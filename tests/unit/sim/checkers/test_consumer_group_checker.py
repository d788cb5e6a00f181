"""What the checker of consumer groups notices, and what it lets pass."""

from penstock.sim.checkers.consumer_groups import ConsumerGroupChecker

GROUP, FIRST, SECOND = "group", "first", "second"
ORDERS = ("orders", 0)


def has(checker: ConsumerGroupChecker, member: str, *, now: int, until: int = 100) -> None:
    checker.has(GROUP, member, [ORDERS], now=now, until=until)


def kinds(checker: ConsumerGroupChecker) -> list[str]:
    return [anomaly.partition(":")[0] for anomaly in checker.anomalies]


def test_a_partition_that_was_not_given_up_has_two_owners() -> None:
    checker = ConsumerGroupChecker()

    has(checker, FIRST, now=1)
    has(checker, SECOND, now=2)

    assert kinds(checker) == ["two owners"]
    assert checker.owners(GROUP, ORDERS, 3) == [FIRST, SECOND]


def test_a_partition_may_be_given_on_when_its_owner_has_sent_that_it_gave_it_up() -> None:
    checker = ConsumerGroupChecker()

    has(checker, FIRST, now=1)
    checker.keeps(GROUP, FIRST, [("orders", 1)])
    has(checker, SECOND, now=2)

    assert checker.anomalies == []
    assert checker.owners(GROUP, ORDERS, 3) == [SECOND]
    assert checker.revocations == 1


def test_a_partition_may_be_given_on_when_the_session_of_its_owner_has_ended_or_it_is_gone() -> None:
    checker = ConsumerGroupChecker()

    has(checker, FIRST, now=1, until=10)
    has(checker, SECOND, now=10, until=30)
    checker.gone(GROUP, SECOND)
    has(checker, "third", now=20)

    assert checker.anomalies == []


def test_a_session_that_goes_on_makes_its_member_an_owner_again() -> None:
    checker = ConsumerGroupChecker()

    has(checker, FIRST, now=1, until=10)
    has(checker, SECOND, now=11)
    has(checker, FIRST, now=12)

    assert kinds(checker) == ["two owners"]


def test_epochs_of_a_member_and_of_its_group_never_go_back() -> None:
    checker = ConsumerGroupChecker()
    checker.joined(checker.joining(GROUP, FIRST), 3)
    checker.told(GROUP, FIRST, 5)

    checker.heard(GROUP, FIRST, 5)
    checker.heard(GROUP, FIRST, 4)
    checker.joined(checker.joining(GROUP, SECOND), 4)

    assert kinds(checker) == ["epoch went back"] * 2


def test_whoever_joined_before_a_newer_epoch_was_told_may_be_below_it() -> None:
    checker = ConsumerGroupChecker()

    attempt = checker.joining(GROUP, SECOND)
    checker.told(GROUP, FIRST, 5)
    checker.joined(attempt, 4)

    assert checker.anomalies == []


def test_commits_of_epochs_that_are_over_must_be_refused() -> None:
    checker = ConsumerGroupChecker()
    checker.told(GROUP, FIRST, 3)
    in_time = checker.sending(GROUP, FIRST, 3)
    checker.told(GROUP, FIRST, 4)
    late = checker.sending(GROUP, FIRST, 3)

    checker.committed(in_time)
    assert checker.anomalies == []

    assert late.is_stale_commit
    checker.committed(late)
    assert kinds(checker) == ["stale commit"]


def test_commits_of_members_that_were_removed_must_be_refused_until_they_join_again() -> None:
    checker = ConsumerGroupChecker()
    checker.told(GROUP, FIRST, 3)
    checker.removed(GROUP, FIRST)

    checker.committed(checker.sending(GROUP, FIRST, 3))
    assert kinds(checker) == ["removed member"]

    checker.joining(GROUP, FIRST)
    assert not checker.sending(GROUP, FIRST, 3).is_stale_commit


def test_a_heartbeat_may_be_behind_by_one_epoch_and_not_by_two() -> None:
    checker = ConsumerGroupChecker()
    for epoch in (3, 4):
        checker.told(GROUP, FIRST, epoch)

    checker.beat(checker.sending(GROUP, FIRST, 3))
    assert checker.anomalies == []

    checker.told(GROUP, FIRST, 5)
    checker.beat(checker.sending(GROUP, FIRST, 3))
    assert kinds(checker) == ["stale heartbeat"]


def test_an_instance_id_is_taken_only_from_a_member_that_is_not_alive() -> None:
    checker = ConsumerGroupChecker()
    has(checker, FIRST, now=1, until=10)

    checker.replaced(GROUP, FIRST, now=10)
    assert checker.anomalies == []

    checker.replaced(GROUP, FIRST, now=9)
    assert kinds(checker) == ["two instances"]
