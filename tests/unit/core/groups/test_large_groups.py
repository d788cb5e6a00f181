"""What happens to very many members at once takes turns, and a few lines of the log."""

from dataclasses import replace
from typing import Any

from penstock.core.groups import (
    GroupOptions,
    GroupOutcome,
    GroupState,
    LeavingMember,
    MemberRemoved,
    MembersRemoved,
)
from penstock.core.groups.outcome import REMOVALS_NAMED_MAX
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import CONSUMER_OPTIONS, SESSION_MS, ConsumerDriver
from tests.unit.core.groups.group_driver import DELAY_MS, GROUP, OPTIONS, REBALANCE_MS, Driver, kind_of

COUNT = 600


class Steps:
    """Notes what each step of a coordinator has led to."""

    def __init__(self, driver: Driver) -> None:
        self.outcomes: list[GroupOutcome] = []
        take = driver._take

        def noted(outcome: GroupOutcome) -> None:
            self.outcomes.append(outcome)
            take(outcome)

        driver._take = noted  # type: ignore[method-assign]

    def removed(self) -> list[int]:
        """How many members each step has removed."""
        return [count for count in map(_removed, self.outcomes) if count]

    def events_max(self) -> int:
        return max([len(outcome.events) for outcome in self.outcomes])

    def facts_max(self) -> int:
        return max([len(outcome.facts) for outcome in self.outcomes])


def _removed(outcome: GroupOutcome) -> int:
    folded = [event.members for event in outcome.events if isinstance(event, MembersRemoved)]
    return sum(folded) + sum([isinstance(event, MemberRemoved) for event in outcome.events])


def large_group(**fields: Any) -> tuple[Driver, list[str]]:
    driver = Driver(GroupOptions(initial_rebalance_delay_ms=DELAY_MS))
    return driver, driver.stable_group(COUNT, **fields)


def test_members_that_leave_together_are_reported_by_a_few_names_and_a_number() -> None:
    driver, members = large_group()
    steps = Steps(driver)

    driver.leave(*[LeavingMember(each, reason="scaled down") for each in members])

    assert steps.removed() == [COUNT]
    assert steps.events_max() <= REMOVALS_NAMED_MAX + 2
    assert MembersRemoved(GROUP, COUNT - REMOVALS_NAMED_MAX, "left: scaled down") in driver.events


def test_sessions_of_a_classic_group_that_end_together_end_in_turns() -> None:
    driver, _ = large_group()
    steps = Steps(driver)

    driver.advance(REBALANCE_MS)

    assert sum(steps.removed()) == COUNT
    assert max(steps.removed()) <= OPTIONS.members_expired_per_turn_max
    assert steps.events_max() <= REMOVALS_NAMED_MAX + 2
    assert driver.state() is GroupState.EMPTY


def test_sessions_of_a_consumer_group_that_end_together_end_in_turns() -> None:
    driver = ConsumerDriver(CONSUMER_OPTIONS)
    for number in range(COUNT):
        driver.beat(f"m{number}", 0)
    steps = Steps(driver)

    driver.advance(SESSION_MS)

    assert sum(steps.removed()) == COUNT
    assert max(steps.removed()) <= OPTIONS.members_expired_per_turn_max
    assert steps.facts_max() <= 3 * OPTIONS.members_expired_per_turn_max + 1
    assert driver.described().state is GroupState.EMPTY
    assert driver.failed_over().coordinator.image == driver.coordinator.image


def test_members_that_no_record_has_room_for_are_refused_and_those_that_are_there_go_on() -> None:
    driver = Driver(replace(OPTIONS, record_bytes_max=1_000))
    tickets = [driver.join(member_id_required=False) for _ in range(30)]

    refused = [ticket for ticket in tickets if ticket in driver.answers]
    while tickets[0] not in driver.answers:
        driver.advance(1_000)
    joined = driver.joined(tickets[0])
    again = driver.join(joined.member_id)

    assert {kind_of(driver.answers[ticket]) for ticket in refused} == {ErrorKind.GROUP_FULL}
    assert 5 < len(refused) < 10
    assert again not in driver.answers or driver.joined(again).generation == joined.generation
