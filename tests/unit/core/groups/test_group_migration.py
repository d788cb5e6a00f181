"""Groups with members that change between the classic and the consumer protocol, in both directions."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from penstock.core.groups import (
    CommitOffsets,
    CommitResults,
    ConsumerGroupOptions,
    GroupOk,
    GroupOptions,
    GroupState,
    GroupType,
    Heartbeat,
    JoinGroupResult,
    LeaveGroupResult,
    LeavingMember,
    ListedGroups,
    ListGroups,
    MemberAssignment,
    MemberIdRequired,
    MemberProtocol,
    MigrationPolicy,
    SyncGroup,
    SyncGroupResult,
)
from penstock.core.groups.embedded_protocol import (
    NamedPartitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock.core.model import ErrorKind
from tests.unit.core.groups.consumer_driver import ConsumerDriver, Member, Topics, timeouts
from tests.unit.core.groups.group_driver import GROUP, ignore, kind_of, position

CLASSIC_SESSION_MS, REJOIN_MS = 10_000, 30_000


def options(policy: MigrationPolicy) -> GroupOptions:
    consumer = ConsumerGroupOptions(timeouts=timeouts, migration=policy)
    return GroupOptions(initial_rebalance_delay_ms=0, consumer=consumer)


def subscription(owned: NamedPartitions, *topics: str) -> bytes:
    """Version 1 of a consumer's subscription."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    return (
        struct.pack(">hi", 1, len(topics))
        + b"".join(map(text, topics))
        + struct.pack(">ii", -1, len(owned))
        + b"".join(
            text(name) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes) for name, indexes in owned
        )
    )


class ClassicConsumer:
    """A client of the classic protocol: joins when it is told to, and keeps what it is assigned."""

    def __init__(self, driver: ConsumerDriver, *, is_eager: bool = False, **fields: Any) -> None:
        self.driver = driver
        self.is_eager = is_eager
        self.fields = fields
        self.member_id = ""
        self.generation = -1
        self.owned: NamedPartitions = ()

    def join(self) -> int:
        """Send JoinGroup; returns its number."""
        if self.is_eager:
            self.owned = ()
        given: dict[str, Any] = {
            "protocols": (MemberProtocol("range", subscription(self.owned, "t")),),
            "session_timeout_ms": CLASSIC_SESSION_MS,
            "rebalance_timeout_ms": REJOIN_MS,
        }
        ticket = self.driver.join(self.member_id, **(given | self.fields))
        reply = self.driver.answers.get(ticket)
        if isinstance(reply, MemberIdRequired):
            self.member_id = reply.member_id
            return self.join()
        return ticket

    def take_join(self, ticket: int) -> JoinGroupResult:
        reply = self.driver.answers[ticket]
        assert isinstance(reply, JoinGroupResult), reply
        self.member_id, self.generation = reply.member_id, reply.generation
        return reply

    def sync(self, *assignments: MemberAssignment) -> SyncGroupResult:
        reply = self.driver.ask(
            SyncGroup(
                on_reply=ignore,
                group_id=GROUP,
                generation=self.generation,
                member_id=self.member_id,
                assignments=assignments,
            )
        )
        assert isinstance(reply, SyncGroupResult), reply
        self.owned = read_assignment(reply.assignment) or ()
        return reply

    def heartbeat(self) -> ErrorKind | None:
        reply = self.driver.ask(
            Heartbeat(on_reply=ignore, group_id=GROUP, generation=self.generation, member_id=self.member_id)
        )
        return None if reply == GroupOk() else kind_of(reply)

    def beat(self) -> None:
        """A heartbeat, and what it leads to."""
        kind = self.heartbeat()
        if kind is not None:
            assert kind is ErrorKind.REBALANCE_IN_PROGRESS, kind
            self.take_join(self.join())
            self.sync()

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(name, index) for name, indexes in self.owned for index in indexes]


def classic_group(driver: ConsumerDriver, **fields: Any) -> ClassicConsumer:
    """A classic group of one member that has everything."""
    member = ClassicConsumer(driver, **fields)
    ticket = member.join()
    driver.advance(0)
    member.take_join(ticket)
    everything = write_assignment(1, [("t", range(4))])
    member.sync(MemberAssignment(member.member_id, everything))
    return member


