"""Members, epochs and rebalances of groups, by type."""

from typing import Any

from penstock.broker.coordinator.group_metrics import ClientKey
from penstock.core.groups import ConsumerGroupHeartbeat, ConsumerHeartbeatResult, DeleteGroup
from penstock.core.model import Offset, PartitionIndex, TopicPartition
from penstock.observability import render
from tests.unit.broker.groups.groups_bench import GROUP, READ_TOPIC, GroupsBench


def figures(bench: GroupsBench) -> dict[str, float]:
    lines = [line for line in render([bench.groups.metrics]).decode().splitlines() if line[0] != "#"]
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines)
        if name.startswith(("penstock_group_members", "penstock_group_epoch", "penstock_group_rebalances"))
    }


def heartbeat(bench: GroupsBench, epoch: int = 0, **fields: Any) -> ConsumerHeartbeatResult:
    given: dict[str, Any] = {"group_id": GROUP, "member_id": "m", "epoch": epoch}
    if epoch == 0:
        given |= {"topics": (READ_TOPIC,), "rebalance_timeout_ms": 1_000, "owned": {}}
    reply = bench.ask(ConsumerGroupHeartbeat, **(given | fields))
    assert isinstance(reply, ConsumerHeartbeatResult), reply
    return reply


def test_a_consumer_group_is_shown_with_its_members_and_its_epoch() -> None:
    bench = GroupsBench().start()
    labels = f'{{group="{GROUP}",type="consumer"}}'

    heartbeat(bench)
    joined = figures(bench)
    heartbeat(bench, -1)

    assert joined[f"penstock_group_members{labels}"] == 1
    assert joined[f"penstock_group_epoch{labels}"] == 1
    assert joined['penstock_group_rebalances_total{type="consumer"}'] == 1
    assert figures(bench)[f"penstock_group_members{labels}"] == 0
    assert figures(bench.restarted())[f"penstock_group_epoch{labels}"] == 2


def test_a_classic_group_is_shown_until_it_is_deleted_or_the_coordinator_moves() -> None:
    bench = GroupsBench().start()
    labels = f'{{group="{GROUP}",type="classic"}}'
    bench.join_alone()
    assert figures(bench)['penstock_group_rebalances_total{type="classic"}'] == 1

    heartbeat(bench, group_id="another")
    bench.ask(ConsumerGroupHeartbeat, group_id="another", member_id="m", epoch=-1)
    bench.ask(DeleteGroup, group_id="another")

    assert [name for name in figures(bench) if "another" in name] == []
    assert figures(bench)[f"penstock_group_members{labels}"] == 1
    bench.groups.stop()
    assert [name for name in figures(bench) if "group=" in name] == []


def test_the_first_commit_of_a_consumer_group_counts_from_where_its_member_began() -> None:
    bench = GroupsBench().start()
    bench.produce(100, bench.timers.wall_ms)
    orders = TopicPartition(READ_TOPIC, PartitionIndex(0))
    bench.groups.looked_up(ClientKey("app", "/127.0.0.1"), orders, Offset(60))
    joined = heartbeat(bench, client_id="app", client_host="/127.0.0.1")

    bench.ask_to_commit(80, generation=joined.epoch, member_id="m")

    page = render([bench.groups.metrics]).decode()
    assert f'penstock_messages_consumed_total{{group="{GROUP}",topic="{READ_TOPIC}"}} 20.0' in page
