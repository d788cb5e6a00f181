"""Who is in the ISR: proposals, their replies, and replies that never come."""

from penstock.broker.replication.fetch_server import OUTSIDE_AT_ONCE
from penstock.broker.replication.isr_manager import UNDERWAY_MAX, URGENT_MAX
from penstock.core.metadata import AlterPartition
from penstock.core.model import ApiError, ErrorKind, NodeId, PartitionIndex
from tests.unit.broker.replication.stage import Stage

LAG_MAX_MS = 3_000


def proposals(stage: Stage) -> list[list[int]]:
    return [
        [member.node_id for member in command.isr]
        for command in stage.commands
        if isinstance(command, AlterPartition)
    ]


def isolate(stage: Stage, name: str) -> None:
    for other in stage.world.nodes:
        if other != name:
            stage.world.network.cut(name, other)
            stage.world.network.cut(other, name)


def test_a_follower_that_falls_silent_leaves_the_isr_once_it_lags() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    isolate(stage, "n3")
    stage.append("a")

    stage.run(LAG_MAX_MS - 10)
    assert stage.isr() == [1, 2, 3]
    assert stage.leader().high_watermark == 0

    stage.run(1_000)
    assert stage.isr() == [1, 2]
    assert stage.leader().high_watermark == 1
    assert proposals(stage) == [[1, 2]]


def test_a_follower_that_is_silent_while_nothing_happens_stays() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a")
    stage.run(100)

    isolate(stage, "n3")
    stage.run(4 * LAG_MAX_MS)

    assert stage.isr() == [1, 2, 3]
    assert proposals(stage) == []


def test_a_follower_that_had_nothing_to_fetch_for_long_is_not_late_when_there_is_something() -> None:
    stage = Stage()
    stage.create(1, 2, 3)

    # Around the moments at which the leader looks at it.
    for pause_ms in range(LAG_MAX_MS - 100, LAG_MAX_MS + 100, 7):
        stage.append("x")
        stage.run(pause_ms)

    assert proposals(stage) == []