def settle(driver: ConsumerDriver, *members: Member | ClassicConsumer) -> None:
    for _ in range(6):
        for member in members:
            member.beat()
            everything = [partition for each in members for partition in each.partitions]
            assert len(everything) == len(set(everything)), "two members have one partition"
    assert driver.described().state is GroupState.STABLE


def type_of_group(driver: ConsumerDriver) -> GroupType:
    listed = driver.ask(ListGroups(on_reply=ignore))
    assert isinstance(listed, ListedGroups)
    (group,) = listed.groups
    return group.type


@pytest.mark.parametrize("is_eager", [False, True])
def test_a_classic_group_is_upgraded_by_the_first_member_that_speaks_the_new_protocol(is_eager: bool) -> None:
    driver = ConsumerDriver(options(MigrationPolicy.BIDIRECTIONAL))
    classic = classic_group(driver, is_eager=is_eager)
    generation = classic.generation

    new = driver.member("new")
    assert (new.partitions, type_of_group(driver)) == ([], GroupType.CONSUMER)
    assert driver.described().epoch == generation + 1
    settle(driver, classic, new)

    assert (len(classic.partitions), len(new.partitions)) == (2, 2)
    assert [member.is_classic for member in driver.described().members] == [True, False]
    assert not driver.coordinator.image.groups


def test_a_classic_member_goes_on_reading_until_it_is_told_to_join_again() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.UPGRADE))
    classic = classic_group(driver)

    new = driver.member("new")
    assert classic.heartbeat() is ErrorKind.REBALANCE_IN_PROGRESS
    new.beat()
    assert new.partitions == []
    classic.take_join(classic.join())
    classic.sync()
    new.beat()
    assert new.partitions == []
    classic.take_join(classic.join())
    new.beat()

    assert len(new.partitions) == 2


def test_a_group_is_upgraded_in_the_middle_of_a_rebalance() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.BIDIRECTIONAL))
    classic = classic_group(driver)
    other = ClassicConsumer(driver)
    waiting = other.join()
    assert waiting not in driver.answers

    new = driver.member("new")

    assert driver.kind_of(waiting) is ErrorKind.REBALANCE_IN_PROGRESS
    other.take_join(other.join())
    other.sync()
    settle(driver, classic, other, new)
    assert sorted(len(each.partitions) for each in (classic, other, new)) == [1, 1, 2]


def test_a_group_becomes_classic_again_when_the_last_new_member_has_left() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.BIDIRECTIONAL))
    classic = classic_group(driver)
    new = driver.member("new")
    settle(driver, classic, new)

    new.leave()
    assert classic.heartbeat() is ErrorKind.REBALANCE_IN_PROGRESS

    assert type_of_group(driver) is GroupType.CLASSIC
    assert not driver.coordinator.image.consumers
    joined = classic.take_join(classic.join())
    assert (joined.leader, [each.member_id for each in joined.members]) == (
        classic.member_id,
        [classic.member_id],
    )
    assert driver.failed_over().coordinator.image == driver.coordinator.image


def test_a_new_member_that_dies_leads_to_a_classic_group_too() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.DOWNGRADE))
    new = driver.member("new")
    classic = ClassicConsumer(driver)
    classic.take_join(classic.join())
    classic.sync()
    settle(driver, classic, new)

    for _ in range(6):
        driver.advance(1_000)
        classic.heartbeat()

    assert type_of_group(driver) is GroupType.CLASSIC


def test_a_policy_that_forbids_it_keeps_groups_as_they_are() -> None:
    up, down = (
        ConsumerDriver(options(MigrationPolicy.DOWNGRADE)),
        ConsumerDriver(options(MigrationPolicy.UPGRADE)),
    )
    classic_group(up)
    other = classic_group(down)
    new = down.member("new")
    settle(down, other, new)

    assert up.refused("new", 0) is ErrorKind.UNKNOWN_GROUP
    new.leave()
    settle(down, other)

    assert (type_of_group(up), type_of_group(down)) == (GroupType.CLASSIC, GroupType.CONSUMER)
    assert len(other.partitions) == 4


