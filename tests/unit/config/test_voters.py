import pytest

from penstock.config import Config, ConfigError, ListenAddress, VoterAddress, load, override, warnings_for

THREE = "cluster.voters=1@a:7000,2@a:7100,3@a:7200"


@pytest.fixture(autouse=True)
def no_file_in_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.config.loader.DEFAULT_FILE", "/nonexistent/penstock.yaml")


def configured(*assignments: str) -> Config:
    return load(overrides=[override("--set", text) for text in assignments]).config


def complaints(*assignments: str) -> list[str]:
    with pytest.raises(ConfigError) as refusal:
        configured(*assignments)
    return list(refusal.value.problems)


def test_voters_are_node_ids_at_peer_addresses() -> None:
    config = configured(THREE)

    assert config.cluster.voters == (
        VoterAddress(1, ListenAddress("a", 7000)),
        VoterAddress(2, ListenAddress("a", 7100)),
        VoterAddress(3, ListenAddress("a", 7200)),
    )


def test_a_node_listens_for_its_peers_where_the_voters_look_for_it() -> None:
    assert configured(THREE, "node.id=2").peer == ListenAddress("a", 7100)
    assert configured(THREE, "node.id=2", "listen.peer=:7100").peer == ListenAddress("", 7100)


def test_a_broker_that_does_not_vote_listens_for_its_peers_too() -> None:
    broker = (THREE, "node.id=4", "node.roles=broker")

    assert configured(*broker).peer == ListenAddress("127.0.0.1", 7000)
    assert configured(*broker, "listen.peer=b:7300").peer == ListenAddress("b", 7300)


def test_a_node_alone_listens_for_peers_only_if_told_where() -> None:
    assert Config().peer is None
    assert configured("listen.peer=127.0.0.1:7000").peer == ListenAddress("127.0.0.1", 7000)


@pytest.mark.parametrize(
    ("assignments", "complaint"),
    [
        (["cluster.voters=1@a:1,2@b:1,2@c:1"], "cluster.voters (--set) names 2 twice"),
        (["cluster.voters=1@a:1,2@a:1"], "cluster.voters (--set) names a:1 twice"),
        (
            ["cluster.voters=1@a:0"],
            "cluster.voters (--set) has port 0 in 1@a:0: the others must know where to connect",
        ),
        (
            [THREE, "node.id=4"],
            (
                "node.id (--set) = 4 is not among cluster.voters (--set): add 4@HOST:PORT there, or let "
                "node.roles be broker alone"
            ),
        ),
        (
            [THREE, "node.roles=broker"],
            "cluster.voters (--set) has this node as 1@a:7000, but node.roles (--set) lacks controller",
        ),
        (
            ["node.roles=broker"],
            "node.roles (--set) lacks controller: cluster.voters must say who the controllers are",
        ),
        (
            [THREE, "listen.peer=a:7001"],
            "listen.peer (--set) = a:7001 is not what cluster.voters (--set) tells the others: 1@a:7000",
        ),
        (
            ["cluster.voters=1@10.0.0.1:7000", "listen.peer=10.0.0.2:7000"],
            (
                "listen.peer (--set) = 10.0.0.2:7000 is not what cluster.voters (--set) tells the others: "
                "1@10.0.0.1:7000"
            ),
        ),
        (
            ["cluster.voters=1@127.0.0.1:9092"],
            "listen.kafka (default) and listen.peer (default) both listen on port 9092",
        ),
        (
            ["node.roles=broker,voter"],
            (
                "node.roles: 'broker,voter' (--set) is not allowed: expected a list of broker | controller "
                "(at least one)"
            ),
        ),
        (
            ["node.roles="],
            "node.roles: '' (--set) is not allowed: expected a list of broker | controller (at least one)",
        ),
        (["node.roles=broker,broker", THREE, "node.id=4"], "node.roles (--set) names broker twice"),
    ],
)
def test_each_mistake_about_the_cluster_is_one_complaint(assignments: list[str], complaint: str) -> None:
    assert complaints(*assignments) == [complaint]


@pytest.mark.parametrize("peer", ["[::]:7000", "0.0.0.0:7000", "inside.example:7000", "10.0.0.1:7000"])
def test_a_peer_address_that_may_be_the_one_voters_look_for_is_accepted(peer: str) -> None:
    assert configured("cluster.voters=1@a:7000", f"listen.peer={peer}").peer == ListenAddress.parse(peer)


def test_a_peer_address_beyond_this_machine_is_warned_of() -> None:
    [warning] = warnings_for(configured("cluster.voters=1@10.0.0.1:7000"))

    assert warning.startswith("listen.peer (10.0.0.1:7000): reachable from other machines")


def test_a_rack_is_any_word() -> None:
    assert Config().node.rack == ""
    assert configured("node.rack=eu-1a").node.rack == "eu-1a"