def test_a_follower_whose_disk_hangs_leaves_the_isr_though_it_fetches() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.world.nodes["n3"].pace.slowness = 1_000_000

    for _ in range(2 * LAG_MAX_MS // 100):
        stage.append("x")
        stage.run(100)

    assert stage.isr() == [1, 2]
    assert stage.ends(3) == stage.ends(1)


def test_a_follower_under_steady_load_stays() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    # A sync takes up to 300 ms, so what is appended last is never synced.
    for node in ("n2", "n3"):
        stage.world.nodes[node].pace.slowness = 150

    for _ in range(3 * LAG_MAX_MS // 20):
        stage.append("x")
        stage.run(20)

    assert proposals(stage) == []


def test_an_expansion_whose_answer_is_lost_counts_and_is_settled_by_metadata() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    stage.drop_replies = 1

    stage.start(3)
    stage.run(1_000)

    assert stage.isr() == [1, 2, 3]
    assert proposals(stage) == [[1, 2, 3]]


def test_an_expansion_that_never_arrives_is_proposed_again() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    stage.drop_commands = 3

    stage.start(3)
    stage.run(2_000)

    assert stage.isr() == [1, 2, 3]
    assert proposals(stage) == [[1, 2, 3]] * 4


def test_proposals_that_come_to_nothing_become_rare() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    stage.drop_commands = 1_000

    stage.start(3)
    stage.run(20_000)
    without_a_controller = len(proposals(stage))
    stage.drop_commands = 0
    stage.run(5_000)

    # Four in each second at first, then one in two.
    assert 4 <= without_a_controller <= 20
    assert stage.isr() == [1, 2, 3]


def test_a_newcomer_that_dies_while_its_fate_is_unknown_does_not_hold_the_high_watermark_for_long() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    stage.drop_commands = 1_000

    stage.start(3)
    stage.run(300)
    assert proposals(stage) != []
    stage.kill(3)
    stage.append("a")
    stage.drop_commands = 0
    stage.run(1_000)

    assert stage.isr() == [1, 2]
    assert stage.leader().high_watermark == 1


def test_below_the_minimum_nothing_is_committed_until_a_follower_is_back() -> None:
    stage = Stage()
    stage.create(1, 2, 3, min_insync_replicas="2")
    stage.kill(2)
    stage.kill(3)
    stage.run(100)
    stage.append("a")
    stage.run(1_000)
    assert stage.leader().high_watermark == 0

    stage.start(2)
    stage.run(1_000)

    assert stage.isr() == [1, 2]
    assert stage.leader().high_watermark == 1


def test_a_restarted_follower_is_proposed_under_its_new_epoch() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.kill(2)
    stage.run(100)
    stage.start(2)
    stage.run(1_000)

    last = [command for command in stage.commands if isinstance(command, AlterPartition)][-1]

    assert stage.isr() == [1, 2]
    assert dict(last.isr)[NodeId(2)] == stage.brokers[NodeId(2)].broker_epoch
    assert dict(last.isr)[NodeId(1)] == stage.brokers[NodeId(1)].broker_epoch


def test_a_broker_that_is_fenced_is_not_proposed_though_it_has_everything() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.append("a")
    stage.run(100)
    stage.kept_fenced.add(NodeId(3))

    stage.start(3)
    stage.run(5_000)
    assert stage.ends(1, 3) == [1, 1]
    assert proposals(stage) == []

    stage.unfence(3)
    stage.run(1_000)
    assert stage.isr() == [1, 2, 3]
    assert proposals(stage) == [[1, 2, 3]]


def test_of_very_many_proposals_only_some_are_under_way_and_all_are_made() -> None:
    partitions = 4 * UNDERWAY_MAX
    stage = Stage()
    stage.create(1, 2, 3, partitions=partitions)
    stage.run(5_000)
    stage.kill(3)
    stage.run(100)

    stage.start(3)
    stage.run(5_000)

    assert [stage.isr(number) for number in range(partitions)] == [[1, 2, 3]] * partitions
    assert len(proposals(stage)) == partitions
    # Here metadata comes before the reply, and makes room for others.
    assert stage.underway_most <= 2 * UNDERWAY_MAX


def test_a_partition_that_somebody_waits_for_is_not_behind_thousands_of_others() -> None:
    partitions = 6 * UNDERWAY_MAX
    last = PartitionIndex(partitions - 1)
    stage = Stage()
    stage.create(1, 2, 3, partitions=partitions, min_insync_replicas="3")
    stage.run(5_000)
    stage.kill(3)
    stage.run(100)
    # A client was refused there.
    stage.leader(last).has_refused_writes = True

    stage.start(3)
    stage.run(5_000)

    order = [command.index for command in stage.commands if isinstance(command, AlterPartition)]
    assert len(order) == partitions
    assert order.index(last) <= UNDERWAY_MAX + OUTSIDE_AT_ONCE
    assert not stage.leader(last).has_refused_writes


def test_followers_that_fall_silent_leave_the_isr_of_very_many_partitions() -> None:
    partitions = 6 * UNDERWAY_MAX
    stage = Stage()
    stage.create(1, 2, 3, partitions=partitions)
    stage.run(5_000)
    for number in range(partitions):
        stage.append("a", index=number)
    stage.run(1_000)
    isolate(stage, "n3")
    for number in range(partitions):
        stage.append("b", index=number)

    stage.run(LAG_MAX_MS + 2_000)

    assert [stage.isr(number) for number in range(partitions)] == [[1, 2]] * partitions
    assert all(stage.leader(number).high_watermark == 2 for number in range(partitions))
    # Here metadata comes before the reply, and makes room for others.
    assert stage.underway_most <= 2 * (UNDERWAY_MAX + URGENT_MAX)


def test_proposals_for_partitions_that_are_led_no_more_leave_their_place_to_others() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.run(100)
    manager, partition = stage.brokers[NodeId(1)].replication.isr_manager, stage.leader()
    manager._proposed[partition] = 7

    partition.stop("its topic was deleted")
    manager._ended(partition, 7, ApiError(ErrorKind.NOT_LEADER))

    assert manager._proposed == {}