def test_an_empty_consumer_group_is_taken_over_by_a_classic_member() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.DISABLED))
    driver.member("new").leave()

    classic = classic_group(driver)

    assert type_of_group(driver) is GroupType.CLASSIC
    assert classic.heartbeat() is None
    assert not driver.coordinator.image.consumers


def test_a_request_to_join_that_makes_no_sense_upgrades_nothing() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.BIDIRECTIONAL))
    classic_group(driver)

    assert driver.refused("new", 0, assignor="nobody's") is ErrorKind.UNSUPPORTED_ASSIGNOR
    assert driver.refused("new", 3) is ErrorKind.UNKNOWN_GROUP
    assert type_of_group(driver) is GroupType.CLASSIC


def test_a_static_member_changes_its_protocol_and_keeps_its_place() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.UPGRADE))
    classic = classic_group(driver, instance_id="i")

    new = driver.member("new", instance_id="i")

    assert len(new.partitions) == 4
    assert [member.member_id for member in driver.described().members] == ["new"]
    assert classic.heartbeat() is ErrorKind.UNKNOWN_MEMBER


def test_a_classic_member_has_to_join_again_in_time() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.UPGRADE))
    classic, new = classic_group(driver), driver.member("new")

    for _ in range(REJOIN_MS // 1_000 + 1):
        classic.heartbeat()
        new.beat()
        driver.advance(1_000)
    new.beat()

    assert classic.heartbeat() is ErrorKind.UNKNOWN_MEMBER
    assert len(new.partitions) == 4


def test_classic_members_leave_and_commit_by_their_generation() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.UPGRADE))
    classic, new = classic_group(driver), driver.member("new")
    settle(driver, classic, new)

    def commit(generation: int) -> Any:
        member_id = classic.member_id
        return driver.commit(position(1), member_id=member_id, generation=generation)

    assert isinstance(commit(classic.generation), CommitResults)
    assert kind_of(commit(classic.generation + 1)) is ErrorKind.ILLEGAL_GENERATION
    left = driver.leave(LeavingMember(classic.member_id), LeavingMember("nobody"))
    assert isinstance(left, LeaveGroupResult)
    assert [member.kind for member in left.members] == [None, ErrorKind.UNKNOWN_MEMBER]
    new.beat()
    assert len(new.partitions) == 4


def test_a_classic_member_that_leaves_under_an_instance_id_that_nobody_has_is_not_removed() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.UPGRADE))
    classic, new = classic_group(driver), driver.member("new")
    settle(driver, classic, new)

    left = driver.leave(LeavingMember(classic.member_id, "nobody"))

    assert isinstance(left, LeaveGroupResult)
    assert [member.kind for member in left.members] == [ErrorKind.UNKNOWN_MEMBER]
    assert classic.heartbeat() is None


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"protocol_type": "connect"}, ErrorKind.INCONSISTENT_PROTOCOL),
        ({"protocols": ()}, ErrorKind.INCONSISTENT_PROTOCOL),
        ({"protocols": (MemberProtocol("range", b"\x00"),)}, ErrorKind.INCONSISTENT_PROTOCOL),
        ({"protocols": (MemberProtocol("other", subscription((), "t")),)}, ErrorKind.INCONSISTENT_PROTOCOL),
        ({"session_timeout_ms": 1}, ErrorKind.INVALID_SESSION_TIMEOUT),
        ({"instance_id": "j", "member_id": "x"}, ErrorKind.UNKNOWN_MEMBER),
    ],
)
def test_classic_requests_that_make_no_sense_get_one_clear_error(
    fields: dict[str, Any], kind: ErrorKind
) -> None:
    driver = ConsumerDriver(options(MigrationPolicy.UPGRADE))
    classic_group(driver)
    driver.member("new")
    given: dict[str, Any] = {"protocols": (MemberProtocol("range", subscription((), "t")),)}
    facts = len(driver.facts)

    assert driver.kind_of(driver.join(**(given | {"member_id": "m"} | fields))) is kind
    assert len(driver.facts) == facts


def test_members_and_epochs_of_a_mixed_group_survive_a_failover() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.BIDIRECTIONAL), topics=Topics(t=4))
    classic, new = classic_group(driver), driver.member("new")
    classic.beat()

    taken_over = driver.failed_over()
    classic.driver = new.driver = taken_over

    settle(taken_over, classic, new)
    assert sorted(classic.partitions + new.partitions) == [("t", index) for index in range(4)]


