"""`GroupMembership` against a broker on a thread of the test."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.client.cluster import LOG, QUEUE, ClusterClient, ClusterError, GroupMembership
from penstock.core.protocol import ErrorCode
from penstock.testing import Broker
from penstock.testing import broker as running_broker


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with running_broker() as found:
        found.create_topic("orders", partitions=4)
        yield found


def run(broker: Broker, scenario: Callable[[GroupMembership, GroupMembership], Awaitable[None]]) -> None:
    """Two processes that speak for members of the same groups, here in one loop."""
    host, _, port = broker.bootstrap_servers.rpartition(":")

    async def scene() -> None:
        address = [(host, int(port))]
        async with ClusterClient(address) as one, ClusterClient(address) as other:
            await scenario(GroupMembership(one), GroupMembership(other))

    asyncio.run(scene())


def test_members_share_the_partitions_of_a_log(node: Broker) -> None:
    async def scenario(groups: GroupMembership, _: GroupMembership) -> None:
        first = await groups.join("shared", ["orders"], mode=LOG)
        assert first.assignment == {"orders": (0, 1, 2, 3)}
        second = await groups.join("shared", ["orders"], mode=LOG)
        while len(second.partitions) < 2:
            first = await groups.heartbeat("shared", first.member_id)
            second = await groups.heartbeat("shared", second.member_id)
        assert sorted([*first.partitions, *second.partitions]) == [("orders", turn) for turn in range(4)]
        await groups.leave("shared", first.member_id)
        while len(second.partitions) < 4:
            second = await groups.heartbeat("shared", second.member_id)

    run(node, scenario)


def test_what_a_member_loses_is_given_up_at_once(node: Broker) -> None:
    async def scenario(groups: GroupMembership, _: GroupMembership) -> None:
        first = await groups.join("lost", ["orders"], mode=LOG)
        second = await groups.join("lost", ["orders"], mode=LOG)
        while len(first.partitions) > 2:
            first = await groups.heartbeat("lost", first.member_id)
        second = await groups.heartbeat("lost", second.member_id)
        assert sorted([*first.partitions, *second.partitions]) == [("orders", turn) for turn in range(4)]

    run(node, scenario)


def test_any_process_speaks_for_a_member(node: Broker) -> None:
    async def scenario(groups: GroupMembership, others: GroupMembership) -> None:
        member = await groups.join("any", ["orders"], mode=LOG)
        assert (await others.heartbeat("any", member.member_id)).assignment == member.assignment
        assert await others.commit("any", {("orders", 1): 7}, member_id=member.member_id) == {
            ("orders", 1): None
        }
        assert await groups.committed("any", [("orders", 0), ("orders", 1)]) == {
            ("orders", 0): None,
            ("orders", 1): 7,
        }
        await others.leave("any", member.member_id)
        with pytest.raises(ClusterError) as raised:
            await groups.heartbeat("any", member.member_id)
        assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    run(node, scenario)


def test_a_member_whose_epoch_another_process_moved_commits_nevertheless(node: Broker) -> None:
    async def scenario(groups: GroupMembership, others: GroupMembership) -> None:
        member = await groups.join("moved", ["orders"], mode=LOG)
        second = await others.join("moved", ["orders"], mode=LOG)
        while len(second.partitions) < 2:
            await others.heartbeat("moved", member.member_id)
            second = await others.heartbeat("moved", second.member_id)
        kept = (await others.member("moved", member.member_id)).partitions[0]
        assert await groups.commit("moved", {kept: 3}, member_id=member.member_id) == {kept: None}

    run(node, scenario)


def test_positions_are_kept_without_members_too(node: Broker) -> None:
    async def scenario(groups: GroupMembership, _: GroupMembership) -> None:
        assert await groups.commit("consumer.x", {("orders", 2): 5}) == {("orders", 2): None}
        assert await groups.committed("consumer.x") == {("orders", 2): 5}
        (refused,) = (await groups.commit("consumer.x", {("missing", 0): 5})).values()
        assert refused is not None
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ClusterError) as raised:
            await groups.commit("consumer.x", {("orders", 2): 5}, member_id="nobody")
        assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    run(node, scenario)


def test_a_queue_member_is_kept_by_any_process(node: Broker) -> None:
    async def scenario(groups: GroupMembership, others: GroupMembership) -> None:
        member = await groups.join("queue", ["orders"], mode=QUEUE, session_timeout_ms=10_000)
        second = await groups.join("queue", ["orders"], mode=QUEUE)
        assert {*member.partitions, *second.partitions} == {("orders", turn) for turn in range(4)}
        kept = await others.heartbeat("queue", member.member_id)
        assert (kept.mode, kept.topics) == (QUEUE, ("orders",))
        await others.leave("queue", member.member_id)
        with pytest.raises(ClusterError) as raised:
            await groups.heartbeat("queue", member.member_id)
        assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    run(node, scenario)
