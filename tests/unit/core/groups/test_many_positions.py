"""Positions by the thousand are deleted in turns, whatever deletes them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from penstock.core.groups import (
    DeleteGroup,
    Fact,
    ForgetTopics,
    GroupOk,
    GroupOptions,
    GroupOutcome,
    LeavingMember,
)
from penstock.core.groups.offsets import FACTS_PER_TURN_MAX
from penstock.core.model import TopicName
from tests.unit.core.groups.consumer_driver import Topics
from tests.unit.core.groups.group_driver import GROUP, OPTIONS, Driver, ignore, position

COUNT = 3_000
FORGET = ForgetTopics(on_reply=ignore, topics=frozenset({TopicName("t")}))


class CountingDriver(Driver):
    """Notes the largest number of facts of a turn."""

    def __init__(
        self, options: GroupOptions = OPTIONS, facts: Iterable[Fact] = (), now_ms: int = 0, topics: Any = None
    ) -> None:
        self.facts_max = 0
        super().__init__(options, facts, now_ms, topics)

    def _take(self, outcome: GroupOutcome) -> None:
        self.facts_max = max(self.facts_max, len(outcome.facts))
        super()._take(outcome)


def with_positions(driver: CountingDriver, topic: str = "t", **fields: Any) -> CountingDriver:
    for partition in range(COUNT):
        driver.commit(position(7, topic, partition), **fields)
    driver.facts_max = 0
    return driver


def test_a_group_with_thousands_of_positions_is_deleted_in_turns_and_then_there_is_a_reply() -> None:
    driver = with_positions(CountingDriver())

    ticket = driver.send(DeleteGroup(on_reply=ignore, group_id=GROUP))
    assert ticket not in driver.answers
    driver.advance(0)

    assert driver.answers[ticket] == GroupOk()
    assert driver.facts_max <= FACTS_PER_TURN_MAX + 1
    assert driver.coordinator.image == Driver().coordinator.image
    assert driver.failed_over().coordinator.image == driver.coordinator.image


def test_what_is_committed_while_a_group_is_deleted_stays() -> None:
    driver = with_positions(CountingDriver())

    driver.send(DeleteGroup(on_reply=ignore, group_id=GROUP))
    driver.commit(position(8, "t", COUNT - 1), position(8, "t", 0), position(8, "u", 0))
    driver.advance(0)

    left = {
        (each.partition.topic, each.partition.partition)
        for each in driver.coordinator.image.offsets[GROUP].values()
    }
    assert left == {("t", COUNT - 1), ("t", 0), ("u", 0)}


def test_a_second_deletion_waits_for_the_first() -> None:
    driver = with_positions(CountingDriver())
    driver.commit(position(1), group_id="other")

    first = driver.send(DeleteGroup(on_reply=ignore, group_id=GROUP))
    second = driver.send(DeleteGroup(on_reply=ignore, group_id="other"))
    again = driver.send(DeleteGroup(on_reply=ignore, group_id=GROUP))
    driver.advance(0)

    assert [driver.answers[each] for each in (first, second, again)] == [GroupOk()] * 3
    assert driver.coordinator.image.positions == 0


def test_positions_in_a_deleted_topic_are_forgotten_in_turns() -> None:
    driver = with_positions(CountingDriver())
    driver.commit(position(1), position(1, "kept"), group_id="other")

    driver.ask(FORGET)
    driver.advance(0)

    assert driver.facts_max <= FACTS_PER_TURN_MAX
    assert driver.coordinator.image.positions == 1
    assert driver.coordinator.image.topics == {"kept": {"other": 1}}


def test_positions_in_a_topic_that_was_made_again_meanwhile_stay() -> None:
    topics = Topics(t=COUNT)
    driver = with_positions(CountingDriver(topics=topics))

    del topics.topics["t"]
    driver.ask(FORGET)
    made = topics.put("t", COUNT)
    new = position(9, "t", COUNT - 1)._replace(topic_id=made.id)
    driver.commit(new, group_id="new")
    driver.commit(new)
    driver.advance(0)

    assert driver.coordinator.image.topics == {"t": {"new": 1, GROUP: 1}}
    assert driver.committed("t", COUNT - 1) == 9


def test_positions_expire_in_turns() -> None:
    options = replace(OPTIONS, offsets_retention_ms=1_000, offsets_retention_check_interval_ms=60_000)
    driver = with_positions(CountingDriver(options))
    member = driver.stable_group(1)[0]
    driver.leave(LeavingMember(member))
    driver.facts_max = 0

    driver.advance(60_000)
    assert driver.coordinator.image.positions == 0
    driver.advance(60_000)

    assert driver.facts_max <= FACTS_PER_TURN_MAX
    assert driver.coordinator.image == Driver().coordinator.image


def test_groups_with_a_few_expired_positions_each_share_a_turn() -> None:
    options = replace(OPTIONS, offsets_retention_ms=1_000, offsets_retention_check_interval_ms=60_000)
    driver = CountingDriver(options)
    for number in range(30):
        driver.commit(*[position(1, "t", each) for each in range(200)], group_id=f"g{number}")
    driver.facts_max = 0

    driver.advance(120_000)

    assert driver.facts_max <= FACTS_PER_TURN_MAX + 200
    assert driver.coordinator.image.positions == 0