@pytest.mark.parametrize("version", range(4))
def test_what_consumers_tell_each_other_is_read_in_every_version(version: int) -> None:
    topics = struct.pack(">hih2sh1s", version, 2, 2, b"ab", 1, b"c") + struct.pack(">i3s", 3, b"any")
    owned = struct.pack(">ih2si2i", 1, 2, b"ab", 2, 3, 4)
    whole = topics + (owned if version else b"") + (struct.pack(">i", 7) if version > 1 else b"")
    whole += struct.pack(">h4s", 4, b"east") if version > 2 else b""

    read = read_subscription(whole + b"and more" if version == 3 else whole)

    assert read is not None
    assert (read.version, read.topics) == (version, ("ab", "c"))
    assert read.owned == ((("ab", (3, 4)),) if version else ())
    assert read.rack_id == ("east" if version == 3 else None)
    assert all(read_subscription(whole[:end]) is None for end in range(len(whole)))


def test_hostile_counts_in_an_assignment_are_refused() -> None:
    assert read_assignment(struct.pack(">hi", 0, 2**31 - 1)) is None
    assert read_assignment(b"\xff\xff") is None
    assert read_assignment(b"") == ()
    assert read_assignment(write_assignment(1, [("t", (1, 2))])) == (("t", (1, 2)),)


def test_nobody_else_commits_for_a_member() -> None:
    driver = ConsumerDriver(options(MigrationPolicy.UPGRADE))
    classic_group(driver)
    driver.member("new")

    reply = driver.ask(
        CommitOffsets(on_reply=ignore, group_id=GROUP, member_id="new", generation=0, offsets=(position(1),))
    )

    assert kind_of(reply) is ErrorKind.STALE_MEMBER_EPOCH


def test_a_full_classic_group_stays_what_it_is() -> None:
    consumer = ConsumerGroupOptions(timeouts=timeouts, members_max=1)
    driver = ConsumerDriver(GroupOptions(initial_rebalance_delay_ms=0, consumer=consumer))
    classic = classic_group(driver)

    assert driver.refused("new", 0) is ErrorKind.UNKNOWN_GROUP

    assert type_of_group(driver) is GroupType.CLASSIC
    assert classic.heartbeat() is None


def test_a_static_member_of_a_full_classic_group_may_change_the_protocol() -> None:
    consumer = ConsumerGroupOptions(timeouts=timeouts, members_max=1)
    driver = ConsumerDriver(GroupOptions(initial_rebalance_delay_ms=0, consumer=consumer))
    classic_group(driver, instance_id="i")

    driver.member("new", instance_id="i")

    assert type_of_group(driver) is GroupType.CONSUMER


def test_a_classic_member_that_does_not_fit_into_a_record_is_kept_out_of_a_consumer_group() -> None:
    large = MemberProtocol("range", subscription((), *[f"topic-{number:04}" for number in range(50)]))
    small_records = replace(options(MigrationPolicy.BIDIRECTIONAL), record_bytes_max=1_000)
    driver = ConsumerDriver(small_records)
    driver.member("a")

    refused = driver.join("", protocols=(large,))

    assert kind_of(driver.answers[refused]) is ErrorKind.BATCH_TOO_LARGE
    driver = ConsumerDriver(small_records)
    classic_group(driver, protocols=(large,))
    assert driver.refused("a", 0) is ErrorKind.UNKNOWN_GROUP
    assert type_of_group(driver) is GroupType.CLASSIC


@pytest.mark.parametrize("name", ["n", "n" * 1_000], ids=["short", "long"])
def test_names_of_protocols_that_do_not_fit_into_a_record_are_kept_out_of_a_consumer_group(name: str) -> None:
    driver = ConsumerDriver(replace(options(MigrationPolicy.BIDIRECTIONAL), record_bytes_max=1_000))
    driver.member("a")
    names = [MemberProtocol(name, b"")] * (90 if len(name) == 1 else 1)

    refused = driver.join("", protocols=(MemberProtocol("range", subscription((), "t")), *names))

    assert kind_of(driver.answers[refused]) is ErrorKind.BATCH_TOO_LARGE
