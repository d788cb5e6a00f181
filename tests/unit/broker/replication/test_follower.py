"""Followers get what their leader has, and the leader knows how far they are."""

from penstock.broker.partitions import FsyncMode
from penstock.broker.replication import ReplicationOptions
from penstock.core.model import NodeId, Offset
from tests.unit.broker.replication.stage import Stage, append


def test_what_a_leader_appends_reaches_its_followers_and_then_counts() -> None:
    stage = Stage()
    stage.create(1, 2, 3)

    stage.append("a", "b")
    stage.append("c")
    stage.run(100)

    assert [stage.values(node) for node in (1, 2, 3)] == [["a", "b", "c"]] * 3
    assert stage.leader().high_watermark == 3


def test_every_follower_gets_the_high_watermark_before_long() -> None:
    stage = Stage()
    stage.create(1, 2, 3)

    stage.append("a", "b")
    stage.run(1_200)

    assert [stage.log(node).high_watermark for node in (1, 2, 3)] == [2, 2, 2]


def test_an_acknowledgement_does_not_wait_for_a_long_poll() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.run(3_000)

    # Two hops, two syncs of at most two milliseconds each, and one hop back.
    stage.append("a")
    stage.run(20)

    assert stage.leader().high_watermark == 1


def test_what_is_fetched_but_not_synced_does_not_count() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.world.nodes["n2"].pace.slowness = 200

    stage.append("a")
    stage.run(9)

    assert stage.ends(2) == [1]
    assert stage.log(2).synced == 0
    assert stage.leader().high_watermark == 0

    stage.run(400)
    assert stage.leader().high_watermark == 1


def test_without_syncs_what_is_appended_counts() -> None:
    stage = Stage(fsync=FsyncMode.NONE)
    stage.create(1, 2, 3)
    for node in ("n1", "n2", "n3"):
        stage.world.nodes[node].pace.slowness = 100_000

    stage.append("a")
    stage.run(50)

    assert stage.leader().high_watermark == 1


def test_many_partitions_share_one_session() -> None:
    stage = Stage()
    stage.create(1, 2, 3, partitions=40)

    for index in range(40):
        stage.append(f"{index}", index=index)
    stage.run(200)

    for index in range(40):
        assert stage.values(2, index) == stage.values(3, index) == [f"{index}"]
        assert stage.leader(index).high_watermark == 1


def test_leaders_may_follow_each_other() -> None:
    stage = Stage()
    stage.create(1, 2, 3, partitions=1)
    stage.create_another("u", 2, 1, 3)

    stage.append("t1")
    append(stage.leader_of("u"), "u1", "u2")
    stage.run(200)

    assert stage.values(2) == ["t1"]
    assert stage.ends(1, 3, topic="u") == [2, 2]


def test_more_than_fits_into_an_answer_comes_in_several() -> None:
    stage = Stage(options=ReplicationOptions(partition_bytes_max=2_000, answer_bytes_max=3_000))
    stage.create(1, 2, partitions=3)

    for index in range(3):
        for number in range(30):
            stage.append(f"{number}" * 200, index=index)
    stage.run(2_000)

    for index in range(3):
        assert stage.values(2, index) == stage.values(1, index)
        assert stage.ends(2, index=index) == [30]


def test_a_batch_larger_than_the_limits_still_gets_through() -> None:
    stage = Stage(options=ReplicationOptions(partition_bytes_max=100, answer_bytes_max=100))
    stage.create(1, 2)

    stage.append("x" * 5_000)
    stage.run(100)

    assert stage.ends(2) == [1]


def test_a_link_that_is_full_is_tried_again() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.world.network.link_bytes_max = 50_000

    for _ in range(40):
        stage.append("x" * 20_000)
        stage.append("y" * 20_000)
    stage.run(3_000)

    assert stage.ends(2) == [80]


def test_a_follower_that_was_away_catches_up_and_joins_the_isr_again() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.append("a")
    stage.run(100)
    assert stage.isr() == [1, 2]
    assert stage.leader().high_watermark == 1

    stage.start(3)
    stage.run(500)

    assert stage.values(3) == ["a"]
    assert stage.isr() == [1, 2, 3]


def test_the_producers_of_a_leader_are_known_to_its_followers() -> None:
    stage = Stage()
    stage.create(1, 2)

    stage.append_as_producer(77, "a", "b")
    stage.run(100)

    for node in (1, 2):
        assert [producer_id for producer_id, _ in stage.log(node).producers] == [77]


def test_records_that_the_leader_deletes_go_from_its_followers_too() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    for number in range(10):
        stage.append(f"{number}")
    stage.run(1_000)

    stage.log(1).delete_records(Offset(6))
    stage.append("later")
    stage.run(7_000)

    assert [stage.log(node).start for node in (1, 2, 3)] == [6, 6, 6]


def test_deleted_records_are_heard_of_while_nothing_else_happens() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.append("a", "b", "c")
    stage.append("d")
    stage.run(3_000)

    stage.log(1).delete_records(Offset(3))
    stage.run(12_000)

    assert stage.log(2).start == 3


def test_a_follower_begins_anew_where_the_leaders_log_begins() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.append("a", "b", "c")
    stage.run(1_000)
    stage.kill(3)
    stage.append("d", "e")
    stage.append("f", "g", "h")
    stage.run(1_000)

    # In the middle of the last batch.
    stage.log(1).delete_records(Offset(6))
    stage.start(3)
    stage.run(1_000)

    assert stage.log(3).start == 6
    assert stage.ends(3) == [8]
    assert stage.isr() == [1, 2, 3]
    assert stage.log(3).read(Offset(6), 1_000).to_bytes() == stage.log(1).read(Offset(6), 1_000).to_bytes()


def test_a_follower_without_anything_gets_a_log_with_holes() -> None:
    stage = Stage()
    stage.create(1, 2, 3)
    stage.kill(3)
    stage.append("a")
    stage.append_with_hole(40, "b")
    stage.append("c")

    stage.start(3)
    stage.run(1_000)

    assert stage.values(3) == stage.values(2) == ["a", "b", "c"]
    assert stage.ends(2, 3) == [42, 42]


def test_batches_damaged_on_the_way_are_not_taken_and_come_again() -> None:
    stage = Stage()
    stage.create(1, 2)
    stage.brokers[NodeId(2)].peers.harm_next_bulk = True

    stage.append("a")
    stage.run(500)
    assert stage.ends(2) == [0]

    stage.run(2_500)
    assert stage.values(2) == ["a"]


def test_bad_frames_change_nothing() -> None:
    stage = Stage()
    stage.create(1, 2)

    for frame in (b"\x00", b"\x01", b"\x02" * 30, b"\x04\xff", b"\x09abc"):
        stage.send_raw(2, 1, frame)
    stage.append("a")
    stage.run(100)

    assert stage.values(2) == ["a"]
