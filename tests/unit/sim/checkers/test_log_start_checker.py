"""Deletions from the front of a partition: as much as was asked for, and for good."""

from penstock.sim.checkers.log_start import LogStartChecker


def checker_with_a_deletion() -> LogStartChecker:
    checker = LogStartChecker()
    checker.asking("orders", 40)
    checker.started("orders", {1: 40, 2: 40, 3: 0}, (1, 2))
    checker.acknowledged("orders", 40, {1: 40, 2: 40})
    return checker


def test_replicas_that_start_where_they_were_asked_to_are_no_anomaly() -> None:
    checker = checker_with_a_deletion()

    checker.started("orders", {1: 40, 2: 40, 3: 25}, (1, 2))

    assert checker.anomalies == []
    assert checker.deletable("orders") == 40


def test_a_log_that_starts_behind_what_was_asked_for_is_an_anomaly() -> None:
    checker = checker_with_a_deletion()

    checker.started("orders", {1: 41}, (1, 2))

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["deleted too much"]


def test_a_deletion_that_a_replica_in_sync_has_not_heard_of_is_an_anomaly() -> None:
    checker = LogStartChecker()
    checker.asking("orders", 40)

    checker.acknowledged("orders", 40, {1: 40, 2: 0})

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["deletion not shared"]


def test_a_deletion_that_a_replica_in_sync_forgets_is_an_anomaly() -> None:
    checker = checker_with_a_deletion()

    checker.started("orders", {2: 0}, (1, 2))

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == [
        "start went back",
        "deletion forgotten",
    ]


def test_a_replica_that_was_out_of_sync_may_not_have_heard_of_a_deletion() -> None:
    checker = checker_with_a_deletion()

    checker.started("orders", {3: 0}, (1, 2, 3))

    assert checker.anomalies == []


def test_a_node_whose_files_were_damaged_may_begin_anew() -> None:
    checker = checker_with_a_deletion()

    checker.forget("orders", 2)
    checker.started("orders", {2: 0}, (1, 2))

    assert checker.anomalies == []


def test_retention_may_take_what_leaves_enough_and_the_other_replicas_may_follow() -> None:
    checker = LogStartChecker(retention_bytes=1_000)

    checker.retained("orders", 1, start=30, high_watermark=50, size_bytes=1_000)
    checker.started("orders", {1: 30, 2: 30}, (1, 2))
    checker.retained("orders", 1, start=31, high_watermark=50, size_bytes=999)
    checker.started("orders", {1: 31}, (1, 2))

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["deleted too much"]


def test_a_log_that_starts_behind_its_high_watermark_is_an_anomaly() -> None:
    checker = LogStartChecker(retention_bytes=1_000)

    checker.retained("orders", 1, start=30, high_watermark=29, size_bytes=2_000)

    assert [anomaly.partition(":")[0] for anomaly in checker.anomalies] == ["deleted uncommitted"]
