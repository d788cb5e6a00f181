"""Leaders come and go: logs that differ become equal, and nothing acknowledged is lost."""

from penstock.core.metadata import ElectionType, ElectLeader
from penstock.core.model import NodeId, PartitionIndex
from penstock.sim import NetworkFaults
from tests.unit.broker.replication.stage import Stage, append


def test_a_new_leader_has_what_was_acknowledged_and_goes_on() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a", "b")
    stage.run(100)

    stage.kill(1)
    stage.run(100)
    stage.append("c")
    stage.run(100)

    assert stage.values(2) == stage.values(3) == ["a", "b", "c"]
    assert stage.leader().high_watermark == 3
    assert stage.isr() == [2, 3]


def test_followers_turn_to_a_new_leader_without_waiting_for_a_long_poll() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(1_000)

    stage.kill(1)
    stage.run(30)

    assert stage.leader().is_established


def test_what_only_the_old_leader_had_is_cut_off_when_it_comes_back() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(100)
    old = stage.leader()
    for other in ("n2", "n3"):
        stage.world.network.cut("n1", other)
        stage.world.network.cut(other, "n1")
    append(old, "never", "acknowledged")
    stage.run(20)
    assert old.high_watermark == 1

    stage.kill(1)
    stage.world.network.heal_all()
    stage.run(100)
    stage.append("b")
    stage.start(1)
    stage.run(1_000)

    assert [stage.values(node) for node in (1, 2, 3)] == [["a", "b"]] * 3
    assert stage.isr() == [1, 2, 3]


def test_a_paused_leader_that_wakes_up_follows_and_cuts() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(100)
    old = stage.leader()
    stage.world.nodes["n1"].pause()
    append(old, "x", "y", "z")

    stage.fence(1)
    stage.run(100)
    stage.append("b")
    stage.run(100)
    stage.world.nodes["n1"].resume()
    stage.unfence(1)
    stage.run(1_000)

    assert [stage.values(node) for node in (1, 2, 3)] == [["a", "b"]] * 3
    assert old.stopped is not None


def test_logs_that_parted_more_than_once_become_equal() -> None:
    """KIP-279: the epoch that a follower is asked to cut at may be one that it never had."""
    stage = Stage(2)
    stage.create(1, 2, unclean_leader_election_enable="true", min_insync_replicas="1")
    stage.append("a")
    stage.run(100)
    # One of them lives at a time, and writes where the other has written something else.
    stage.kill(2)
    for number in range(9):
        node, other = (1, 2) if number % 2 == 0 else (2, 1)
        stage.run(50)
        for _ in range(1 + number % 3):
            stage.append(f"{number} on {node}")
        stage.run(50)
        stage.kill(node)
        stage.start(other)
    # The last one leads before the other is there, whose log would have been preferred.
    stage.run(50)

    stage.start_all()
    stage.run(3_000)

    assert stage.values(1) == stage.values(2)
    assert sorted(stage.isr()) == [1, 2]
    assert "8 on 1" not in stage.values(1)


def test_an_epoch_in_which_nothing_was_written_costs_no_records() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a", "b")
    stage.run(1_000)

    for node in (1, 2, 3, 1, 2):
        stage.kill(node)
        stage.run(100)
        stage.start(node)
        stage.run(600)

    assert [stage.values(node) for node in (1, 2, 3)] == [["a", "b"]] * 3


def test_power_cuts_take_only_what_was_not_acknowledged() -> None:
    stage = Stage(seed=3)
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(100)

    stage.append("b")
    stage.kill(1, power=True)
    stage.run(500)
    stage.append("c")
    stage.run(100)
    stage.start(1)
    stage.run(1_000)

    values = stage.values(2)
    assert values in (["a", "b", "c"], ["a", "c"])
    assert stage.values(1) == stage.values(3) == values


def test_frames_that_are_lost_doubled_and_late_do_no_harm() -> None:
    stage = Stage(seed=11)
    stage.create(1, 2, 3, partitions=3)
    stage.world.network.network_faults = NetworkFaults(loss=0.05, duplicate=0.05, reorder=0.2)

    for number in range(60):
        stage.append(f"{number}", index=number % 3)
        stage.run(40)
    stage.world.network.network_faults = NetworkFaults()
    stage.run(6_000)

    for index in range(3):
        expected = [f"{number}" for number in range(60) if number % 3 == index]
        assert [stage.values(node, index) for node in (1, 2, 3)] == [expected] * 3
        assert stage.isr(index) == [1, 2, 3]
        assert stage.leader(index).high_watermark == 20


def test_a_follower_that_knows_of_a_leader_before_the_leader_does_waits() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(1_000)
    stage.news_ms[NodeId(2)] = 700

    # Node 3 turns to node 2, which learns of its leadership much later.
    stage.kill(1)
    stage.run(650)
    assert stage.brokers[NodeId(2)].partitions.find("t", 0) is None

    stage.run(80)
    assert stage.leader().is_established


def test_a_preferred_leader_gets_its_place_back() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(1)
    stage.run(100)
    stage.append("a")
    stage.start(1)
    stage.run(1_000)

    stage.perform(ElectLeader("t", PartitionIndex(0), ElectionType.PREFERRED))
    stage.run(50)
    stage.append("b")
    stage.run(100)

    assert stage.leader() is stage.brokers[NodeId(1)].partitions.find("t", 0)
    assert [stage.values(node) for node in (1, 2, 3)] == [["a", "b"]] * 3
