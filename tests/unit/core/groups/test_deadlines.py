"""One entry per group: visits are planned early rather than late, and never lost."""

from penstock.core.groups.classic_group import ClassicGroup, GivenId
from penstock.core.groups.outcome import STALE_CHECKS_MAX, GroupDeadlines
from penstock.core.model import Instant


def test_visits_come_in_the_order_of_their_moments() -> None:
    deadlines = GroupDeadlines()
    for group_id, at in [("b", 20), ("a", 30), ("c", 10)]:
        deadlines.arm(group_id, Instant(at))

    order = [deadlines.pop(Instant(100)) for _ in range(4)]

    assert order == ["c", "b", "a", None]


def test_an_earlier_moment_overtakes_and_a_later_one_is_left_to_the_visit() -> None:
    deadlines = GroupDeadlines()
    deadlines.arm("g", Instant(20))

    deadlines.arm("g", Instant(30))
    assert deadlines.next() == 20
    deadlines.arm("g", Instant(10))

    assert deadlines.next() == 10
    assert deadlines.pop(Instant(25)) == "g"
    assert deadlines.pop(Instant(25)) is None
    assert deadlines.next() is None


def test_nothing_is_due_early() -> None:
    deadlines = GroupDeadlines()
    deadlines.arm("g", Instant(20))

    assert deadlines.pop(Instant(19)) is None
    assert deadlines.pop(Instant(20)) == "g"


def test_heartbeats_do_not_grow_the_plan() -> None:
    deadlines = GroupDeadlines()

    for at in range(20, 10_000):
        deadlines.arm("g", Instant(at))

    assert deadlines.pop(Instant(20)) == "g"
    assert deadlines.next() is None


def test_a_group_comes_back_for_the_earliest_of_everything_it_waits_for() -> None:
    group = ClassicGroup("g")
    assert group.earliest_deadline() is None

    group.give_id("given-out", GivenId(Instant(40), "/127.0.0.1"))
    assert group.earliest_deadline() == 40
    group.sync_deadline = Instant(30)
    assert group.earliest_deadline() == 30
    group.join_deadline = Instant(20)

    assert group.earliest_deadline() == 20


def test_checks_of_groups_that_are_gone_are_dropped_with_their_ids() -> None:
    deadlines = GroupDeadlines()
    for number in range(10_000):
        deadlines.arm(f"group-{number}", Instant(1_000 + number))
        deadlines.disarm(f"group-{number}")
    deadlines.arm("last", Instant(5_000))

    assert len(deadlines._heap) <= STALE_CHECKS_MAX + 2
    assert (deadlines.next(), deadlines.pop(Instant(5_000)), deadlines.next()) == (5_000, "last", None)
