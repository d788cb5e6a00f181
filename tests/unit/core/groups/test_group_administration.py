"""Listing, describing and deleting groups."""

from penstock.core.groups import (
    DeleteGroup,
    DescribedGroup,
    DescribedMember,
    GroupOk,
    GroupState,
    GroupType,
    LeavingMember,
    ListedGroup,
    ListedGroups,
    ListGroups,
)
from penstock.core.model import ErrorKind
from tests.unit.core.groups.group_driver import (
    DELAY_MS,
    GROUP,
    Driver,
    ignore,
    kind_of,
    position,
    subscription,
)


def listed(driver: Driver, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
    reply = driver.ask(ListGroups(on_reply=ignore, states=states, types=types))
    assert isinstance(reply, ListedGroups)
    return [group.group_id for group in reply.groups]


def several_groups() -> Driver:
    driver = Driver()
    driver.stable_group(1)
    driver.commit(position(1), group_id="a-simple-one")
    driver.join(group_id="starting", member_id_required=False)
    return driver


def test_groups_are_listed_with_state_and_type() -> None:
    reply = several_groups().ask(ListGroups(on_reply=ignore))

    assert reply == ListedGroups(
        (
            ListedGroup("a-simple-one", "", GroupState.EMPTY, GroupType.CLASSIC),
            ListedGroup(GROUP, "consumer", GroupState.STABLE, GroupType.CLASSIC),
            ListedGroup("starting", "consumer", GroupState.PREPARING_REBALANCE, GroupType.CLASSIC),
        )
    )


def test_listings_are_filtered_by_state_and_type_whatever_the_case() -> None:
    driver = several_groups()

    assert listed(driver, states=("stable", "EMPTY")) == ["a-simple-one", GROUP]
    assert listed(driver, types=("Classic",)) == ["a-simple-one", GROUP, "starting"]
    assert listed(driver, types=("consumer",)) == []
    assert listed(driver, states=("no such state",)) == []


def test_groups_that_were_not_touched_since_a_failover_are_listed_as_stored() -> None:
    before = several_groups()

    after = before.failed_over()

    assert after.ask(ListGroups(on_reply=ignore)) == ListedGroups(
        (
            ListedGroup("a-simple-one", "", GroupState.EMPTY, GroupType.CLASSIC),
            ListedGroup(GROUP, "consumer", GroupState.STABLE, GroupType.CLASSIC),
        )
    )


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]

    described = driver.describe()

    assert described == DescribedGroup(
        GROUP,
        GroupState.STABLE,
        GroupType.CLASSIC,
        "consumer",
        "range",
        (DescribedMember(member, None, "c", "/127.0.0.1", subscription("t"), member.encode()),),
    )


def test_a_rebalancing_group_is_described_without_protocol_and_metadata() -> None:
    driver = Driver()
    leader, follower = driver.stable_group(2)
    driver.join(leader)

    described = driver.describe()

    assert (described.state, described.protocol) == (GroupState.PREPARING_REBALANCE, "")
    assert [m.metadata for m in described.members] == [b"", b""]
    assert [m.assignment for m in described.members] == [leader.encode(), follower.encode()]


def test_a_group_nobody_knows_is_described_as_dead() -> None:
    described = Driver().describe("unknown")

    assert described == DescribedGroup("unknown", GroupState.DEAD, GroupType.CLASSIC, "", "", ())


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]
    driver.commit(position(1), position(2, partition=1), member_id=member, generation=1)
    driver.leave(LeavingMember(member))

    assert driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP)) == GroupOk()

    assert driver.state() is GroupState.DEAD
    assert driver.coordinator.image == Driver().coordinator.image
    assert driver.failed_over().state() is GroupState.DEAD


def test_a_group_with_members_is_not_deleted() -> None:
    driver = Driver()
    driver.join_new()
    assert kind_of(driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP))) is ErrorKind.GROUP_NOT_EMPTY
    driver.advance(DELAY_MS)

    assert kind_of(driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP))) is ErrorKind.GROUP_NOT_EMPTY


def test_a_group_nobody_knows_cannot_be_deleted() -> None:
    assert kind_of(Driver().ask(DeleteGroup(on_reply=ignore, group_id="unknown"))) is ErrorKind.UNKNOWN_GROUP


def test_ids_given_out_by_a_deleted_group_are_worth_nothing() -> None:
    driver = Driver()
    driver.join(random_id="x")

    driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP))

    assert driver.kind_of(driver.join("c-x")) is ErrorKind.UNKNOWN_MEMBER


def test_generations_go_on_after_a_group_was_empty() -> None:
    driver = Driver()
    member = driver.stable_group(1)[0]
    driver.leave(LeavingMember(member))

    _, ticket = driver.join_new()
    driver.advance(DELAY_MS)

    assert driver.joined(ticket).generation == 3
