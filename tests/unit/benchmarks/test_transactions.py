from pathlib import Path

import pytest

from benchmarks.peers.kafka import Quorum
from benchmarks.side_by_side import KAFKA, THIS, Results, note, rows
from benchmarks.transactions import BY_COUNT, BY_TIME, PLAIN, Written, derive, sides_of
from penstock.cli.bench.scenarios import ResourceUsage

MILLISECOND_NS = 1_000_000


def test_rates_and_cpu_are_those_of_the_loads_own_time() -> None:
    written = Written(
        records=2_000,
        elapsed_ns=500 * MILLISECOND_NS,
        client_ns=10 * MILLISECOND_NS,
        flushes_ns=[MILLISECOND_NS] * 4,
        commits_ns=[2 * MILLISECOND_NS] * 3 + [9 * MILLISECOND_NS],
    )

    figures = written.figures(ResourceUsage(5_000, 0), ResourceUsage(5_000 + 40 * MILLISECOND_NS, 0))

    assert figures == {
        "messages_per_s": 4_000,
        "commits_per_s": 8,
        "flush_p50_us": 1_000,
        "commit_p50_us": 2_000,
        "commit_p99_us": 9_000,
        "cpu_us": 20,
        "client_cpu_us": 5,
    }


def test_a_load_without_transactions_has_no_commits() -> None:
    figures = Written(records=1, elapsed_ns=MILLISECOND_NS).figures(ResourceUsage(0, 0), ResourceUsage(0, 0))

    assert "commits_per_s" not in figures
    assert figures["messages_per_s"] == 1_000


@pytest.fixture
def results() -> Results:
    found: Results = {}
    for side, speed in ((THIS, 1), (KAFKA, 2)):
        note(found, f"1 broker, {BY_TIME}", side, {"messages_per_s": 600 * speed, "cpu_us": 12})
        note(found, f"1 broker, {BY_TIME}", side, {"commits_per_s": 10 * speed})
        note(found, f"1 broker, {PLAIN}", side, {"messages_per_s": 800 * speed, "cpu_us": 10})
    return found


def test_a_commit_costs_the_cpu_beyond_that_of_the_same_messages_alone(results: Results) -> None:
    derive(results, "1 broker")

    found = results[f"1 broker, {BY_TIME}"]
    # 60 messages a commit, each 2 us dearer.
    assert found["cpu_us_per_commit"] == {THIS: [120.0], KAFKA: [120.0]}
    assert found["of plain"] == {THIS: [0.75], KAFKA: [0.75]}
    assert f"1 broker, {BY_COUNT}" not in results


def test_a_side_with_a_failed_load_has_no_derived_figures(results: Results) -> None:
    del results[f"1 broker, {PLAIN}"]["cpu_us"][KAFKA]
    del results[f"1 broker, {PLAIN}"]["messages_per_s"][KAFKA]

    derive(results, "1 broker")

    assert list(results[f"1 broker, {BY_TIME}"]["of plain"]) == [THIS]


def test_the_table_has_the_ratio_to_kafka(results: Results) -> None:
    names = sides_of(results)
    table = rows(results, names)

    assert names == [THIS, KAFKA]
    row = dict(zip(table[0], table[1], strict=True))
    assert (row["figure"], row["this"], row["kafka"], row["this/kafka"]) == (
        "messages_per_s",
        "600.0",
        "1,200.0",
        "0.50",
    )


@pytest.mark.parametrize(("count", "replicas", "in_sync"), [(1, 1, 1), (3, 3, 2), (5, 3, 2)])
def test_kafkas_own_topics_have_as_many_replicas_as_the_cluster_allows(
    count: int, replicas: int, in_sync: int
) -> None:
    quorum = Quorum("id", tuple(range(9_001, 9_001 + count)))

    lines = quorum.properties(1, 9_092, Path("data")).splitlines()

    assert f"transaction.state.log.replication.factor={replicas}" in lines
    assert f"transaction.state.log.min.isr={in_sync}" in lines
    assert quorum.voters.split(",")[-1] == f"{count}@127.0.0.1:{9_000 + count}"
