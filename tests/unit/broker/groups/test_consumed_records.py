"""How many records groups have consumed, counted from what they commit."""

from typing import Any

from penstock.broker.coordinator.group_metrics import ClientKey
from penstock.core.groups import DeleteGroup
from penstock.core.model import Offset, PartitionIndex, TopicPartition
from penstock.observability import render
from tests.unit.broker.groups.groups_bench import READ_TOPIC, GroupsBench

ORDERS = TopicPartition(READ_TOPIC, PartitionIndex(0))
LABELS = '{group="readers",topic="orders"}'


def consumed(bench: GroupsBench) -> list[str]:
    page = render([bench.groups.metrics]).decode()
    return [line for line in page.splitlines() if line.startswith("penstock_messages_consumed_total{")]


def commit(bench: GroupsBench, offset: int, **fields: Any) -> None:
    bench.ask_to_commit(offset, **fields)


def test_a_commit_counts_the_records_since_the_one_before() -> None:
    bench = GroupsBench().start()
    bench.produce(100, bench.timers.wall_ms)

    commit(bench, 10)
    commit(bench, 40)
    commit(bench, 45)

    assert consumed(bench) == [f"penstock_messages_consumed_total{LABELS} 35.0"]


def test_a_position_that_goes_back_takes_nothing_away() -> None:
    bench = GroupsBench().start()
    commit(bench, 10)
    commit(bench, 30)

    commit(bench, 5)
    commit(bench, 7)

    assert consumed(bench) == [f"penstock_messages_consumed_total{LABELS} 22.0"]


def test_a_first_commit_counts_from_where_its_member_was_told_to_begin() -> None:
    bench = GroupsBench().start()
    bench.produce(100, bench.timers.wall_ms)
    bench.groups.looked_up(ClientKey("app", "/127.0.0.1"), ORDERS, Offset(60))
    bench.groups.looked_up(ClientKey("another", "/127.0.0.1"), ORDERS, Offset(0))
    joined = bench.join_alone(client_id="app", client_host="/127.0.0.1")

    commit(bench, 80, generation=joined.generation, member_id=joined.member_id)

    assert consumed(bench) == [f"penstock_messages_consumed_total{LABELS} 20.0"]


def test_reading_the_log_of_positions_again_counts_nothing() -> None:
    bench = GroupsBench().start()
    commit(bench, 10)
    commit(bench, 40)

    restarted = bench.restarted()
    before = consumed(restarted)
    commit(restarted, 41)

    assert before == []
    assert consumed(restarted) == [f"penstock_messages_consumed_total{LABELS} 1.0"]


def test_the_figure_goes_with_its_group() -> None:
    bench = GroupsBench().start()
    commit(bench, 10)
    commit(bench, 40)

    bench.ask(DeleteGroup)

    assert consumed(bench) == []
    assert bench.groups.metrics.consumed.figures == {}


def test_what_is_remembered_of_lookups_is_bounded() -> None:
    bench = GroupsBench().start()

    for client in range(12_000):
        bench.groups.looked_up(ClientKey(f"client-{client}", "/127.0.0.1"), ORDERS, Offset(5))

    assert len(bench.groups.consumption) == 10_000
