"""Consumer groups under anything that can happen: one reader per partition, and balance in the end."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.groups import ConsumerGroupOptions, ConsumerHeartbeatResult, GroupOptions, GroupState
from penstock.core.groups.partition_sets import union
from tests.property.groups.held import check_counts
from tests.unit.core.groups.consumer_driver import (
    HEARTBEAT_MS,
    REVOKE_MS,
    SESSION_MS,
    ConsumerDriver,
    Member,
    Topics,
    timeouts,
)

operations = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("join", "join", "join static", "beat", "beat", "hold", "hold", "lose", "leave"),
                *("leave for a while", "die", "grow", "subscribe", "fail over", "wait"),
            ]
        ),
        st.integers(0, 5),
    ),
    min_size=12,
    max_size=60,
)


class Run:
    """Clients and a coordinator; responses get lost, clients die, coordinators move."""

    def __init__(self, assignor: str, assigned_per_turn_max: int) -> None:
        consumer = ConsumerGroupOptions(
            timeouts=timeouts, assignors=(assignor,), assigned_per_turn_max=assigned_per_turn_max
        )
        self.driver = ConsumerDriver(GroupOptions(consumer=consumer), topics=Topics(t=3, u=2))
        self.members: list[Member] = []
        self.made = 0
        # Whose last response was lost: their next request says everything, and gets everything.
        self.unsure: dict[str, None] = {}

    def do(self, operation: str, number: int) -> None:
        match operation:
            case "join":
                self.join(topics=(("t",), ("u",), ("t", "u"))[number % 3])
            case "join static":
                self.join(topics=("t",), instance_id=f"i{number % 2}")
            case "grow":
                name = "tu"[number % 2]
                self.driver.change_topic(name, self.driver.cluster.topics[name].partitions + number % 3)
            case "fail over":
                self.driver = self.driver.failed_over()
                for member in self.members:
                    member.driver = self.driver
            case "wait":
                self.driver.advance(HEARTBEAT_MS)
                self.beat_all()
            case _:
                if self.members:
                    self.of_member(operation, self.members[number % len(self.members)])

    def of_member(self, operation: str, member: Member) -> None:
        match operation:
            case "beat" | "hold":
                self.take(member, is_slow=operation == "hold")
            case "lose":
                # The coordinator decides, and the client does not hear of it.
                self.unsure[member.member_id] = None
                self.driver.beat(
                    member.member_id, member.epoch, owned=member.owned, instance_id=member.instance_id
                )
            case "subscribe":
                member.joined["topics"] = (("t",), ("u",), ("t", "u"))[member.epoch % 3]
                self.take(member, topics=member.joined["topics"])
            case "leave":
                self.driver.beat(member.member_id, -1, instance_id=member.instance_id)
                self.members.remove(member)
            case "leave for a while":
                if member.instance_id is not None:
                    self.driver.beat(member.member_id, -2, instance_id=member.instance_id)
                    self.members.remove(member)
            case "die":
                self.members.remove(member)

    def join(self, **fields: object) -> None:
        self.made += 1
        member = Member(self.driver, f"m{self.made}", **fields)
        reply = self.driver.beat(member.member_id, 0, owned={}, **fields)
        if isinstance(reply, ConsumerHeartbeatResult):
            member.take(reply)
            self.members.append(member)

    def take(self, member: Member, *, is_slow: bool = False, **fields: object) -> None:
        """A heartbeat; a slow client goes on reading what it was told to give up."""
        given = {"owned": member.owned, "instance_id": member.instance_id, **fields}
        if member.member_id in self.unsure:
            del self.unsure[member.member_id]
            given |= {"topics": member.joined["topics"], "rebalance_timeout_ms": REVOKE_MS}
        reply = self.driver.beat(member.member_id, member.epoch, **given)
        if isinstance(reply, ConsumerHeartbeatResult):
            if is_slow and reply.assignment is not None:
                self.unsure[member.member_id] = None
                reply = replace(reply, assignment=union(member.owned, reply.assignment))
            member.take(reply)
        else:
            # Fenced: it gives up everything. A client would join again.
            self.members.remove(member)

    def beat_all(self) -> None:
        for member in list(self.members):
            self.take(member)
            self.check()

    def check(self) -> None:
        check_counts(self.driver.coordinator)
        self.driver.check_exclusive(*self.members)

    def settle(self) -> None:
        """Those that died are removed, and the others come to share everything."""
        for _ in range(2 * SESSION_MS // HEARTBEAT_MS):
            self.driver.advance(HEARTBEAT_MS)
            self.beat_all()


@settings(max_examples=100, deadline=None)
@given(
    script=operations, assignor=st.sampled_from(["uniform", "range"]), per_turn=st.sampled_from([1, 1_000])
)
def test_a_partition_never_has_two_readers_and_all_are_read_in_the_end(
    script: list[tuple[str, int]], assignor: str, per_turn: int
) -> None:
    run = Run(assignor, per_turn)
    for operation, number in script:
        run.do(operation, number)
        run.check()
    run.settle()

    assert run.driver.failed_over().coordinator.image == run.driver.coordinator.image
    if not run.members:
        return
    group = run.driver.described()
    assert group.state is GroupState.STABLE
    assert {member.member_id for member in group.members} == {member.member_id for member in run.members}
    wanted = {name for member in group.members for name in member.topics}
    assert sorted(each for member in run.members for each in member.partitions) == sorted(
        (name, index) for name in wanted for index in range(run.driver.cluster.topics[name].partitions)
    )
