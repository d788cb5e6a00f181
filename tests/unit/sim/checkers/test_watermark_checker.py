"""Who leads, and how far, may only ever go one way."""

from penstock.sim.checkers.watermarks import WatermarkChecker

PLACE = ("orders", 0)


def kinds(checker: WatermarkChecker) -> list[str]:
    return [anomaly.partition(":")[0] for anomaly in checker.anomalies]


def test_a_partition_that_goes_from_leader_to_leader_is_in_order() -> None:
    checker = WatermarkChecker()

    checker.led(PLACE, 0, 1, 0)
    checker.showed(PLACE, 0, 1, 5)
    checker.acknowledged(PLACE, 5)
    checker.led(PLACE, 1, 2, 8)
    checker.showed(PLACE, 1, 2, 3)  # not yet at the start of its epoch
    checker.told_end(PLACE, 1, 2, 8)
    checker.showed(PLACE, 0, 1, 5)  # the old one has not noticed
    checker.led(PLACE, 2, 1, 8)

    assert checker.anomalies == []


def test_two_leaders_in_one_epoch_are_noticed() -> None:
    checker = WatermarkChecker()
    checker.led(PLACE, 3, 1, 0)

    checker.led(PLACE, 3, 2, 0)

    assert kinds(checker) == ["two leaders"]


def test_a_high_watermark_never_goes_back_within_an_epoch() -> None:
    checker = WatermarkChecker()
    checker.showed(PLACE, 0, 1, 5)

    checker.showed(PLACE, 0, 1, 4)

    assert kinds(checker) == ["high watermark went back"]


def test_a_leader_has_all_that_earlier_ones_have_shown() -> None:
    checker = WatermarkChecker()
    checker.led(PLACE, 0, 1, 0)
    checker.showed(PLACE, 0, 1, 5)

    checker.led(PLACE, 1, 2, 4)

    assert kinds(checker) == ["leader lacks records"]


def test_a_leader_has_all_that_was_acknowledged() -> None:
    checker = WatermarkChecker()
    checker.led(PLACE, 0, 1, 0)
    checker.acknowledged(PLACE, 5)

    checker.led(PLACE, 1, 2, 4)

    assert kinds(checker) == ["leader lacks records"]


def test_a_node_that_reads_of_an_old_epoch_late_need_not_have_what_came_after_it() -> None:
    checker = WatermarkChecker()
    checker.led(PLACE, 0, 1, 0)
    checker.acknowledged(PLACE, 5)
    # Epoch 1 was node 3's, which was cut off.
    checker.led(PLACE, 2, 2, 5)
    checker.acknowledged(PLACE, 9)

    checker.led(PLACE, 1, 3, 5)
    assert checker.anomalies == []

    checker.led(PLACE, 3, 3, 8)
    assert kinds(checker) == ["leader lacks records"]


def test_nobody_is_told_an_end_below_what_was_visible_before() -> None:
    checker = WatermarkChecker()
    checker.showed(PLACE, 0, 1, 5)
    checker.led(PLACE, 1, 2, 9)

    checker.told_end(PLACE, 1, 2, 3)

    assert kinds(checker) == ["stale end"]
