"""Share groups (KIP-932): joining, epochs, sharing of partitions, sessions and what is stored."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.groups import (
    CommitOffsets,
    ConsumerGroupHeartbeat,
    ConsumerGroupTimeouts,
    ConsumerHeartbeatResult,
    DeleteGroup,
    DescribedShareGroup,
    DescribeShareGroup,
    Fact,
    FetchOffsets,
    GroupCoordinator,
    GroupOk,
    GroupOptions,
    GroupState,
    GroupType,
    ListedGroups,
    ListGroups,
    MemberRemoved,
    ReloadTopics,
    ShareGroupHeartbeat,
    ShareGroupOptions,
)
from penstock.core.model import ApiError, ErrorKind, TopicName
from tests.unit.core.groups.consumer_driver import Topics
from tests.unit.core.groups.group_driver import GROUP, Driver, ignore, kind_of, position

SESSION_MS, HEARTBEAT_MS = 45_000, 5_000


def timeouts(_: str) -> ConsumerGroupTimeouts:
    return ConsumerGroupTimeouts(SESSION_MS, HEARTBEAT_MS)


OPTIONS = GroupOptions(share=ShareGroupOptions(members_max=10, timeouts=timeouts))


class ShareDriver(Driver):
    """A host whose groups share topics."""

    def __init__(
        self, options: GroupOptions = OPTIONS, facts: Iterable[Fact] = (), now_ms: int = 0, topics: Any = None
    ) -> None:
        self.cluster: Topics = Topics(t=4) if topics is None else topics
        super().__init__(options, facts, now_ms, self.cluster)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        given: dict[str, Any] = {"on_reply": ignore, "group_id": GROUP, "client_id": "c"}
        if epoch == 0:
            given["topics"] = ("t",)
        return self.ask(ShareGroupHeartbeat(**(given | fields), member_id=member_id, epoch=epoch))

    def enter(self, member_id: str, **fields: Any) -> ConsumerHeartbeatResult:
        reply = self.beat(member_id, 0, **fields)
        assert isinstance(reply, ConsumerHeartbeatResult), reply
        return reply

    def described(self) -> DescribedShareGroup:
        reply = self.ask(DescribeShareGroup(on_reply=ignore, group_id=GROUP))
        assert isinstance(reply, DescribedShareGroup), reply
        return reply

    def consumed(self) -> dict[str, list[tuple[str, int]]]:
        """Let every member send a heartbeat; returns what each consumes then."""
        for member in self.described().members:
            self.beat(member.member_id, member.epoch)
        return {
            member.member_id: sorted(
                (self.cluster.name_of(topic_id) or "", index)
                for topic_id, indexes in member.assignment.items()
                for index in indexes
            )
            for member in self.described().members
        }


def test_the_first_member_gets_every_partition_with_its_join() -> None:
    driver = ShareDriver()

    reply = driver.enter("a")

    assert (reply.member_id, reply.epoch, reply.heartbeat_interval_ms) == ("a", 1, HEARTBEAT_MS)
    assert driver.consumed() == {"a": [("t", 0), ("t", 1), ("t", 2), ("t", 3)]}
    assert (driver.described().state, driver.described().assignor) == (GroupState.STABLE, "simple")


def test_a_heartbeat_without_news_writes_nothing_and_says_nothing_but_the_epoch() -> None:
    driver = ShareDriver()
    driver.enter("a")
    facts = len(driver.facts)

    reply = driver.beat("a", 1)

    assert (reply.epoch, reply.assignment) == (1, None)
    assert len(driver.facts) == facts


def test_partitions_are_spread_evenly_and_shared_when_there_are_more_members() -> None:
    driver = ShareDriver()
    for name in "ab":
        driver.enter(name)
    assert sorted(map(len, driver.consumed().values())) == [2, 2]

    for name in "cdefgh":
        driver.enter(name)
    consumed = driver.consumed()

    assert all(len(partitions) == 1 for partitions in consumed.values())
    everything = [partition for partitions in consumed.values() for partition in partitions]
    assert [everything.count(("t", index)) for index in range(4)] == [2, 2, 2, 2]


def test_members_keep_the_partitions_that_they_share_when_others_come_and_go() -> None:
    driver = ShareDriver(topics=Topics(t=2))
    for name in "abcdef":
        driver.enter(name)
    before = driver.consumed()

    driver.beat("d", -1)
    after = driver.consumed()

    assert after == {name: before[name] for name in after}
    driver.enter("aa")
    assert {name: driver.consumed()[name] for name in after} == after


def test_a_member_with_other_topics_shares_none_of_those_it_does_not_subscribe_to() -> None:
    driver = ShareDriver(topics=Topics(t=1, u=1))
    driver.enter("a")
    driver.enter("b")
    driver.enter("c", topics=("u",))

    assert driver.consumed() == {"a": [("t", 0)], "b": [("t", 0)], "c": [("u", 0)]}
    driver.beat("b", driver.described().members[1].epoch, topics=("u",))
    assert driver.consumed() == {"a": [("t", 0)], "b": [("u", 0)], "c": [("u", 0)]}


def test_a_topic_that_grows_or_appears_is_assigned_with_the_next_heartbeat() -> None:
    driver = ShareDriver()
    driver.enter("a", topics=("t", "later"))

    driver.cluster.put("later", 1)
    driver.ask(ReloadTopics(on_reply=ignore, topics=(TopicName("later"),)))
    reply = driver.beat("a", 1)

    assert reply.epoch == 2
    assert driver.consumed()["a"][0] == ("later", 0)


def test_a_response_that_was_lost_does_no_harm_and_an_older_epoch_is_fenced() -> None:
    driver = ShareDriver()
    driver.enter("a")
    driver.enter("b")
    assert driver.beat("a", 1).epoch == 2

    assert driver.beat("a", 1).assignment is not None
    driver.enter("c")
    driver.beat("a", 2)

    assert kind_of(driver.beat("a", 1)) is ErrorKind.FENCED_MEMBER_EPOCH
    assert kind_of(driver.beat("a", 9)) is ErrorKind.FENCED_MEMBER_EPOCH
    assert driver.beat("a", 0).epoch == 3


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"group_id": ""}, ErrorKind.INVALID_REQUEST),
        ({"member_id": ""}, ErrorKind.INVALID_REQUEST),
        ({"epoch": -2}, ErrorKind.INVALID_REQUEST),
        ({"topics": None}, ErrorKind.INVALID_REQUEST),
        ({"topics": ()}, ErrorKind.INVALID_REQUEST),
        ({"epoch": 3}, ErrorKind.UNKNOWN_GROUP),
        ({"session_timeout_ms": 10}, ErrorKind.INVALID_SESSION_TIMEOUT),
    ],
)
def test_requests_that_cannot_be_are_refused(fields: dict[str, Any], kind: ErrorKind) -> None:
    driver = ShareDriver()
    given: dict[str, Any] = {"on_reply": ignore, "group_id": GROUP, "member_id": "a"}
    given |= {"epoch": 0, "topics": ("t",)}

    assert kind_of(driver.ask(ShareGroupHeartbeat(**(given | fields)))) is kind
    assert driver.facts == []


def test_a_member_that_nobody_knows_must_join_and_a_full_group_takes_no_more() -> None:
    driver = ShareDriver()
    for number in range(10):
        driver.enter(f"m{number}")

    assert kind_of(driver.beat("x", 1)) is ErrorKind.UNKNOWN_MEMBER
    assert kind_of(driver.beat("x", -1)) is ErrorKind.UNKNOWN_MEMBER
    assert kind_of(driver.beat("x", 0)) is ErrorKind.GROUP_FULL


def test_a_member_that_leaves_is_reported_with_its_topics_and_its_partitions_go_to_others() -> None:
    driver = ShareDriver()
    driver.enter("a")
    driver.enter("b")

    reply = driver.beat("b", -1)

    assert reply.epoch == -1
    assert [event for event in driver.events if isinstance(event, MemberRemoved)] == [
        MemberRemoved(GROUP, "b", "left", ("t",))
    ]
    assert len(driver.consumed()["a"]) == 4


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    driver = ShareDriver()
    driver.enter("a")
    driver.enter("b")

    driver.advance(SESSION_MS - 1)
    driver.beat("a", driver.described().members[0].epoch)
    driver.advance(1)

    assert [member.member_id for member in driver.described().members] == ["a"]
    assert MemberRemoved(GROUP, "b", "session timed out", ("t",)) in driver.events


def test_a_member_may_have_a_session_timeout_of_its_own_also_after_a_failover() -> None:
    driver = ShareDriver()
    driver.enter("a")
    reply = driver.enter("b", session_timeout_ms=9_000)
    assert reply.heartbeat_interval_ms == 3_000

    after = driver.failed_over()
    after.advance(9_000)

    assert [member.member_id for member in after.described().members] == ["a"]


def test_after_a_failover_the_shorter_session_of_the_group_ends_in_time() -> None:
    driver = ShareDriver()
    driver.enter("a")
    driver.enter("b", session_timeout_ms=SESSION_MS * 2)

    after = driver.failed_over()
    after.advance(SESSION_MS)

    assert [member.member_id for member in after.described().members] == ["b"]


def test_a_coordinator_that_takes_over_knows_members_epochs_and_assignments() -> None:
    driver = ShareDriver()
    driver.enter("a")
    driver.enter("b")
    consumed, group = driver.consumed(), driver.described()

    after = driver.failed_over()

    assert after.described() == group
    assert after.beat("a", 2).assignment is None
    assert after.consumed() == consumed


def test_a_snapshot_rebuilds_the_same_group() -> None:
    driver = ShareDriver()
    for name in "abc":
        driver.enter(name)
    driver.consumed()
    driver.beat("c", -1)

    facts = list(driver.coordinator.snapshot())
    rebuilt = GroupCoordinator(OPTIONS, driver.cluster)
    for fact in facts:
        rebuilt.apply(fact)

    assert rebuilt.image == driver.coordinator.image
    assert driver.coordinator.size() >= len(facts)


def test_an_empty_group_stays_with_the_topics_it_has_queues_of_until_it_is_deleted() -> None:
    driver = ShareDriver()
    driver.enter("a")
    assert kind_of(driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP))) is ErrorKind.GROUP_NOT_EMPTY
    driver.beat("a", -1)
    driver.advance(30 * 24 * 3_600_000)

    group = driver.described()
    assert (group.state, [(name, count) for _, name, count in group.topics]) == (GroupState.EMPTY, [("t", 4)])
    assert driver.ask(DeleteGroup(on_reply=ignore, group_id=GROUP)) == GroupOk()
    assert kind_of(driver.ask(DescribeShareGroup(on_reply=ignore, group_id=GROUP))) is ErrorKind.UNKNOWN_GROUP
    assert list(driver.coordinator.snapshot()) == []


def test_a_share_group_is_listed_as_one() -> None:
    driver = ShareDriver()
    driver.enter("a")

    reply = driver.ask(ListGroups(on_reply=ignore, types=("share",)))

    assert isinstance(reply, ListedGroups)
    assert [(each.group_id, each.protocol_type, each.state, each.type) for each in reply.groups] == [
        (GROUP, "share", GroupState.STABLE, GroupType.SHARE)
    ]


def test_consumers_and_positions_are_refused_in_a_share_group() -> None:
    driver = ShareDriver()
    driver.enter("a")
    joins = ConsumerGroupHeartbeat(
        on_reply=ignore,
        group_id=GROUP,
        member_id="b",
        epoch=0,
        topics=("t",),
        rebalance_timeout_ms=1,
        owned={},
    )
    commits = CommitOffsets(on_reply=ignore, group_id=GROUP, offsets=(position(1),))
    fetches = FetchOffsets(on_reply=ignore, group_id=GROUP, topics=None)

    classic = driver.join("b")

    assert driver.kind_of(classic) is ErrorKind.INCONSISTENT_PROTOCOL
    assert [kind_of(driver.ask(each)) for each in (joins, commits, fetches)] == 3 * [ErrorKind.UNKNOWN_GROUP]


def test_a_share_member_is_refused_in_a_group_with_consumers_or_positions() -> None:
    consumers = ConsumerGroupHeartbeat(
        on_reply=ignore,
        group_id=GROUP,
        member_id="b",
        epoch=0,
        topics=("t",),
        rebalance_timeout_ms=1,
        owned={},
    )
    positions = CommitOffsets(on_reply=ignore, group_id=GROUP, offsets=(position(1),))
    for others in (consumers, positions):
        driver = ShareDriver()
        assert not isinstance(driver.ask(others), ApiError)

        assert kind_of(driver.beat("a", 0)) is ErrorKind.UNKNOWN_GROUP


def test_an_empty_consumer_group_makes_room_for_a_share_group() -> None:
    driver = ShareDriver()
    joins = ConsumerGroupHeartbeat(
        on_reply=ignore,
        group_id=GROUP,
        member_id="b",
        epoch=0,
        topics=("t",),
        rebalance_timeout_ms=1,
        owned={},
    )
    driver.ask(joins)
    driver.ask(replace(joins, epoch=-1))

    driver.enter("a")

    assert driver.coordinator.image.consumers == {}
    assert driver.described().state is GroupState.STABLE
