"""What members of share groups say of themselves: counted by host, refused without room."""

from collections.abc import Callable
from dataclasses import replace

from penstock.core.groups import DeleteGroup, GroupOk, GroupOptions
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import Topics
from tests.unit.core.groups.group_driver import GROUP, ignore, kind_of
from tests.unit.core.groups.test_share_group import OPTIONS, ShareDriver

FIRST, SECOND = "/10.0.0.1", "/10.0.0.2"
MANY = tuple([f"topic-{number:04}" for number in range(1_000)])


def options(has_room: Callable[[int], bool]) -> GroupOptions:
    return replace(OPTIONS, has_share_room=lambda _, size: has_room(size))


def test_a_member_counts_for_its_host_with_its_names_until_it_leaves() -> None:
    driver = ShareDriver()
    held = driver.coordinator.held

    driver.enter("a", client_host=FIRST)
    little = held.total
    driver.enter("b", client_host=SECOND, topics=MANY)
    many = held.of(SECOND)
    driver.beat("b", -1, client_host=SECOND)

    assert 1_000 < little < 6_000
    assert 50_000 < many < 100_000
    assert held.total == held.of(FIRST) < 7_000


def test_what_was_loaded_from_the_log_counts_as_it_did() -> None:
    driver = ShareDriver(topics=Topics(t=1_000))
    driver.enter("a", client_host=FIRST)
    driver.enter("b", client_host=SECOND, topics=MANY)
    held, again = driver.coordinator.held, driver.failed_over().coordinator.held

    assert held.of(FIRST) > 50_000
    assert (again.total, again.of(FIRST), again.of(SECOND)) == (held.total, held.of(FIRST), held.of(SECOND))


def test_nothing_counts_of_a_group_that_was_deleted() -> None:
    driver = ShareDriver()
    driver.enter("a", client_host=FIRST)
    driver.enter("b", client_host=SECOND, topics=MANY)
    driver.beat("a", -1)
    driver.beat("b", -1)
    assert driver.coordinator.held.of(FIRST) > 0

    assert driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP)) == GroupOk()

    held = driver.coordinator.held
    assert (held.total, held.of(FIRST), held.of(SECOND)) == (0, 0, 0)
    assert driver.coordinator.size() == 0


def test_without_room_nobody_joins_and_members_go_on_with_little() -> None:
    room = [100_000]
    driver = ShareDriver(options(lambda size: size <= room[0]))
    driver.enter("a")
    large = driver.enter("b", topics=MANY)
    room[0] = 0

    assert kind_of(driver.beat("c", 0)) is ErrorKind.GROUP_FULL
    assert kind_of(driver.beat("c", 0, group_id="another")) is ErrorKind.GROUP_FULL
    small = driver.enter("a", topics=("t", "u"))
    assert kind_of(driver.beat("a", small.epoch, topics=MANY)) is ErrorKind.GROUP_FULL
    driver.beat("b", large.epoch, topics=MANY[:900])
    topics = {member.member_id: member.topics for member in driver.described().members}
    assert topics == {"a": ("t", "u"), "b": MANY[:900]}


def test_a_group_that_never_had_a_queue_is_deleted_when_its_members_are_gone() -> None:
    driver = ShareDriver()
    driver.enter("a", topics=("nowhere",))
    driver.beat("a", -1)
    assert driver.coordinator.image.knows(GROUP)

    driver.advance(OPTIONS.offsets_retention_check_interval_ms)

    assert not driver.coordinator.image.knows(GROUP)
    assert (driver.coordinator.held.total, driver.coordinator.size()) == (0, 0)


def test_many_groups_that_never_had_a_queue_are_not_kept_for_long() -> None:
    driver = ShareDriver(replace(OPTIONS, emptied_bytes_max=20_000))
    driver.enter("a")
    for number in range(50):
        driver.enter("a", group_id=f"group-{number}", topics=("nowhere",))
        driver.beat("a", -1, group_id=f"group-{number}")
        driver.advance(0)

    groups = driver.coordinator.group_ids()
    assert GROUP in groups
    assert "group-49" in groups
    assert len(groups) < 15


def test_a_group_with_members_that_wait_for_a_topic_is_kept() -> None:
    driver = ShareDriver(replace(OPTIONS, emptied_bytes_max=0))
    driver.enter("a", topics=("nowhere",))
    driver.beat("a", -1)
    reply = driver.enter("b", topics=("nowhere",))

    driver.advance(1_000)

    assert driver.beat("b", reply.epoch).epoch == reply.epoch
