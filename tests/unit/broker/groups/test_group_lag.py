"""How far groups are behind, for people and for dashboards."""

from penstock.core.groups import DeleteGroup
from penstock.core.model import ApiError
from penstock.observability import render
from tests.unit.broker.groups.groups_bench import GROUP, READ_TOPIC, GroupsBench


def lines(bench: GroupsBench, name: str) -> list[str]:
    page = render([bench.groups.metrics]).decode()
    return [line for line in page.splitlines() if line.startswith(name + "{")]


def test_lag_is_told_in_records_and_in_seconds() -> None:
    bench = GroupsBench().start()
    now = bench.timers.wall_ms
    bench.produce(10, now - 60_000)
    bench.produce(10, now - 30_000)
    bench.commit_offset(10)
    bench.settle()

    lags = bench.groups.lag(GROUP)

    assert not isinstance(lags, ApiError)
    assert [(lag.committed, lag.end, lag.records, lag.seconds) for lag in lags] == [(10, 20, 10, 30.0)]
    labels = '{group="readers",partition="0",topic="orders"}'
    assert lines(bench, "penstock_consumer_lag") == [f"penstock_consumer_lag{labels} 10.0"]
    assert lines(bench, "penstock_consumer_lag_seconds") == [f"penstock_consumer_lag_seconds{labels} 30.0"]


def test_a_group_that_has_read_everything_is_not_behind_however_old_it_is() -> None:
    bench = GroupsBench().start()
    bench.produce(3, bench.timers.wall_ms - 60_000)
    bench.commit_offset(3)
    bench.settle()

    lags = bench.groups.lag(GROUP)

    assert not isinstance(lags, ApiError)
    assert [(lag.records, lag.seconds) for lag in lags] == [(0, 0.0)]


def test_lag_is_told_where_another_node_leads_as_well() -> None:
    bench = GroupsBench().start()
    bench.produce(10, bench.timers.wall_ms)
    bench.commit_offset(4)
    bench.settle()

    del bench.led[READ_TOPIC, 0]

    lags = bench.groups.lag(GROUP)
    assert not isinstance(lags, ApiError)
    assert [(lag.end, lag.records) for lag in lags] == [(10, 6)]


def test_lag_comes_back_with_a_restart_and_goes_with_its_group() -> None:
    bench = GroupsBench().start()
    bench.produce(3, bench.timers.wall_ms)
    bench.commit_offset(1)
    bench.settle()

    restarted = bench.restarted()
    shown = lines(restarted, "penstock_consumer_lag")
    restarted.ask(DeleteGroup)

    assert [line.rpartition(" ")[2] for line in shown] == ["2.0"]
    assert lines(restarted, "penstock_consumer_lag") == []
    assert restarted.groups.metrics.lag.figures == {}


def test_rebalances_are_timed_by_group() -> None:
    bench = GroupsBench().start()

    bench.join_alone()

    assert 'penstock_rebalance_seconds_count{group="readers"} 1.0' in lines(
        bench, "penstock_rebalance_seconds_count"
    )
