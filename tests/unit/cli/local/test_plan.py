from pathlib import Path

import pytest

from penstock.cli.local_cluster import NodePlan, plan_nodes, voters_of
from penstock.config import ConfigError, ListenAddress, LoadedConfig, load, override


@pytest.fixture(autouse=True)
def in_an_empty_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def configured(*assignments: str) -> LoadedConfig:
    return load(overrides=[override("--set", text) for text in assignments])


def refused(*assignments: str, count: int = 3) -> str:
    with pytest.raises(ConfigError) as refusal:
        plan_nodes(configured(*assignments), count)
    [problem] = refusal.value.problems
    return problem


def told(plan: NodePlan) -> LoadedConfig:
    """What a node understands that is started with its plan."""
    return configured(*plan.assignments())


def test_each_node_has_a_number_a_directory_and_ports_a_hundred_above_the_one_before() -> None:
    nodes = [told(plan).config for plan in plan_nodes(configured("node.data_dir=/data"), 3)]

    assert [node.node.id for node in nodes] == [1, 2, 3]
    assert [node.node.data_dir for node in nodes] == ["/data/node-1", "/data/node-2", "/data/node-3"]
    assert [node.listen.kafka.port for node in nodes] == [9092, 9192, 9292]
    assert [node.listen.http.port for node in nodes] == [8080, 8180, 8280]
    assert [node.listen.grpc.port for node in nodes] == [9000, 9100, 9200]
    assert [node.listen.metrics.port for node in nodes] == [9090, 9190, 9290]
    assert [node.peer.port for node in nodes if node.peer] == [7000, 7100, 7200]


def test_the_largest_local_cluster_has_no_port_twice() -> None:
    listeners = [listener for plan in plan_nodes(configured(), 9) for listener in plan.listeners.values()]

    assert len(set(listeners)) == len(listeners) == 9 * 5


def test_further_listeners_and_what_they_advertise_move_along() -> None:
    loaded = configured(
        "listen.listeners=in=plaintext://127.0.0.1:9500/localhost:9500", "listen.advertised=h:9092"
    )

    second = told(plan_nodes(loaded, 2)[1]).config.listen

    assert second.advertised == ListenAddress("h", 9192)
    assert [str(listener) for listener in second.listeners] == [
        "in=PLAINTEXT://127.0.0.1:9600/localhost:9600"
    ]


def test_any_free_port_stays_that_until_one_is_found() -> None:
    [plan] = plan_nodes(configured("listen.kafka=127.0.0.1:0", "listen.listeners=in=plaintext://h:0"), 1)

    found = plan.at(
        {
            key: ListenAddress(listener.host, 1000 + at)
            for at, (key, listener) in enumerate(plan.listeners.items())
        }
    )

    assert plan.listeners["listen.kafka"] == ListenAddress("127.0.0.1", 0)
    assert told(found).config.listen.kafka == ListenAddress("127.0.0.1", 1000)
    assert told(found).config.listen.listeners[0].bind == ListenAddress("h", 1001)


def test_every_node_is_told_the_same_voters() -> None:
    plans = plan_nodes(configured("listen.peer=:7000"), 3)

    voters = voters_of(plans)
    nodes = [told(plan.with_voters(voters)).config for plan in plans]

    assert [str(voter) for voter in voters] == ["1@127.0.0.1:7000", "2@127.0.0.1:7100", "3@127.0.0.1:7200"]
    assert {node.cluster.voters for node in nodes} == {voters}
    assert [node.peer for node in nodes] == [
        ListenAddress("", 7000),
        ListenAddress("", 7100),
        ListenAddress("", 7200),
    ]


def test_metrics_that_are_switched_off_need_no_port() -> None:
    [plan] = plan_nodes(configured("metrics.enabled=false"), 1)

    assert "listen.metrics" not in plan.listeners


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("node.id=2", "node.id (--set) and --brokers do not go together"),
        ("cluster.voters=1@h:1", "cluster.voters (--set) and --brokers do not go together"),
        ("node.roles=controller", "node.roles (--set) and --brokers do not go together"),
        ("listen.http=h:65500", "listen.http = h:65500 is too high: node 2 would need port 65600"),
    ],
)
def test_what_does_not_fit_a_local_cluster_is_refused(assignment: str, complaint: str) -> None:
    assert refused(assignment).startswith(complaint)


def test_the_directory_of_a_single_node_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data" / "meta").mkdir(parents=True)

    assert refused("node.data_dir=data") == (
        "data is the data directory of a single node: choose another with --data-dir"
    )


def test_fewer_nodes_than_have_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "penstock-cluster" / "node-5").mkdir(parents=True)

    assert refused(count=4).startswith(
        "./penstock-cluster holds data up to node 5: start it with --brokers 5"
    )
    assert len(plan_nodes(configured(), 5)) == 5
